/* test_process_group.c: every collective for 1 to 5 ranks, with counts around every boundary, in
 * private and shared memory, blocking and asynchronous, with ranks as threads and as processes;
 * with the argument "mpi", under mpirun, over MPI in one world.
 *
 * The ranks' values are defined in tests/rigs/trial.h. A separate test checks, bit for bit and
 * with values that round, that sums run in rank order.
 */
#include "tests/rigs/trial.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/trace.h"

// Several chunks of a mailbox, and not a multiple: of two ranks on a host, the last sums one
// element more than whole chunks (ddp/group/mpi/hosts.c).
enum { MANY = 5 * 2 * 15360 + 1 };

typedef struct Case {
    bool shared, async;
} Case;

static void try_one(const Trial *t) {
    Error error = {0};
    fill(t);
    int status = -1;
    if (t->async) {
        uint64_t before = clock_ns(), begin, end;
        PgWork *work = pg_start(t->group, make(t), &error);
        if (work) status = pg_work_wait(work, &begin, &end, &error);
        if (work && !status && (begin < before || end < begin || end > clock_ns()))
            problem(t->outcome, "times out of order");
    } else {
        status = pg_run(t->group, make(t), &error);
    }
    if (status)
        problem(t->outcome, "%s: %s", kind_names[t->kind], error.message);
    else
        check(t);
}

// ---- every collective -----------------------------------------------------------------------

// Private buffers have the exact size, so that AddressSanitizer detects overruns; shared buffers
// are not aligned to cache lines.
static void try_count(Trial *t, unsigned char *shared, size_t shared_bytes) {
    size_t size = type_bytes(t->type);
    size_t send_bytes = send_elements(t) * size, receive_bytes = (receive_elements(t) + 1) * size;
    if (shared) {
        t->receive = shared + 3 * size;
        t->send = shared + shared_bytes / 2 + 5 * size;
        try_one(t);
        return;
    }
    t->send = malloc(send_bytes);
    t->receive = malloc(receive_bytes);
    try_one(t);
    free(t->send);
    free(t->receive);
}

static void every_collective(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *c = argument;
    size_t world = (size_t)pg_size(group), bytes = 2 * (world * MANY + 64) * sizeof(float);
    size_t counts[] = {0, 1, world - 1, world, world + 1, 1009, MANY};
    unsigned char *shared = NULL;
    if (c->shared && !(shared = pg_shared_alloc(group, bytes, &outcome->error))) {
        problem(outcome, "%s", outcome->error.message);
        return;
    }
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        for (int kind = PG_ALL_REDUCE; kind <= PG_REDUCE_SCATTER; kind++) {
            Trial t = {.group = group,
                       .outcome = outcome,
                       .kind = (CollectiveKind)kind,
                       .type = PG_F32,
                       .op = n % 2 ? PG_SUM : PG_AVG,
                       .count = counts[n],
                       .root = (int)((n + (size_t)kind) % world),
                       .async = c->async};
            try_count(&t, shared, bytes);
        }
    }
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "barrier");
}

static void test_every_collective(Mode mode) {
    for (int world = 1; world <= largest_world(mode); world++)
        for (int c = 0; c < 4; c++) {
            Case variant = {.shared = c & 1, .async = (c & 2) != 0};
            play_ranks(mode, world, 60, every_collective, &variant, NULL);
        }
}

static void every_type(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *c = argument;
    unsigned char *shared = c->shared ? pg_shared_alloc(group, 1 << 20, &outcome->error) : NULL;
    for (int kind = PG_ALL_REDUCE; kind <= PG_REDUCE_SCATTER; kind++)
        for (int type = PG_F32; type <= PG_BF16; type++)
            for (int op = PG_SUM; op <= PG_MIN; op++) {
                if (op == PG_AVG && type > PG_F64) continue;
                Trial t = {.group = group,
                           .outcome = outcome,
                           .kind = (CollectiveKind)kind,
                           .type = (PgType)type,
                           .op = (ReduceOp)op,
                           .count = 2503,
                           .root = pg_size(group) - 1,
                           .async = c->async};
                try_count(&t, shared, 1 << 20);
            }
}

