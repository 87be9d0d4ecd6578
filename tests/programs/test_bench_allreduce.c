/* test_bench_allreduce.c: bench_allreduce counts wrong elements of an all_reduce and of the plain
 * sum beside it, ends on every rank if any of its collectives fails, and works without a plain sum.
 */
#include <stdarg.h>
#include <stddef.h>

#include <setjmp.h>

#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "bench/allreduce.h"
#include "ddp/group/reduce.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/group/shm/segment.h"
#include "tests/rigs/captured.h"
#include "tests/rigs/mapped_segments.h"

enum { WORLD = 2, MOST_BYTES = 1 << 20, COLLECTIVES_MAX = 300 };

// The fault of rank 1, in its call of a given number, from 1.
typedef enum Trouble { WRONG_SUM, WRONG_PLAIN_SUM, FAILURE, UNMAPPED } Trouble;
typedef struct Player {
    ProcessGroup *group;
    Trouble trouble;
    int calls_left, status; // calls until the fault; 0: done, or none
    pthread_t thread;
} Player;

static _Thread_local Player *me;
static _Thread_local int sums; // number of all_reduces of floats

static bool is_due(Trouble trouble) {
    return me && me->trouble == trouble && me->calls_left > 0 && --me->calls_left == 0;
}

int __real_pg_run(ProcessGroup *group, Collective collective, Error *err);
int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err);
void __real_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int count,
                                 void *const *targets, int target_count, size_t elements);
void __wrap_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int count,
                                 void *const *targets, int target_count, size_t elements);

PgShmSegment *__real_segment_open(int pid, int fd, size_t bytes, Error *err);
PgShmSegment *__wrap_segment_open(int pid, int fd, size_t bytes, Error *err);

PgShmSegment *__wrap_segment_open(int pid, int fd, size_t bytes, Error *err) {
    return is_due(UNMAPPED) ? NULL : __real_segment_open(pid, fd, bytes, err);
}

int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err) {
    if (is_due(FAILURE)) {
        const Error cause = {.status = STATUS_FAILED, .message = "the cable is pulled"};
        pg_abort(group, &cause);
    }
    const int status = __real_pg_run(group, collective, err);
    const bool is_sum = collective.kind == PG_ALL_REDUCE && collective.type == PG_F32;
    sums += is_sum;
    if (is_sum && is_due(WRONG_SUM)) *(float *)collective.receive += 1;
    return status;
}

void __wrap_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int count,
                                 void *const *targets, int target_count, size_t elements) {
    __real_reduce_in_rank_order(type, op, sources, count, targets, target_count, elements);
    const bool is_plain = sources == targets; // a group's reduction passes two different lists
    if (is_plain && is_due(WRONG_PLAIN_SUM)) *(float *)targets[1] += 1;
}

static void *play(void *context) {
    const AllReduceSettings settings = {.world = WORLD,
                                        .min_bytes = 4,
                                        .max_bytes = MOST_BYTES,
                                        .factor = 1024,
                                        .iterations = 1,
                                        .threads = true,
                                        .timeout_s = 30};
    me = context;
    me->status = allreduce_run_rank(&settings, me->group, NULL);
    return NULL;
}

// Returns whether rank 1's fault has occurred. *said: stderr, owned by the caller.
static bool run(Trouble trouble, int call, int status[WORLD], char **said) {
    ProcessGroup *groups[WORLD];
    Player players[WORLD];
    Error err = {0};
    assert_int_equal(pg_shm_threads(WORLD, &(PgOptions){.timeout_s = 30}, groups, &err), 0);
    Captured captured = captured_begin();
    for (int r = 0; r < WORLD; r++) {
        players[r] = (Player){groups[r], trouble, r == 1 ? call : 0, 0, 0};
        assert_int_equal(pthread_create(&players[r].thread, NULL, play, &players[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) {
        pthread_join(players[r].thread, NULL);
        status[r] = players[r].status;
    }
    *said = captured_end(&captured);
    assert_int_equal(mapped_segments(), 0);
    return players[1].calls_left == 0;
}

static void wrong_elements_are_counted(void **state) {
    (void)state;
    for (int trouble = WRONG_SUM; trouble <= WRONG_PLAIN_SUM; trouble++)
        for (int call = 1; call <= 3; call++) {
            int status[WORLD];
            char *said;
            assert_true(run((Trouble)trouble, call, status, &said));
            for (int r = 0; r < WORLD; r++) {
                char wanted[60];
                snprintf(wanted, sizeof wanted, "error: rank %d found 1 wrong element\n", r);
                assert_int_equal(status[r], STATUS_FAILED);
                if (!strstr(said, wanted)) fail_msg("no \"%s\" in \"%s\"", wanted, said);
            }
            free(said);
        }
}

// (The last 51 calls are barriers of the round trips.)
static void every_failure_ends_all_ranks(void **state) {
    (void)state;
    for (int call = 1;; call += call < 50 ? 1 : 15) {
        int status[WORLD];
        char *said;
        const bool failed = run(FAILURE, call, status, &said);
        for (int r = 0; r < WORLD; r++)
            assert_int_equal(status[r], failed ? STATUS_FAILED : STATUS_OK);
        if (failed && !strstr(said, "the cable is pulled")) fail_msg("call %d: \"%s\"", call, said);
        free(said);
        if (!failed) break;
        assert_true(call < COLLECTIVES_MAX);
    }
}

// A plain sum needs all ranks' memory: then no rank measures one.
static void one_rank_maps_no_memory(void **state) {
    (void)state;
    int status[WORLD];
    char *said;
    assert_true(run(UNMAPPED, 1, status, &said));
    for (int r = 0; r < WORLD; r++) assert_int_equal(status[r], STATUS_OK);
    assert_string_equal(said, "");
    free(said);
}

// At most 512 MiB in total and at most 1000 iterations, plus three for warm-up.
static void iterations_follow_from_the_size(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        int iterations;
    } cases[] = {{4, 1000}, {4 << 20, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const AllReduceSettings settings = {.world = 1,
                                            .min_bytes = cases[i].bytes,
                                            .max_bytes = cases[i].bytes,
                                            .factor = 2,
                                            .timeout_s = 30};
        ProcessGroup *group;
        Error err = {0};
        assert_int_equal(pg_shm_threads(1, &(PgOptions){.timeout_s = 30}, &group, &err), 0);
        sums = 0;
        assert_int_equal(allreduce_run_rank(&settings, group, NULL), STATUS_OK);
        assert_int_equal(sums, cases[i].iterations + 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_elements_are_counted),
        cmocka_unit_test(every_failure_ends_all_ranks),
        cmocka_unit_test(one_rank_maps_no_memory),
        cmocka_unit_test(iterations_follow_from_the_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
