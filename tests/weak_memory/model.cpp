/* model.cpp: the orders of shared memory, explored under C++11's memory model (README.md). The
 * included functions are those of the C sources, unchanged; weak_memory.sh cuts them out.
 *
 *     weak_memory [SCENARIO]     explores all up to the first that fails, or one; status 1 then,
 *                                and ./schedule has the execution that fails
 */
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "relacy_c.h"
#define reached sync_reached // shm_wait.c has a function of the same name
#include "common/base/sync.c"
#undef reached
#include "model.h"

// ---- stubs of the functions that they call ------------------------------------------------------

enum { FIRST_VALUE = 10 }; // of rank 0; rank r starts at FIRST_VALUE + r

static int error_set(Error *err, int status, const char *, const char *message) {
    if (err->status != STATUS_OK) return -1;
    err->status = status;
    err->message = message;
    return -1;
}

static int error_set(Error *err, int status, const char *format,
                     const Cell<const char *> &message) {
    return error_set(err, status, format, (const char *)message);
}

template <typename... Values>
static int error_set(Error *err, int status, const char *format, Values...) {
    return error_set(err, status, "%s", format);
}

template <typename... Values>
static PgWork *error_null(Error *err, int status, const char *format, Values...) {
    error_set(err, status, "%s", format);
    return NULL;
}

static Cell<int> *buffer_at(Cell<int> *buffer, size_t index, size_t size) {
    return buffer + index * size;
}

static void buffer_copy(Cell<int> *to, const Cell<int> *from, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = from[i];
}

static size_t pg_type_bytes(int) {
    return 1;
}

static bool pg_sends_pieces(int) {
    return false;
}

static ShmChannel *shm_channel(const PgShm *shm, int, int) {
    return &shm->control->channel;
}

static int pg_message_compare(const PgCall *call, int, uint64_t count, int, Error *) {
    RL_ASSERT(count == call->collective.count);
    return 0;
}

static int pg_fingerprint(const PgCall *call) {
    return (int)call->sequence;
}

static int pg_fingerprint_compare(const PgCall *call, const PgFingerprint *first,
                                  const PgFingerprint *other, int, Error *) {
    RL_ASSERT(*first == (int)call->sequence && *other == (int)call->sequence);
    return 0;
}

// ---- shm_wait.c ---------------------------------------------------------------------------------

typedef struct ShmWait {
    int peer;
    const SyncWord *word;
    uint32_t target;
} ShmWait;

// No rank dies, and no deadline passes.
static bool is_lost(const PgShm *, const ShmWait *, int) {
    return false;
}

static int report_missing(PgShm *, const ShmWait *, bool, Error *) {
    RL_ASSERT(false);
    return -1;
}

#define snprintf(target, size, format, text) ((target) = (text))
#include "shm_wait.cut"
#undef snprintf

// ---- shm_moves.c --------------------------------------------------------------------------------

typedef struct ShmChunk {
    size_t first, count, size;
    int half;
    bool eager;
} ShmChunk;

static Cell<int> *contribution(const PgShm *shm, int rank, const ShmChunk *chunk) {
    return chunk->eager ? shm_fingerprint(shm, rank)->data
                        : shm->control->mailboxes[rank].data[chunk->half];
}

// The value of the chunk's first element; it differs in each call and chunk.
static int value_of(const PgShm *shm, int rank, const ShmChunk *chunk) {
    return FIRST_VALUE * (int)(chunk->first + shm->call->sequence) + rank;
}

static void put(const PgShm *shm, const ShmChunk *chunk) {
    *contribution(shm, shm->rank, chunk) = value_of(shm, shm->rank, chunk);
}

static void take(PgShm *shm, const ShmChunk *chunk) {
    for (int r = 0; r < shm->world; r++)
        RL_ASSERT(*contribution(shm, r, chunk) == value_of(shm, r, chunk));
}

static void copy_pieces(PgShm *, size_t) {}

static Cell<int> *shm_peer_memory(PgShm *shm, Cell<int> *, int rank) {
    return shm->control->buffers[rank];
}

// Sums element `rank` of all ranks' buffers and writes the sum into all of them.
static void reduce_slice(PgShm *shm) {
    int sum = 0;
    for (int r = 0; r < shm->world; r++) sum += shm->control->buffers[r][shm->rank];
    for (int r = 0; r < shm->world; r++) shm->control->buffers[r][shm->rank] = sum;
}

