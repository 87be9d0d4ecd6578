/* internal.h: what the files of the shm backend share: the layout of the control segment,
 * and the calls between them.
 *
 *     pg_shm.c   groups, shared allocations, the backend's table
 *     wait.c     how ranks meet (barrier, fingerprints) and what is said when they do not
 *     moves.c    the collectives: who copies or adds what, between which barriers
 *     segment.c  memory that several processes map
 *
 * The rule that makes it all safe without locks: every word has one writer. A rank writes its own
 * slot, its own mailbox and its own ends of its channels, and reads those of others only after it
 * has seen the word that announces them. (Slices of a direct all_reduce are the exception: there
 * the barriers around it hand the slices out and take them back.)
 */
#ifndef DDP_GROUP_SHM_INTERNAL_H
#define DDP_GROUP_SHM_INTERNAL_H

#include "common/base/sync.h"
#include "ddp/group/backend.h"
#include "ddp/group/shm/pg_shm.h"

enum {
    MAILBOX_BYTES = 256 * 1024, // one half: several fit in a core's cache
    CHANNEL_BYTES = 64 * 1024,  // one half
    FAILURE_MAX = 1024,
};

typedef struct Fingerprint {
    PgFingerprint call;
    uint64_t allocation, offset; // where the rank's buffer lies; 0: in private memory
} Fingerprint;

typedef enum Presence { RANK_ABSENT, RANK_PRESENT, RANK_CLOSED } Presence;

typedef struct RankSlot {        // written by its rank only
    SyncWord arrived;            // barriers it has reached
    SyncWord finished;           // the sequence number of the last call it finished,
    SyncWord finished_operation; // and its operation
    SyncWord presence;
    SyncWord pid;
    // Call n's is at [n & 1]. It may be overwritten by that of n + 2, which a rank writes after it
    // has seen all ranks arrive at n + 1: by then all have read that of n.
    _Alignas(CACHE_LINE) Fingerprint fingerprint[2];
    char failure[FAILURE_MAX]; // complete before `aborted` points here
} RankSlot;

typedef struct Message {
    uint64_t count;
    int32_t type;
} Message;

// A stream of chunks from one rank to another: two halves, used in turn.
typedef struct Channel {
    SyncWord posted;    // chunks written, by the sender
    SyncWord taken;     // chunks read, by the receiver
    Message message[2]; // the message that the chunk belongs to
    _Alignas(CACHE_LINE) unsigned char data[2][CHANNEL_BYTES];
} Channel;

typedef struct Mailbox { // what a rank shows to the others
    _Alignas(CACHE_LINE) unsigned char data[2][MAILBOX_BYTES];
} Mailbox;

typedef struct Control {
    uint64_t nonce;
    uint64_t layout; // sizes, so that two builds do not misread each other
    int world;
    SyncWord aborted; // 0, or 1 + the rank whose slot says why
    // The segment that a rank made last for the others to open (between two barriers): a descriptor
    // of process pid, or between threads the segment itself.
    int pid, fd;
    PgShmSegment *segment;
    RankSlot slots[]; // [world], then Mailbox[world], then Channel[world * world] (from, to)
} Control;

typedef struct Allocation Allocation;
struct Allocation {
    uint64_t id; // the sequence number of its pg_shared_alloc: the same on all ranks
    PgShmSegment *segment;
    size_t stride; // rank r's block begins at r * stride
    Allocation *next;
};

typedef struct PgShm { // one rank's end of a group
    PgShmSegment *segment;
    Control *control;
    int rank, world;
    bool threads;      // the ranks are threads of this process
    int looks;         // before a wait becomes a sleep: fewer where ranks share cores (sync.h)
    uint32_t barriers; // reached by this rank: slots[rank].arrived
    uint32_t turn;     // chunks that went through the mailboxes: which half is next
    const PgCall *call;
    uint64_t moved; // bytes, in this call
    Allocation *allocations;
} PgShm;

Mailbox *shm_mailbox(const PgShm *shm, int rank);
Channel *shm_channel(const PgShm *shm, int from, int to);
// Rank `rank`'s end of this rank's `buffer`, if all ranks work on the same place in a shared
// allocation.
void *shm_peer_buffer(const PgShm *shm, const void *buffer, int rank);

// ---- wait.c: 0, or -1 with err filled ------------------------------------------------

// Waits for `word`, which rank `peer` writes, to reach target. Fails when the group is aborted,
// when peer is gone, and at the deadline.
int shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err);
// Waits until all ranks are here.
int shm_barrier(PgShm *shm, Error *err);
// The barrier that begins a call: shows the ranks' fingerprints to each other and compares. The
// allocation and offset are those of this rank's buffer, 0 for private memory; *direct tells
// whether all ranks named the same.
int shm_begin(PgShm *shm, uint64_t allocation, uint64_t offset, bool *direct, Error *err);
void shm_finish(PgShm *shm); // notes the call as this rank's last finished one
int shm_check_abort(PgShm *shm, Error *err);
void shm_abort(PgShm *shm, const char *message);

// ---- moves.c -------------------------------------------------------------------------

int shm_staged(PgShm *shm, Error *err);
int shm_direct(PgShm *shm, Error *err);
int shm_send(PgShm *shm, Error *err);
int shm_receive(PgShm *shm, Error *err);

#endif
