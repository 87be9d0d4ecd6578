/* test_allreduce_table.c: bench_allreduce's table and the lines around it, from ranks whose clocks
 * are simulated: an iteration takes as long as its slowest rank, warm-up does not count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>

#include "bench/allreduce.h"
#include "ddp/group/shm/pg_shm.h"
#include "tests/rigs/bench_main.h"

enum { WORLD = 2, WARM_UP = 3, ITERATIONS = 4, SIZES = 3, MIB = 1 << 20, BLOCKS = 51, TRIPS = 200 };
static const size_t sizes[SIZES] = {4, 4096, MIB};

typedef struct Player {
    ProcessGroup *group;
    int status;
    pthread_t thread;
} Player;

static void *play(void *context) {
    const AllReduceSettings settings = {.world = WORLD,
                                        .min_bytes = 4,
                                        .max_bytes = MIB,
                                        .factor = 1024,
                                        .iterations = ITERATIONS,
                                        .threads = true,
                                        .timeout_s = 30};
    Player *player = context;
    readings = 0;
    player->status = allreduce_run_rank(&settings, player->group, NULL);
    return NULL;
}

static char *run(void) {
    ProcessGroup *groups[WORLD];
    Player players[WORLD];
    Error err = {0};
    assert_int_equal(pg_shm_threads(WORLD, &(PgOptions){.timeout_s = 30}, groups, &err), 0);
    Captured captured = captured_begin_of(stdout);
    for (int r = 0; r < WORLD; r++) {
        players[r] = (Player){.group = groups[r]};
        assert_int_equal(pthread_create(&players[r].thread, NULL, play, &players[r]), 0);
    }
    for (int r = 0; r < WORLD; r++) {
        pthread_join(players[r].thread, NULL);
        assert_int_equal(players[r].status, STATUS_OK);
    }
    return captured_end(&captured);
}

// The microseconds of a rank's measurement number i: two readings, on rank 0 after one more, which
// identifies the memory.
static double rank_us(int rank, size_t i) {
    return (double)tick_ns(2 * i + 1 + (rank == 0)) * 1e-3;
}

static double slowest_us(size_t i) {
    const double a = rank_us(0, i), b = rank_us(1, i);
    return a > b ? a : b;
}

// The times of a size, whose first measurement has number *next. From 1 MiB on, each all_reduce is
// followed by a plain sum.
static void time_size(size_t bytes, size_t *next, double *ours, double *bound) {
    for (size_t i = 0; i < WARM_UP + ITERATIONS; i++) {
        const double reduced = slowest_us((*next)++);
        const double summed = bytes < MIB ? 0 : slowest_us((*next)++);
        if (i < WARM_UP) continue;
        ours[i - WARM_UP] = reduced;
        bound[i - WARM_UP] = summed;
    }
}

static void must_have(const char *text, const char *line) {
    if (!strstr(text, line)) fail_msg("no %s in\n%s", line, text);
}

static void the_table_has_all_ranks_times(void **state) {
    (void)state;
    double p50[SIZES], last = 0;
    size_t next = 0;
    char *text = run(), line[200];
    must_have(text, "# all_reduce F32 sum world=2 ranks=threads backend=shm\n");
    for (int k = 0; k < SIZES; k++) {
        double ours[ITERATIONS], bound[ITERATIONS];
        time_size(sizes[k], &next, ours, bound);
        p50[k] = quantile_of(ours, ITERATIONS, 0.5);
        last = quantile_of(bound, ITERATIONS, 0.5);
        const double rate = (double)sizes[k] / p50[k] * 1e-3; // of two ranks both rates are equal
        int length = snprintf(line, sizeof line, "\n%11zu %10.2f %10.2f %10.2f %6.2f %6.2f",
                              sizes[k], quantile_of(ours, ITERATIONS, 0), p50[k],
                              quantile_of(ours, ITERATIONS, 0.99), rate, rate);
        if (last > 0)
            snprintf(line + length, sizeof line - (size_t)length, " %9.1f %5.2f     0\n", last,
                     last / p50[k]);
        else
            snprintf(line + length, sizeof line - (size_t)length, "         -     -     0\n");
        must_have(text, line);
    }
    snprintf(line, sizeof line,
             "\n# 1 MiB: %.2f of the bound; the least of all sizes: %.2f, of 1 MiB\n",
             last / p50[2], last / p50[2]);
    must_have(text, line);
    double trips[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) trips[i] = rank_us(0, next + i) / TRIPS;
    const double trip = quantile_of(trips, BLOCKS, 0.5);
    if (!strstr(text, "have not a core each")) {
        snprintf(line, sizeof line,
                 "\n# round trip of a cache line between two cores: p50_us=%.3f min_us=%.3f\n"
                 "# 4 B takes %.1f round trips, 4 KiB takes %.1f round trips\n",
                 trip, quantile_of(trips, BLOCKS, 0), p50[0] / trip, p50[1] / trip);
        must_have(text, line);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_table_has_all_ranks_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