static void test_every_type(Mode mode) {
    for (int world = 2; world <= 5; world++) // six ranks' sums overflow U8
        for (int shared = 0; shared < 2; shared++) {
            Case variant = {.shared = shared, .async = false};
            play_ranks(mode, world, 60, every_type, &variant, NULL);
        }
}

// MPI's own reductions for every type and operation; combinations that MPI lacks use the group's.
static void fast_sums(ProcessGroup *group, const void *argument, Outcome *outcome) {
    if (pg_use_fast_sums(group, &outcome->error) != 0) problem(outcome, "none");
    every_type(group, argument, outcome);
}

static void no_fast_sums(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    if (pg_use_fast_sums(group, &outcome->error) == 0) problem(outcome, "they are promised");
}

static void test_fast_sums(Mode mode) {
    const Case variant = {.shared = false};
    for (int world = 2; world <= 5; world++)
        play_ranks(mode, world, 60, mode == AS_MPI ? fast_sums : no_fast_sums, &variant, NULL);
}

// ---- rank order, bit for bit ----------------------------------------------------------------

// In [-1, 1) or, of every other rank, 10,000 times as large. By one multiplication: Philox would
// take a fifth of this program's time.
static float rounding_value(int rank, size_t i) {
    const uint32_t bits = (uint32_t)(i + 1 + 1000003 * (size_t)rank) * 2654435761u;
    return ((float)(bits >> 8) * 0x1p-23f - 1) * (rank % 2 ? 1e4f : 1.0f);
}