#include "shm_moves.cut"

// ---- process_group.c and work.c -----------------------------------------------------------------

#define pthread_create(thread, attributes, function, context) 0 // the scenario runs `function`
#define pthread_join(thread, result)                          ((void)0)

static struct timespec clock_deadline(double) {
    return {};
}

static void cores_take_short_turns(void) {}

static int pg_write_flight(ProcessGroup *, const char *, Error *) {
    return 0;
}

static void poll_in_flight(ProcessGroup *) {}

#include "process_group.cut"

static int run_call(ProcessGroup *group, PgCall *call, Cell<uint64_t> *end_ns) {
    Error error = {0};
    pthread_mutex_lock(&group->mutex);
    const bool broken = group->error.status != STATUS_OK;
    pthread_mutex_unlock(&group->mutex);
    *end_ns = 1;
    if (broken) return -1;
    return group->backend->run(group->state, call, &error) ? pg_break(group, &error) : 0;
}

#include "work.cut"

// ---- scenarios ----------------------------------------------------------------------------------

static void word_init(SyncWord *word) {
    word->value.store(0, memory_order_relaxed, $);
    word->sleepers.store(0, memory_order_relaxed, $);
}

// A release store or claim, an acquire load and a wake-up. The abort follows: the wait is done.
template <typename Scenario, bool CLAIMS> struct Handshake : rl::test_suite<Scenario, 2> {
    SyncWord word, abort_flag;
    Cell<int> data;
    void before() {
        word_init(&word);
        word_init(&abort_flag);
    }
    void thread(unsigned index) {
        if (index == 1) {
            RL_ASSERT(sync_wait(&word, 1, &abort_flag, UINT64_MAX, 1) == SYNC_DONE);
            RL_ASSERT(data == 1);
            return;
        }
        data = 1;
        if (CLAIMS)
            RL_ASSERT(sync_claim(&word, 0, 1));
        else
            sync_store(&word, 1);
        sync_store(&abort_flag, 1);
    }
};

struct handshake : Handshake<handshake, false> {};
struct claim : Handshake<claim, true> {};

// One store wakes all sleeping threads.
struct two_waiters : rl::test_suite<two_waiters, 3> {
    SyncWord word;
    Cell<int> data;
    void before() { word_init(&word); }
    void thread(unsigned index) {
        if (index == 0) {
            data = 1;
            sync_store(&word, 1);
        } else {
            RL_ASSERT(sync_wait(&word, 1, NULL, UINT64_MAX, 0) == SYNC_DONE);
            RL_ASSERT(data == 1);
        }
    }
};

// The ranks of a group in shared memory: thread r is rank r.
template <typename Scenario, int RANKS> struct Ranks : rl::test_suite<Scenario, RANKS> {
    ShmControl control;
    PgShm shm[RANKS];
    PgCall calls[RANKS];
    Error errors[RANKS];

    void before() {
        word_init(&control.aborted);
        word_init(&control.channel.posted);
        word_init(&control.channel.taken);
        for (int r = 0; r < RANKS; r++) {
            RankSlot *slot = &control.slots[r];
            word_init(&slot->arrived);
            word_init(&slot->finished);
            word_init(&slot->finished_operation);
            calls[r].deadline_ns = UINT64_MAX;
            calls[r].sequence = 1;
            calls[r].collective.kind = PG_ALL_REDUCE;
            shm[r] = {.control = &control, .rank = r, .world = RANKS, .call = &calls[r]};
        }
    }
};

template <typename Scenario, int RANKS> struct Barrier : Ranks<Scenario, RANKS> {
    void thread(unsigned rank) {
        this->control.mailboxes[rank].data[0][0] = FIRST_VALUE + (int)rank;
        RL_ASSERT(shm_barrier(&this->shm[rank], &this->errors[rank]) == 0);
        for (int r = 0; r < RANKS; r++)
            RL_ASSERT(this->control.mailboxes[r].data[0][0] == FIRST_VALUE + r);
    }
};

struct barrier : Barrier<barrier, 2> {};
struct barrier_of_three : Barrier<barrier_of_three, 3> {};

// A staged collective: half of a mailbox is written again two chunks later.
template <typename Scenario, int RANKS, int CHUNKS> struct Staged : Ranks<Scenario, RANKS> {
    void thread(unsigned rank) {
        this->calls[rank].collective.count = CHUNKS;
        RL_ASSERT(shm_staged(&this->shm[rank], &this->errors[rank]) == 0);
    }
};

