/* shm_internal.h: the layout of the control segment, and the calls between the files of the shm
 * backend:
 *
 * | file        | content                                                                  |
 * |-------------|--------------------------------------------------------------------------|
 * | pg_shm.c    | groups, shared allocations, the backend's table                          |
 * | shm_wait.c  | barriers, fingerprints, and the errors of waits                          |
 * | shm_moves.c | the collectives: who copies or reduces what, between which barriers      |
 * | segment.c   | memory that several processes map                                        |
 *
 * No locks: every word has one writer. A rank writes its own slot, its own mailbox and its own ends
 * of its channels, and reads another rank's data only after it has read, with acquire, the SyncWord
 * that the writer stored, with release, after the data. (Exception: a direct all-reduce. The
 * barriers around it transfer the ownership of each slice, of all ranks' buffers, to one rank and
 * back.)
 *
 * Threads: one at a time, the owner or the communication thread (backend.h); shm_abort: any.
 */
#ifndef DDP_GROUP_SHM_INTERNAL_H
#define DDP_GROUP_SHM_INTERNAL_H

#include "common/base/sync.h"
#include "ddp/group/backend.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/group/shm/segment.h"

enum {
    MAILBOX_BYTES = 256 * 1024, // of one half: several halves fit in a core's cache
    CHANNEL_BYTES = 64 * 1024,  // of one half
    EAGER_BYTES = 16,           // the rest of the fingerprint's cache line
    FAILURE_MAX = 1024,
};

typedef struct ShmFingerprint { // one cache line: a peer fetches it in one round trip
    _Alignas(CACHE_LINE) PgFingerprint call;
    uint64_t allocation, offset;     // of the rank's buffer; allocation 0: private memory
    unsigned char data[EAGER_BYTES]; // the rank's contribution to an eager collective
} ShmFingerprint;
_Static_assert(sizeof(ShmFingerprint) == CACHE_LINE, "a fingerprint is one cache line");

typedef enum Presence { RANK_ABSENT, RANK_PRESENT, RANK_CLOSED } Presence;

typedef struct RankSlot {        // written by its rank only
    SyncWord arrived;            // number of barriers reached
    SyncWord finished;           // the sequence number of the last call it finished,
    SyncWord finished_operation; // and its operation
    SyncWord presence;
    SyncWord pid;
    // Double-buffered: the n-th call that shm_enter counts uses [n & 1]. A rank overwrites it for
    // call n + 2 only after all ranks have arrived at call n + 1, by which time all have read that
    // of n. (Sequence numbers do not alternate so: a dry group leaves calls out.)
    ShmFingerprint fingerprint[2];
    char failure[FAILURE_MAX]; // written before `aborted` names this rank
} RankSlot;

typedef struct ShmMessage {
    uint64_t count;
    int32_t type;
} ShmMessage;

// A single-producer, single-consumer ring of two chunks, from one rank to another.
typedef struct ShmChannel {
    SyncWord posted;       // chunks written, by the sender
    SyncWord taken;        // chunks read, by the receiver
    ShmMessage message[2]; // header of the message that each chunk belongs to
    _Alignas(CACHE_LINE) unsigned char data[2][CHANNEL_BYTES];
} ShmChannel;

typedef struct ShmMailbox { // a rank's outgoing chunks, read by all ranks; double-buffered
    _Alignas(CACHE_LINE) unsigned char data[2][MAILBOX_BYTES];
} ShmMailbox;

typedef struct ShmControl {
    uint64_t nonce;
    uint64_t slot_bytes; // of a RankSlot: with the segment's size, rejects a different build
    int world;
    SyncWord aborted; // 0, or 1 + the rank whose slot holds the error
    // The segment announced last, for the other ranks to open between two barriers: descriptor fd
    // of process pid (between threads: PgShmSegment.announced).
    int pid, fd;
    RankSlot slots[]; // [world], then ShmMailbox[world], then ShmChannel[world * world] (from, to)
} ShmControl;

typedef struct PgShm { // the state of one rank of a group
    PgShmSegment *segment;
    ShmControl *control;
    int rank, world;
    bool threads;      // the ranks are threads of this process
    int spins;         // before a wait blocks: SYNC_SPINS or SYNC_SPINS_CROWDED
    uint32_t barriers; // reached by this rank: equals slots[rank].arrived
    uint32_t calls;    // of all ranks, entered; bit 0 selects the fingerprint
    uint32_t turn;     // chunks sent through the mailboxes; bit 0 selects the next half
    const PgCall *call;
    uint64_t moved; // bytes, in this call
    SharedBlocks *allocations;
} PgShm;

ShmMailbox *shm_mailbox(const PgShm *shm, int rank);
ShmChannel *shm_channel(const PgShm *shm, int from, int to);
// The address of rank `rank`'s counterpart of this rank's `buffer`, which lies in a shared
// allocation.
void *shm_peer_memory(void *shm, const void *buffer, int rank);

// ---- shm_wait.c: 0, or -1 with err filled -------------------------------------------------------

// Waits until `word`, written by rank `peer`, reaches target. Fails when the group is aborted, when
// peer has died or closed its group, and at the deadline.
int shm_await(PgShm *shm, int peer, SyncWord *word, uint32_t target, Error *err);
// Waits until all ranks have arrived.
int shm_barrier(PgShm *shm, Error *err);
// Makes `call`, of all ranks, the current one.
void shm_enter(PgShm *shm, const PgCall *call);
// The fingerprint of rank `rank` in the current call.
ShmFingerprint *shm_fingerprint(const PgShm *shm, int rank);
// The barrier that begins the current call: publishes this rank's fingerprint, waits for all ranks,
// compares theirs. allocation and offset locate this rank's buffer; allocation 0: private memory.
// *direct: all ranks gave the same location in a shared allocation.
int shm_begin(PgShm *shm, uint64_t allocation, uint64_t offset, bool *direct, Error *err);
void shm_finish(PgShm *shm); // publishes the call as this rank's last finished one
int shm_check_abort(PgShm *shm, Error *err);
void shm_abort(void *shm, const char *message);

// ---- shm_moves.c --------------------------------------------------------------------------------

// Whether the call's contributions fit beside the fingerprints.
bool shm_is_eager(const PgShm *shm);
int shm_eager(PgShm *shm, Error *err); // includes shm_begin; the others run after it
int shm_staged(PgShm *shm, Error *err);
int shm_direct(PgShm *shm, Error *err);
int shm_send(PgShm *shm, Error *err);
int shm_receive(PgShm *shm, Error *err);

#endif