static void rank_order(ProcessGroup *group, const void *argument, Outcome *outcome) {
    size_t count = 70001;
    int world = pg_size(group);
    bool shared = *(const bool *)argument, differs = false;
    float *x = shared ? pg_shared_alloc(group, count * sizeof *x, &outcome->error)
                      : memory_zalloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rounding_value(pg_rank(group), i);
    if (pg_run(group, pg_all_reduce(x, count, PG_F32, PG_AVG), &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
    for (size_t i = 0; i < count; i++) {
        float of[8], sum = 0, backwards = 0; // mpi_collectives.sh has 6 ranks
        for (int r = 0; r < world; r++) sum += of[r] = rounding_value(r, i);
        for (int r = world - 1; r >= 0; r--) backwards += of[r];
        float want = sum * (float)(1.0 / world);
        if (memcmp(&x[i], &want, sizeof want) != 0) problem(outcome, "element %zu differs", i);
        differs = differs || sum != backwards;
    }
    if (world > 2 && !differs) problem(outcome, "the values cannot tell one order from another");
    if (!shared) free(x);
}

static void test_rank_order(Mode mode) {
    for (int world = 1; world <= largest_world(mode); world++)
        for (int shared = 0; shared < 2; shared++) {
            bool argument = shared;
            play_ranks(mode, world, 60, rank_order, &argument, NULL);
        }
}

static void special_values(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group);
    for (int op = PG_MAX; op <= PG_MIN; op++)
        for (int where = 0; where < pg_size(group); where++) {
            float x = rank == where ? (float)strtod("nan", NULL) : (float)rank;
            pg_run(group, pg_all_reduce(&x, 1, PG_F32, (ReduceOp)op), &outcome->error);
            if (x == x) problem(outcome, "rank %d's NaN was lost", where);
        }
    int32_t large = INT32_MAX;
    pg_run(group, pg_all_reduce(&large, 1, PG_I32, PG_SUM), &outcome->error);
    if (large != INT32_MAX - 2) problem(outcome, "3 INT32_MAX gave %d", large); // mod 2^32
}

static void test_special_values(Mode mode) {
    play_ranks(mode, 3, 60, special_values, NULL, NULL);
}

// ---- pieces in place --------------------------------------------------------------------------

// reduce_scatter, then all_gather, in place: the reduced piece replaces the rank's own piece and no
// other piece changes; then all ranks have all pieces. Sums are in rank order, bit for bit.
static void pieces_in_place(ProcessGroup *group, const void *argument, Outcome *outcome) {
    bool shared = *(const bool *)argument;
    size_t world = (size_t)pg_size(group), rank = (size_t)pg_rank(group);
    for (size_t count = 1; count < 70002; count += 35000) {
        size_t all = world * count;
        float *x = shared ? pg_shared_alloc(group, all * sizeof *x, &outcome->error)
                          : memory_zalloc(all * sizeof *x);
        float *mine = x + rank * count;
        for (size_t i = 0; i < all; i++) x[i] = rounding_value((int)rank, i);
        uint64_t moved = pg_moved_bytes(group);
        if (pg_run(group, pg_reduce_scatter(x, mine, count, PG_F32, PG_AVG), &outcome->error) != 0)
            problem(outcome, "%s", outcome->error.message);
        for (size_t i = 0; i < all; i++) {
            bool summed = i / count == rank;
            float want = summed ? 0 : rounding_value((int)rank, i);
            for (int r = 0; summed && r < (int)world; r++) want += rounding_value(r, i);
            if (summed) want *= (float)(1.0 / (double)world);
            if (memcmp(&x[i], &want, sizeof want) != 0) problem(outcome, "element %zu differs", i);
        }
        if (pg_run(group, pg_all_gather(mine, x, count, PG_F32), &outcome->error) != 0)
            problem(outcome, "%s", outcome->error.message);
        for (size_t i = 0; i < all; i++) {
            float sum = rounding_value(0, i);
            for (int r = 1; r < (int)world; r++) sum += rounding_value(r, i);
            if (x[i] != sum * (float)(1.0 / (double)world)) problem(outcome, "gathered %zu", i);
        }
        moved = pg_moved_bytes(group) - moved;
        if (moved != 2 * (world - 1) * count * sizeof *x)
            problem(outcome, "moved %zu bytes", (size_t)moved);
        if (!shared) free(x);
    }
}

static void test_pieces_in_place(Mode mode) {
    for (int world = 1; world <= largest_world(mode); world++)
        for (int shared = 0; shared < 2; shared++) {
            bool argument = shared;
            play_ranks(mode, world, 60, pieces_in_place, &argument, NULL);
        }
}

// The output of every rank is piece 0 of its input, which other ranks may still read: the mailbox
// is used.
static void sum_into_the_first_piece(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    enum { COUNT = 100000 };
    size_t world = (size_t)pg_size(group), rank = (size_t)pg_rank(group);
    float *x = pg_shared_alloc(group, world * COUNT * sizeof *x, &outcome->error);
    for (size_t i = 0; i < world * COUNT; i++) x[i] = (float)(i % 1000 + rank);
    if (pg_run(group, pg_reduce_scatter(x, x, COUNT, PG_F32, PG_SUM), &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
    for (size_t i = 0; i < COUNT; i++)
        if (x[i] != (float)(world * (i % 1000) + world * (world - 1) / 2))
            problem(outcome, "element %zu is %g", i, (double)x[i]);
}

static void test_sum_into_the_first_piece(Mode mode) {
    play_ranks(mode, 4, 60, sum_into_the_first_piece, NULL, NULL);
}

// ---- memory of buffers ----------------------------------------------------------------------

// All ranks must choose the same algorithm for any mixture of private and shared buffers.
static void mixed_memory(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    int rank = pg_rank(group), world = pg_size(group);
    enum { COUNT = 5000 };
    float *first = pg_shared_alloc(group, 2 * COUNT * sizeof(float), &outcome->error);
    float *second = pg_shared_alloc(group, COUNT * sizeof(float), &outcome->error);
    float *own = memory_zalloc(COUNT * sizeof(float));
    float *choices[][3] = {{own, first, second},      // private, shared, another allocation
                           {first, first + 1, first}, // other offsets
                           {first, first, first},     // direct access
                           {second, second, second},  // direct access, second allocation
                           {first + COUNT, first + COUNT, first + COUNT}};
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
        float *x = choices[c][rank % 3];
        for (int i = 0; i < COUNT; i++) x[i] = (float)(i + rank);
        uint64_t moved = pg_moved_bytes(group);
        if (pg_run(group, pg_all_reduce(x, COUNT, PG_F32, PG_SUM), &outcome->error) != 0)
            problem(outcome, "%s", outcome->error.message);
        moved = pg_moved_bytes(group) - moved;
        for (int i = 0; i < COUNT; i++)
            if (x[i] != (float)(world * i + world * (world - 1) / 2))
                problem(outcome, "choice %zu: element %d is %g", c, i, (double)x[i]);
        // Through mailboxes, a rank reads all other mailboxes; with direct access, it reads and
        // writes its slice.
        size_t slice = COUNT / 16 / 3 * 16, direct = rank < 2 ? slice : COUNT - 2 * slice;
        size_t want = c < 2 ? 2 * COUNT : 4 * direct;
        if (!strcmp(pg_backend(group), "shm") && moved != want * sizeof(float))
            problem(outcome, "choice %zu: moved %zu bytes", c, (size_t)moved);
    }
    free(own);
}

static void test_mixed_memory(Mode mode) {
    play_ranks(mode, 3, 60, mixed_memory, NULL, NULL);
}

static void zeroed_memory(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    for (size_t bytes = 0; bytes < 6000; bytes += 1999) {
        unsigned char *memory = pg_shared_alloc(group, bytes, &outcome->error);
        if (!memory || (uintptr_t)memory % 4096 != 0) {
            problem(outcome, "%zu bytes at %p", bytes, (void *)memory);
            return;
        }
        for (size_t i = 0; i < bytes; i++)
            if (memory[i] != 0) problem(outcome, "byte %zu is not 0", i);
        memset(memory, 0xff, bytes);
    }
}

static void test_zeroed_memory(Mode mode) {
    play_ranks(mode, 3, 60, zeroed_memory, NULL, NULL);
}

// ---- order, queue and observers -------------------------------------------------------------

// Observations of this process's ranks: all ranks, if they are threads.
typedef struct Seen {
    pthread_mutex_t mutex;
    uint64_t calls, closed;
    uint64_t longest_turn_ns; // of the communication threads (base/cores.h); 0: unknown
} Seen;

// The calling thread's time slice in nanoseconds; 0 if the kernel does not report it. attributes is
// the kernel's struct sched_attr, whose sched_runtime is at byte 24.
static uint64_t turn_ns(void) {
    uint64_t attributes[6] = {0};
    return syscall(SYS_sched_getattr, 0, attributes, sizeof attributes, 0) == 0 ? attributes[3] : 0;
}

static void observe(void *context, uint64_t sequence, const char *name) {
    Seen *seen = context;
    pthread_mutex_lock(&seen->mutex);
    bool right = strcmp(name, sequence == 101 ? "broadcast" : "all_reduce") == 0;
    seen->calls += right && sequence >= 1 && sequence <= 101;
    uint64_t turn = sequence <= 100 ? turn_ns() : 0; // call 101 runs in the caller's thread
    if (turn > seen->longest_turn_ns) seen->longest_turn_ns = turn;
    pthread_mutex_unlock(&seen->mutex);
}

static void close_seen(void *context) {
    Seen *seen = context;
    pthread_mutex_lock(&seen->mutex);
    seen->closed++;
    pthread_mutex_unlock(&seen->mutex);
}

// Starts 100 calls, runs another one, and waits for the 100 from the last to the first.
static void queue(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Seen *seen = (Seen *)argument;
    enum { STARTED = 100, COUNT = 257 };
    PgWork *works[STARTED];
    float *x = memory_zalloc((STARTED + 1) * COUNT * sizeof *x);
    uint64_t last_begin = UINT64_MAX, begin, end;
    for (int i = 0; i < STARTED * COUNT; i++) x[i] = (float)(i + pg_rank(group));
    for (int w = 0; w < STARTED; w++)
        works[w] =
            pg_start(group, pg_all_reduce(x + w * COUNT, COUNT, PG_F32, PG_SUM), &outcome->error);
    float last = (float)pg_rank(group);
    if (pg_run(group, pg_broadcast(&last, 1, PG_F32, 0), &outcome->error) != 0 || last != 0)
        problem(outcome, "broadcast after the queue: %s", outcome->error.message);
    uint64_t run_end = clock_ns();
    for (int w = STARTED - 1; w >= 0; w--) {
        if (pg_work_wait(works[w], &begin, &end, &outcome->error) != 0)
            problem(outcome, "work %d", w);
        if (end > run_end) problem(outcome, "pg_run overtook work %d", w);
        if (end > last_begin) problem(outcome, "work %d ran after its successor began", w);
        last_begin = begin;
    }
    int world = pg_size(group);
    for (int i = 0; i < STARTED * COUNT; i++)
        if (x[i] != (float)(world * i + world * (world - 1) / 2)) problem(outcome, "element %d", i);
    if (pg_sequence(group) != STARTED + 1)
        problem(outcome, "%ju calls", (uintmax_t)pg_sequence(group));
    pthread_mutex_lock(&seen->mutex);
    if (seen->calls < STARTED + 1)
        problem(outcome, "observed %ju collectives", (uintmax_t)seen->calls);
    pthread_mutex_unlock(&seen->mutex);
    free(x);
}

static void test_queue(Mode mode) {
    Seen seen = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    const PgOptions options = {.timeout_s = 60, .observer = {&seen, observe, close_seen}};
    play_ranks_with(mode, 3, &options, queue, &seen, NULL);
    if (mode != AS_THREADS) return; // each process has its own copy of `seen`
    assert_int_equal(seen.calls, 3 * 101);
    assert_int_equal(seen.closed, 3);
    assert_true(seen.longest_turn_ns <= 100000); // backward's thread gets the core soon
}

// A trace is set and removed while the communication thread is working.
static void trace_later(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    enum { ROUNDS = 20 };
    Trace *trace = trace_open(pg_rank(group), "rank");
    int track = trace_track(trace, "comm", ROUNDS);
    float x[ROUNDS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        PgWork *work = pg_start(group, pg_all_reduce(&x[i], 1, PG_F32, PG_SUM), &outcome->error);
        pg_set_trace(group, i % 2 ? NULL : trace, track);
        if (!work || pg_work_wait(work, NULL, NULL, &outcome->error) != 0)
            problem(outcome, "%s", outcome->error.message);
    }
    pg_set_trace(group, NULL, 0);
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "no barrier");
    trace_close(trace);
}

static void test_trace_later(Mode mode) {
    play_ranks(mode, 2, 60, trace_later, NULL, NULL);
}

// Works without a wait: pg_close completes them.
static void forgotten(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    float *x = pg_shared_alloc(group, sizeof *x, &outcome->error);
    for (int w = 0; w < 50; w++)
        if (!pg_start(group, pg_all_reduce(x, 1, PG_F32, PG_SUM), &outcome->error))
            problem(outcome, "%s", outcome->error.message);
}

static void test_forgotten(Mode mode) {
    play_ranks(mode, 3, 60, forgotten, NULL, NULL);
}

// ---- sends and receives ---------------------------------------------------------------------

// Sends around the ring; rank 0 sends first, so that full channels cannot deadlock.
static void ring(ProcessGroup *group, size_t count, Outcome *outcome) {
    int rank = pg_rank(group), world = pg_size(group);
    int next = (rank + 1) % world, before = (rank + world - 1) % world;
    double *out = malloc(count * sizeof *out + 1), *in = malloc(count * sizeof *in + 1);
    for (size_t i = 0; i < count; i++) out[i] = element(PG_F64, world, rank, i) + 0.5;
    Collective send = pg_send(out, count, PG_F64, next);
    Collective receive = pg_recv(in, count, PG_F64, before);
    const uint64_t moved = pg_moved_bytes(group);
    if (pg_run(group, rank == 0 ? send : receive, &outcome->error) != 0 ||
        pg_run(group, rank == 0 ? receive : send, &outcome->error) != 0)
        problem(outcome, "ring of %zu: %s", count, outcome->error.message);
    else
        for (size_t i = 0; i < count; i++)
            if (in[i] != element(PG_F64, world, before, i) + 0.5)
                problem(outcome, "ring of %zu: element %zu", count, i);
    if (pg_moved_bytes(group) - moved != 2 * count * sizeof *in)
        problem(outcome, "ring of %zu: moved %ju", count, (uintmax_t)pg_moved_bytes(group));
    free(in);
    free(out);
}

static void pairs(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    size_t counts[] = {0, 1, 8191, 8192, 8193, 100003};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) ring(group, counts[n], outcome);
    // Two ranks exchange messages; the others wait in the barrier.
    for (int i = 0; i < 300; i++) {
        int32_t ball = i;
        if (pg_rank(group) == 0) pg_run(group, pg_send(&ball, 1, PG_I32, 1), &outcome->error);
        if (pg_rank(group) == 1) pg_run(group, pg_recv(&ball, 1, PG_I32, 0), &outcome->error);
        if (ball != i) problem(outcome, "ball %d came as %d", i, ball);
    }
    if (pg_run(group, pg_barrier(), &outcome->error) != 0) problem(outcome, "barrier");
    if (pg_sequence(group) != 1) problem(outcome, "pairs were counted as collectives");
}