struct staged : Staged<staged, 2, 3> {};
struct staged_of_three : Staged<staged_of_three, 3, 3> {};

// Eager collectives have only the barrier at their beginning; their data are double-buffered like
// the fingerprints beside them. The calls between them are skipped, as in a dry group.
struct eager : Ranks<eager, 2> {
    void thread(unsigned rank) {
        calls[rank].collective.count = 1;
        for (uint64_t sequence = 2; sequence <= 6; sequence += 2) {
            calls[rank].sequence = sequence;
            shm_enter(&shm[rank], &calls[rank]);
            RL_ASSERT(shm_is_eager(&shm[rank]) && shm_eager(&shm[rank], &errors[rank]) == 0);
        }
    }
};

// Direct all-reduces: the barriers order the accesses to the slices of all ranks' buffers.
template <typename Scenario, int RANKS, int CALLS> struct Direct : Ranks<Scenario, RANKS> {
    void thread(unsigned rank) {
        PgShm *shm = &this->shm[rank];
        Error *err = &this->errors[rank];
        Cell<int> *mine = this->control.buffers[rank];
        int sum = 1;
        for (int e = 0; e < RANKS; e++) mine[e] = 1;
        for (int call = 1; call <= CALLS; call++) {
            bool direct = false;
            this->calls[rank].sequence = (uint64_t)call;
            shm_enter(shm, &this->calls[rank]);
            RL_ASSERT(shm_begin(shm, 1, 0, &direct, err) == 0 && direct);
            RL_ASSERT(shm_direct(shm, err) == 0);
            shm_finish(shm);
            sum *= RANKS;
            for (int e = 0; e < RANKS; e++) RL_ASSERT(mine[e] == sum);
        }
    }
};

struct direct : Direct<direct, 2, 2> {};
struct direct_of_three : Direct<direct_of_three, 3, 1> {};

// Collectives that begin without any other barrier: their fingerprints are double-buffered.
struct fingerprints : Ranks<fingerprints, 2> {
    void thread(unsigned rank) {
        for (int call = 1; call <= 3; call++) {
            bool direct;
            calls[rank].sequence = (uint64_t)call;
            shm_enter(&shm[rank], &calls[rank]);
            RL_ASSERT(shm_begin(&shm[rank], 0, 0, &direct, &errors[rank]) == 0);
        }
    }
};

// A message from rank 0 to rank 1, in BYTES chunks.
template <typename Scenario, int BYTES> struct Message : Ranks<Scenario, 2> {
    Cell<int> from[BYTES], to[BYTES];
    void thread(unsigned rank) {
        PgShm *shm = &this->shm[rank];
        Collective *c = &this->calls[rank].collective;
        c->count = BYTES;
        c->root = 1 - (int)rank;
        c->send = from;
        c->receive = to;
        if (rank == 0) {
            for (int i = 0; i < BYTES; i++) from[i] = FIRST_VALUE + i;
            RL_ASSERT(shm_send(shm, &this->errors[rank]) == 0);
        } else {
            RL_ASSERT(shm_receive(shm, &this->errors[rank]) == 0);
            for (int i = 0; i < BYTES; i++) RL_ASSERT(to[i] == FIRST_VALUE + i);
        }
    }
};

struct message : Message<message, 1> {};
struct message_of_three : Message<message_of_three, 3> {};

static const char *const failures[] = {"rank 0 fails", "rank 1 fails", "rank 2 fails"};

// Ranks 0 and 1 fail concurrently while rank 2 checks: one claim succeeds, and all ranks report its
// error.
struct abort_claim : Ranks<abort_claim, 3> {
    void before() {
        Ranks::before();
        for (PgShm &rank : shm) rank.world = 1; // one word to wake; others: see abort_wakes
    }
    void thread(unsigned rank) {
        if (rank < 2)
            shm_abort(&shm[rank], failures[rank]);
        else if (shm_check_abort(&shm[rank], &errors[rank]) != 0)
            RL_ASSERT(errors[rank].message == failures[0] || errors[rank].message == failures[1]);
    }
    void after() {
        const uint32_t who = sync_load(&control.aborted);
        RL_ASSERT(who == 1 || who == 2);
        RL_ASSERT(errors[2].status == STATUS_OK || errors[2].message == failures[who - 1]);
    }
};

