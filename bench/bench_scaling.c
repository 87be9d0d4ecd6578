/* bench_scaling.c: how much faster N devices are than one, under DistributedDataParallel.
 *
 * Every round times one step of the whole batch by rank 0 alone (the others wait at a barrier) and
 * then one step of it by all ranks together, each on its share: both sides see the same machine at
 * nearly the same moment. Each round also times a matrix product by one rank and by all at once; if
 * they cannot run side by side at full speed (a busy or smaller machine), no training step could,
 * so the figure to judge is `speedup` beside `cores`, the speedup of sgemm itself.
 *
 * Ranks are threads, or processes under ddprun:
 *     bench_scaling                                      two ranks as threads
 *     ddprun --nproc-per-node 2 bench_scaling            two ranks as processes
 */
#include <pthread.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "ddp/rendezvous/init.h"

enum { PROBE = 1024, WARMUP = 1, MAX_RANKS = 64 };
static const double TIMEOUT_S = 300;

typedef struct Settings {
    const char *model;
    size_t global_batch, rounds;
    int world;
} Settings;

typedef struct Rank {
    const Settings *settings;
    ProcessGroup *group;
    pthread_t thread;
} Rank;

static void barrier(ProcessGroup *group) {
    Error err = {0};
    must_do(pg_run(group, pg_barrier(), &err), &err);
}

// Takes the longest time of all ranks, because a step is over when the last rank is done.
static double slowest(ProcessGroup *group, double seconds) {
    Error err = {0};
    must_do(pg_run(group, pg_all_reduce(&seconds, 1, PG_F64, PG_MAX), &err), &err);
    return seconds;
}

static double probe_seconds(const Kernels *kernels, float *memory) {
    size_t square = (size_t)PROBE * PROBE;
    uint64_t start = clock_ns();
    for (int i = 0; i < 8; i++)
        kernels->matrix->matmul((Compute){PRECISION_F32, NULL},
                                (MatmulShape){false, false, PROBE, PROBE, PROBE}, memory,
                                memory + square, memory + 2 * square, false);
    return (double)(clock_ns() - start) / 1e9;
}

typedef struct Times {                // seconds of each round, on rank 0
    double *single, *all;             // [rounds] of a step: by one rank, and by all together
    double *probe_single, *probe_all; // [rounds] of the matrix products
} Times;

static void run_round(const Rank *rank, Workload *single, Workload *share, float *probe, Times *t,
                      size_t i) {
    ProcessGroup *group = rank->group;
    const Kernels *kernels = share->device->kernels;
    bool first = pg_rank(group) == 0;
    barrier(group);
    if (first) t->single[i] = workload_step(single);
    barrier(group);
    t->all[i] = slowest(group, workload_step(share));
    barrier(group);
    if (first) t->probe_single[i] = probe_seconds(kernels, probe);
    barrier(group);
    t->probe_all[i] = slowest(group, probe_seconds(kernels, probe));
}

static void report(const Settings *s, const Kernels *kernels, Times *t, const char *backend,
                   int world) {
    size_t n = s->rounds;
    double *ratios = memory_zalloc(n * sizeof *ratios);
    for (size_t i = 0; i < n; i++) ratios[i] = t->single[i] / t->all[i];
    double speedup = bench_median(ratios, n), low = bench_quantile(ratios, n, 0.25),
           high = bench_quantile(ratios, n, 0.75);
    for (size_t i = 0; i < n; i++) ratios[i] = world * t->probe_single[i] / t->probe_all[i];
    double cores = bench_median(ratios, n);
    char blas[160];
    kernels->describe(blas, sizeof blas);
    printf("blas=\"%s\"\n", blas);
    printf("model=%s global_batch=%zu world=%d backend=%s rounds=%zu\n", s->model, s->global_batch,
           world, backend, n);
    printf("single_ms_p50=%.2f ddp_ms_p50=%.2f speedup=%.3f speedup_p25=%.3f speedup_p75=%.3f "
           "cores=%.3f probe_ms_p50=%.2f probe_all_ms_p50=%.2f\n",
           bench_median(t->single, n) * 1e3, bench_median(t->all, n) * 1e3, speedup, low, high,
           cores, bench_median(t->probe_single, n) * 1e3, bench_median(t->probe_all, n) * 1e3);
    free(ratios);
}

static void *run_rank(void *argument) {
    Rank *rank = argument;
    const Settings *s = rank->settings;
    int world = pg_size(rank->group), me = pg_rank(rank->group);
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", me);
    Device *device = must_get(device_open(name, &err), &err);
    ModelConfig model = {s->model, "1024,1024", {3, 32, 32}, 10, .seed = 1};
    Workload share = workload_open(&model, device, s->global_batch / (size_t)world, rank->group);
    Workload single = {0};
    if (me == 0) single = workload_open(&model, device, s->global_batch, NULL);
    float *probe = memory_zalloc(3 * (size_t)PROBE * PROBE * sizeof *probe);
    size_t rounds = s->rounds + WARMUP;
    double *times = memory_zalloc(4 * rounds * sizeof *times);
    Times t = {times, times + rounds, times + 2 * rounds, times + 3 * rounds};
    for (size_t i = 0; i < rounds; i++) run_round(rank, &single, &share, probe, &t, i);
    Times timed = {t.single + WARMUP, t.all + WARMUP, t.probe_single + WARMUP,
                   t.probe_all + WARMUP};
    if (me == 0) report(s, device->kernels, &timed, pg_backend(rank->group), world);
    free(times);
    free(probe);
    if (me == 0) workload_close(&single);
    workload_close(&share);
    pg_close(rank->group);
    device_close(device);
    return NULL;
}

static void run_threads(const Settings *s) {
    Error err = {0};
    Rank ranks[MAX_RANKS];
    ProcessGroup *groups[MAX_RANKS];
    must_do(init_thread_groups(s->world, TIMEOUT_S, groups, &err), &err);
    for (int r = 0; r < s->world; r++) {
        ranks[r] = (Rank){.settings = s, .group = groups[r]};
        int failed = pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
        CHECK(failed == 0, "cannot start the thread of rank %d", r);
    }
    for (int r = 0; r < s->world; r++) pthread_join(ranks[r].thread, NULL);
}

int main(int argc, char **argv) {
    Settings s = {.model = "resnet20", .global_batch = 256, .rounds = 3, .world = 2};
    Options options = {.program = "bench_scaling",
                       .summary = "Compares N devices under DistributedDataParallel with one."};
    options_add_choice(&options, "model", &s.model, model_names(), "");
    options_add_count(&options, "global-batch", &s.global_batch, 1, 1 << 20, "rows");
    options_add_count(&options, "rounds", &s.rounds, 1, 1000, "timed rounds");
    options_add_int(&options, "world", &s.world, 1, MAX_RANKS, "ranks, when they are threads");
    Error err = {0};
    Rendezvous me;
    must_do(options_parse(&options, argc, argv, &err), &err);
    must_do(init_from_env(&me, true, &err), &err);
    int world = me.world_size > 1 ? me.world_size : s.world;
    if (s.global_batch % (size_t)world != 0)
        must_do(error_set(&err, STATUS_USAGE, "--global-batch %zu does not divide among %d ranks",
                          s.global_batch, world),
                &err);
    if (me.world_size == 1) {
        run_threads(&s);
        return STATUS_OK;
    }
    ProcessGroup *group = must_get(init_process_group("auto", &me, NULL, TIMEOUT_S, &err), &err);
    run_rank(&(Rank){.settings = &s, .group = group});
    return STATUS_OK;
}