static void test_pairs(Mode mode) {
    for (int world = 2; world <= largest_world(mode); world++)
        play_ranks(mode, world, 60, pairs, NULL, NULL);
}

// ---- the program --------------------------------------------------------------------------

static Mode mode_of(void **state) {
    return *(const Mode *)*state;
}

#define TEST(NAME)                         \
    static void run_##NAME(void **state) { \
        test_##NAME(mode_of(state));       \
    }

TEST(every_collective)
TEST(every_type)
TEST(fast_sums)
TEST(rank_order)
TEST(pieces_in_place)
TEST(sum_into_the_first_piece)
TEST(special_values)
TEST(mixed_memory)
TEST(zeroed_memory)
TEST(queue)
TEST(trace_later)
TEST(forgotten)
TEST(pairs)

int main(int argc, char **argv) {
    Mode threads = AS_THREADS, processes = AS_PROCESSES, mpi = AS_MPI;
    Mode *modes[] = {&processes, &threads, &mpi};
    const bool over_mpi = argc > 1 && strcmp(argv[1], "mpi") == 0;
    int failed = 0;
    if (over_mpi) join_mpi();
    for (int m = over_mpi ? 2 : UNDER_TSAN; m < (over_mpi ? 3 : 2); m++) {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(run_every_collective, modes[m]),
            cmocka_unit_test_prestate(run_every_type, modes[m]),
            cmocka_unit_test_prestate(run_fast_sums, modes[m]),
            cmocka_unit_test_prestate(run_rank_order, modes[m]),
            cmocka_unit_test_prestate(run_pieces_in_place, modes[m]),
            cmocka_unit_test_prestate(run_sum_into_the_first_piece, modes[m]),
            cmocka_unit_test_prestate(run_special_values, modes[m]),
            cmocka_unit_test_prestate(run_mixed_memory, modes[m]),
            cmocka_unit_test_prestate(run_zeroed_memory, modes[m]),
            cmocka_unit_test_prestate(run_queue, modes[m]),
            cmocka_unit_test_prestate(run_trace_later, modes[m]),
            cmocka_unit_test_prestate(run_forgotten, modes[m]),
            cmocka_unit_test_prestate(run_pairs, modes[m])};
        failed += cmocka_run_group_tests_name(mode_names[*modes[m]], tests, NULL, NULL);
    }
    return failed != 0;
}