// A thread that is about to block when the abort wakes all waiters misses the wake-up; it checks
// the flag when its slice ends.
static void end_slices(SyncWord *word) {
    slice_over->store(1, memory_order_seq_cst, $);
    futex(&word->value, FUTEX_WAKE, INT_MAX);
}

// Rank 1 fails while rank 0 waits for it at a barrier.
struct abort_wakes : Ranks<abort_wakes, 2> {
    Word over;
    void before() {
        Ranks::before();
        over.store(0, memory_order_relaxed, $);
        slice_over = &over;
    }
    void after() { slice_over = NULL; }
    void thread(unsigned rank) {
        if (rank == 0) {
            RL_ASSERT(shm_barrier(&shm[0], &errors[0]) != 0);
            RL_ASSERT(errors[0].message == failures[1]);
        } else {
            shm_abort(&shm[1], failures[1]);
            end_slices(&control.slots[1].arrived);
        }
    }
};

// The owner (thread 0) and the communication thread (thread 1) of rank 0.
template <typename Scenario, int THREADS> struct Queue : rl::test_suite<Scenario, THREADS> {
    ProcessGroup group;
    PgBackend backend = {};
    Cell<int> payload;

    void before() {
        group.backend = &backend;
        group.thread_started = true;
        rl::rl_pthread_mutex_init(&group.mutex, NULL, $);
        rl::rl_pthread_cond_init(&group.work_ready, NULL, $);
        rl::rl_pthread_cond_init(&group.work_over, NULL, $);
        for (int w = 0; w < MOST_WORKS; w++) {
            group.works[w].group = &group;
            group.works[w].next = group.spare;
            group.spare = &group.works[w];
        }
    }
    void after() {
        rl::rl_pthread_mutex_destroy(&group.mutex, $);
        rl::rl_pthread_cond_destroy(&group.work_ready, $);
        rl::rl_pthread_cond_destroy(&group.work_over, $);
    }
};

// The backend's run reads the operand and writes the result.
static int add_operation(void *state, PgCall *call, Error *) {
    Cell<int> *payload = (Cell<int> *)state;
    *payload = *payload + call->operation;
    return 0;
}

static PgWork *start(ProcessGroup *group, int operation, Error *err) {
    PgCall call = {};
    call.operation = operation;
    return enqueue(group, &call, err);
}

template <typename Scenario, int WORKS> struct Works : Queue<Scenario, 2> {
    void thread(unsigned index) {
        ProcessGroup *group = &this->group;
        if (index == 1) {
            communication_thread(group);
            return;
        }
        PgCall call;
        PgWork *works[WORKS];
        Error err;
        uint64_t end_ns;
        this->backend.run = add_operation;
        group->state = &this->payload;
        this->payload = 100;
        for (int w = 0; w < WORKS; w++) works[w] = start(group, w + 1, &err);
        for (int w = 0; w < WORKS; w++) RL_ASSERT(take_back(works[w], &call, &end_ns, &err) == 0);
        RL_ASSERT(this->payload == 100 + WORKS * (WORKS + 1) / 2);
        pg_stop_thread(group);
    }
};

struct queue : Works<queue, 1> {};
struct queue_of_two : Works<queue_of_two, 2> {};

// The communication thread waits in the backend for rank 1, which never arrives; thread 2 breaks
// the group: the work ends, with that error.
static int run_barrier(void *state, PgCall *, Error *err) {
    return shm_barrier((PgShm *)state, err);
}

struct queue_aborted : Queue<queue_aborted, 3> {
    ShmControl control;
    PgShm shm;
    PgCall shm_call;
    Word over;

    void before() {
        Queue::before();
        over.store(0, memory_order_relaxed, $);
        slice_over = &over;
        word_init(&control.aborted);
        for (int r = 0; r < 2; r++) word_init(&control.slots[r].arrived);
        shm_call.deadline_ns = UINT64_MAX;
        shm = {.control = &control, .rank = 0, .world = 2, .call = &shm_call};
        group.state = &shm;
        backend.abort = shm_abort;
        backend.run = run_barrier;
    }
    void after() {
        slice_over = NULL;
        Queue::after();
    }
    void thread(unsigned index) {
        if (index == 1) {
            communication_thread(&group);
        } else if (index == 2) {
            Error cause;
            error_set(&cause, STATUS_FAILED, "%s", failures[2]);
            RL_ASSERT(pg_break(&group, &cause) != 0);
            end_slices(&control.slots[1].arrived);
        } else {
            PgCall call;
            Error err;
            uint64_t end_ns;
            PgWork *work = start(&group, 1, &err);
            RL_ASSERT(take_back(work, &call, &end_ns, &err) != 0 && err.message == failures[2]);
            pg_stop_thread(&group);
        }
    }
};

