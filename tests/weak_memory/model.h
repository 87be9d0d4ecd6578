/* model.h: the types of the functions that weak_memory.sh cuts out of the C sources, with only the
 * fields that these functions access. Half a channel holds one byte and a mailbox one element, so
 * that a message of three bytes already reuses both halves.
 */
#ifndef TESTS_WEAK_MEMORY_MODEL_H
#define TESTS_WEAK_MEMORY_MODEL_H

#include "common/base/sync.h"

enum { STATUS_OK, STATUS_FAILED };
enum {
    MAILBOX_BYTES = 1,
    EAGER_BYTES = 1,
    CHANNEL_BYTES = 1,
    FAILURE_MAX = 1,
    MOST_RANKS = 3,
    MOST_WORKS = 2
};
enum { LOST_CHECK_NS = 1, POLL_S = 0, WATCH_S = 0, PG_MAX_WORKS = MOST_WORKS };
enum { PG_ALL_REDUCE, PG_ALL_GATHER, PG_BROADCAST, PG_BARRIER };

#define CHECK(condition, ...) RL_ASSERT(condition)

typedef struct Error {
    Cell<int> status;
    Cell<const char *> message;
} Error;

// ---- groups in shared memory --------------------------------------------------------------------

typedef struct Collective {
    int kind, type, root;
    size_t count;
    Cell<int> *send, *receive;
} Collective;

typedef struct PgCall {
    Collective collective;
    uint64_t sequence, deadline_ns;
    Cell<int> operation;
    bool recorded;
    void *ticket;
} PgCall;

typedef Cell<int> PgFingerprint;

typedef struct ShmFingerprint {
    PgFingerprint call;
    Cell<uint64_t> allocation, offset;
    Cell<int> data[EAGER_BYTES];
} ShmFingerprint;

typedef struct RankSlot {
    SyncWord arrived, finished, finished_operation;
    ShmFingerprint fingerprint[2];
    Cell<const char *> failure;
} RankSlot;

typedef struct ShmMessage {
    Cell<uint64_t> count;
    Cell<int32_t> type;
} ShmMessage;

typedef struct ShmChannel {
    SyncWord posted, taken;
    ShmMessage message[2];
    Cell<int> data[2][CHANNEL_BYTES];
} ShmChannel;

typedef struct ShmMailbox {
    Cell<int> data[2][MAILBOX_BYTES];
} ShmMailbox;

typedef struct ShmControl {
    SyncWord aborted;
    RankSlot slots[MOST_RANKS];
    ShmMailbox mailboxes[MOST_RANKS];
    ShmChannel channel;
    Cell<int> buffers[MOST_RANKS][MOST_RANKS]; // of a direct all-reduce: [rank][element]
} ShmControl;

typedef struct PgShm {
    ShmControl *control;
    int rank, world, spins;
    uint32_t barriers, calls, turn;
    const PgCall *call;
    uint64_t moved;
} PgShm;

// ---- the queue of a group -----------------------------------------------------------------------

typedef struct PgWork PgWork;
typedef struct ProcessGroup ProcessGroup;

struct PgWork {
    ProcessGroup *group;
    PgCall call;
    Cell<uint64_t> end_ns;
    Cell<bool> outstanding, done, failed;
    Cell<PgWork *> next;
};

typedef struct PgBackend {
    void (*abort)(void *state, const char *message);
    void (*join)(void *state, PgCall *call);
    int (*run)(void *state, PgCall *call, Error *err);
    void *poll;
} PgBackend;

struct ProcessGroup {
    const PgBackend *backend;
    void *state;
    int rank;
    double timeout_s;
    bool thread_started, busy;
    pthread_mutex_t mutex;
    pthread_cond_t work_ready, work_over;
    Cell<PgWork *> first, last, spare;
    Cell<uint64_t> issued, finished;
    Cell<bool> closing;
    Error error;
    PgWork works[MOST_WORKS];
};

#endif