// ---- the search ---------------------------------------------------------------------------------

enum { ALL_SCHEDULES = 0 };

typedef bool Search(rl::test_params &params);

// A stream that does not allocate: Relacy replaces the allocator while it runs.
struct FixedText : std::streambuf {
    char text[256];
    FixedText() { setp(text, text + sizeof text); }
};

// As rl::simulate, which would compile each scenario for three schedulers. A failing execution is
// run again and recorded.
template <typename Scenario, template <rl::thread_id_t> class Scheduler>
static bool search(rl::test_params &params) {
    typedef Scheduler<Scenario::params::thread_count> Threads;
    FixedText text;
    std::ostream state(&text);
    if (rl::run_test<Scenario, Threads>(params, state, false) == rl::test_result_success)
        return true;
    state << '\0';
    params.initial_state = text.text;
    params.collect_history = true;
    rl::run_test<Scenario, Threads>(params, state, true);
    return false;
}

template <typename Scenario> static Search *const all = search<Scenario, rl::full_search_scheduler>;
template <typename Scenario>
static Search *const some = search<Scenario, rl::context_bound_scheduler>;

struct Row {
    const char *name, *what;
    unsigned bound; // the largest number of preemptions in a schedule, or ALL_SCHEDULES
    Search *search;
};

static const Row ROWS[] = {
    {"handshake", "a store, an abort, a wait", ALL_SCHEDULES, all<handshake>},
    {"claim", "a claim, an abort, a wait", ALL_SCHEDULES, all<claim>},
    {"two_waiters", "a store, 2 sleepers", 4, some<two_waiters>},
    {"barrier", "2 ranks", ALL_SCHEDULES, all<barrier>},
    {"barrier_of_three", "3 ranks", 2, some<barrier_of_three>},
    {"fingerprints", "2 ranks, 3 calls", 3, some<fingerprints>},
    {"eager", "2 ranks, 3 calls", 3, some<eager>},
    {"staged", "2 ranks, 3 chunks", 3, some<staged>},
    {"staged_of_three", "3 ranks, 3 chunks", 1, some<staged_of_three>},
    {"direct", "2 ranks, 2 all-reduces", 2, some<direct>},
    {"direct_of_three", "3 ranks, 1 all-reduce", 1, some<direct_of_three>},
    {"message", "1 chunk", ALL_SCHEDULES, all<message>},
    {"message_of_three", "3 chunks", 3, some<message_of_three>},
    {"abort_claim", "2 ranks fail, 1 checks", ALL_SCHEDULES, all<abort_claim>},
    {"abort_wakes", "1 rank fails, 1 waits", 5, some<abort_wakes>},
    {"queue", "1 work", ALL_SCHEDULES, all<queue>},
    {"queue_of_two", "2 works", 4, some<queue_of_two>},
    {"queue_aborted", "1 work, the group breaks", 3, some<queue_aborted>},
};

static bool explore(const Row *row) {
    std::ofstream output("schedule");
    rl::test_params params;
    params.output_stream = params.progress_stream = &output;
    params.search_type = rl::sched_full; // exhaustive, so that it ends
    params.context_bound = row->bound;
    const auto begin = std::chrono::steady_clock::now();
    const bool passed = row->search(params);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    char bound[32] = "all";
    if (row->bound != ALL_SCHEDULES) std::snprintf(bound, sizeof bound, "<= %u", row->bound);
    printf("%-18s %-26s %11s %10llu %7.2f  %s\n", row->name, row->what, bound,
           (unsigned long long)params.stop_iteration, seconds.count(),
           passed ? "passed" : rl::test_result_str(params.test_result));
    if (!passed) printf("[  FAILED  ] %s\n", row->name);
    return passed;
}

int main(int argc, char **argv) {
    bool passed = true, known = argc < 2;
    printf("%-18s %-26s %11s %10s %7s\n", "scenario", "", "preemptions", "executions", "s");
    for (const Row &row : ROWS) {
        if (argc > 1 && strcmp(argv[1], row.name) != 0) continue;
        known = true;
        if (passed) passed = explore(&row);
    }
    return !known ? 2 : !passed;
}
