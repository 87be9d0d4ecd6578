/* bench_allreduce.c: how fast the shm backend adds up buffers of all ranks.
 *
 * For each size: warm up, then per iteration fill the shared buffer, meet, time one all_reduce on
 * every rank, and check every element of that very result (as nccl-tests does). An iteration's time
 * is the slowest rank's. algbw = bytes / time; busbw = algbw 2 (W - 1) / W, the traffic that no
 * algorithm can avoid, comparable between world sizes.
 *
 * The last lines hold the result against the same machine's limit: the plain sum, in which each
 * rank adds up its share of W buffers of ordinary memory and writes it to all W, with the same
 * loop, and nobody waits for anybody. The two are measured in turns, in the same run.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "ddp/group/shm/internal.h"
#include "ddp/rendezvous/init.h"

enum {
    PLAIN_BYTES = 25 * 1024 * 1024, // DDP's default bucket
    WARM_UP = 3,
    LEAST = 20,
    MOST = 1000,
    HUGE_PAGE_BYTES = 2 * 1024 * 1024,
};

typedef struct Settings {
    int world;
    size_t min_bytes, max_bytes;
    size_t iterations; // 0: by size
    bool threads, processes;
    double timeout_s;
} Settings;

typedef struct Bench { // one rank
    const Settings *settings;
    ProcessGroup *group;
    int rank, world;
    float *buffer; // shared, [largest size]
    double *times; // us per iteration; after sort_slowest() the slowest rank's, sorted
    int64_t wrong; // elements, in all iterations so far
    Error error;
} Bench;

// ---- filling and checking -------------------------------------------------------------------

// Exact in F32: at most 1024 * 64 * 65 / 2 when summed.
static float base_value(size_t i, size_t iteration) {
    return (float)((i * 7 + iteration) % 1024);
}

static void fill_buffer(float *x, size_t count, int rank, size_t iteration) {
    for (size_t i = 0; i < count; i++) x[i] = base_value(i, iteration) * (float)(rank + 1);
}

static int64_t count_wrong(const float *x, size_t count, int world, size_t iteration) {
    int64_t wrong = 0;
    float factor = (float)(world * (world + 1) / 2);
    for (size_t i = 0; i < count; i++) wrong += !(x[i] == base_value(i, iteration) * factor);
    return wrong;
}

// ---- one size -------------------------------------------------------------------------------

static size_t iterations_for(const Settings *settings, size_t bytes) {
    if (settings->iterations) return settings->iterations;
    size_t n = (size_t)64 * 1024 * 1024 / bytes;
    return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

static double elapsed_us(uint64_t since_ns) {
    return (double)(clock_ns() - since_ns) * 1e-3;
}

// One all_reduce of `count` elements: its time goes to *us.
static int time_all_reduce(Bench *bench, size_t count, size_t iteration, double *us) {
    fill_buffer(bench->buffer, count, bench->rank, iteration);
    if (pg_run(bench->group, pg_barrier(), &bench->error)) return -1;
    uint64_t begin = clock_ns();
    if (pg_run(bench->group, pg_all_reduce(bench->buffer, count, PG_F32, PG_SUM), &bench->error))
        return -1;
    *us = elapsed_us(begin);
    bench->wrong += count_wrong(bench->buffer, count, bench->world, iteration);
    return 0;
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Takes the slowest rank's time of each iteration, and sorts these times.
static int sort_slowest(Bench *bench, double *times, size_t n) {
    if (pg_run(bench->group, pg_all_reduce(times, n, PG_F64, PG_MAX), &bench->error)) return -1;
    qsort(times, n, sizeof *times, compare_double);
    return 0;
}

static double percentile(const double *sorted, size_t n, size_t percent) {
    size_t i = n * percent / 100;
    return sorted[i < n ? i : n - 1];
}

static void print_row(const Bench *bench, size_t bytes, size_t n, int64_t wrong) {
    double p50 = percentile(bench->times, n, 50);
    double algbw = (double)bytes / p50 * 1e-3; // bytes/us = MB/s
    char busbw[32] = "n/a";
    if (bench->world > 1)
        snprintf(busbw, sizeof busbw, "%.2f", algbw * 2 * (bench->world - 1) / bench->world);
    printf("%12zu %12zu %12.2f %12.2f %12.2f %12.2f %12s %8jd\n", bytes, bytes / sizeof(float), p50,
           bench->times[0], percentile(bench->times, n, 99), algbw, busbw, (intmax_t)wrong);
    fflush(stdout);
}

static int measure_size(Bench *bench, size_t bytes) {
    size_t count = bytes / sizeof(float), n = iterations_for(bench->settings, bytes);
    int64_t before = bench->wrong;
    double warm;
    for (size_t i = 0; i < WARM_UP; i++)
        if (time_all_reduce(bench, count, i, &warm)) return -1;
    for (size_t i = 0; i < n; i++)
        if (time_all_reduce(bench, count, i, &bench->times[i])) return -1;
    int64_t wrong = bench->wrong - before;
    if (sort_slowest(bench, bench->times, n) ||
        pg_run(bench->group, pg_all_reduce(&wrong, 1, PG_I64, PG_SUM), &bench->error))
        return -1;
    bench->wrong = before + wrong; // now the same on all ranks
    if (bench->rank == 0) print_row(bench, bytes, n, wrong);
    return 0;
}

// ---- against the plain sum ------------------------------------------------------------------

// This rank's share of W buffers in ordinary memory, huge pages asked for as the backend does.
static void alloc_plain(const Bench *bench, size_t bytes, void *buffers[PG_SHM_MAX_WORLD]) {
    for (int r = 0; r < bench->world; r++) {
        size_t whole = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        buffers[r] = aligned_alloc(HUGE_PAGE_BYTES, whole);
        CHECK(buffers[r], "no memory for %zu bytes", whole);
        madvise(buffers[r], whole, MADV_HUGEPAGE);
    }
}

static int time_plain_sum(Bench *bench, void *const *buffers, size_t count, size_t iteration,
                          double *us) {
    for (int r = 0; r < bench->world; r++) fill_buffer(buffers[r], count, r, iteration);
    if (pg_run(bench->group, pg_barrier(), &bench->error)) return -1;
    uint64_t begin = clock_ns();
    shm_reduce(PG_F32, PG_SUM, buffers, bench->world, buffers, bench->world, count);
    *us = elapsed_us(begin);
    for (int r = 0; r < bench->world; r++)
        bench->wrong += count_wrong(buffers[r], count, bench->world, iteration);
    return 0;
}

static int measure_against_plain(Bench *bench) {
    size_t count = PLAIN_BYTES / sizeof(float), share = count / (size_t)bench->world;
    size_t n = bench->settings->iterations ? bench->settings->iterations : LEAST;
    double *plain = memory_zalloc((n + WARM_UP) * sizeof *plain), *ours = bench->times;
    void *buffers[PG_SHM_MAX_WORLD];
    int status = 0;
    alloc_plain(bench, share * sizeof(float), buffers);
    for (size_t i = 0; i < n + WARM_UP && !status; i++) {
        size_t slot = i < WARM_UP ? 0 : i - WARM_UP; // overwritten by the first one that counts
        status = time_all_reduce(bench, count, i, &ours[slot]);
        if (!status) status = time_plain_sum(bench, buffers, share, i, &plain[slot]);
    }
    if (!status) status = sort_slowest(bench, ours, n);
    if (!status) status = sort_slowest(bench, plain, n);
    if (!status && bench->rank == 0) {
        double a = percentile(ours, n, 50), b = percentile(plain, n, 50);
        printf("all_reduce_us_p50=%.1f all_reduce_us_min=%.1f plain_sum_us_p50=%.1f "
               "plain_sum_us_min=%.1f iterations=%zu\n",
               a, ours[0], b, plain[0], n);
        printf("ratio_to_plain_sum=%.2f bytes=%d\n", b / a, PLAIN_BYTES);
    }
    for (int r = 0; r < bench->world; r++) free(buffers[r]);
    free(plain);
    return status;
}

// ---- ranks ----------------------------------------------------------------------------------

static int run_sizes(Bench *bench) {
    const Settings *s = bench->settings;
    if (bench->rank == 0)
        printf("# all_reduce F32 sum world=%d ranks=%s backend=%s\n%12s %12s %12s %12s %12s %12s "
               "%12s %8s\n",
               bench->world, s->threads ? "threads" : "processes", pg_backend(bench->group),
               "bytes", "count", "time_us_p50", "time_us_min", "time_us_p99", "algbw_GB/s",
               "busbw_GB/s", "wrong");
    for (size_t bytes = s->min_bytes; bytes < s->max_bytes; bytes *= 4)
        if (measure_size(bench, bytes / sizeof(float) * sizeof(float))) return -1;
    if (measure_size(bench, s->max_bytes / sizeof(float) * sizeof(float))) return -1;
    return measure_against_plain(bench);
}

// Plays one rank to the end, closes the group, and returns the exit status.
static int run_rank(const Settings *settings, ProcessGroup *group) {
    Bench bench = {
        .settings = settings, .group = group, .rank = pg_rank(group), .world = pg_size(group)};
    size_t largest = settings->max_bytes > PLAIN_BYTES ? settings->max_bytes : PLAIN_BYTES;
    size_t most = settings->iterations > MOST ? settings->iterations : MOST;
    bench.times = memory_zalloc(most * sizeof *bench.times);
    bench.buffer = pg_shared_alloc(group, largest, &bench.error);
    int status = bench.buffer ? run_sizes(&bench) : -1;
    if (status)
        fprintf(stderr, "error: %s\n", bench.error.message);
    else if (bench.wrong)
        fprintf(stderr, "error: rank %d found %jd wrong elements\n", bench.rank,
                (intmax_t)bench.wrong);
    pg_close(group);
    free(bench.times);
    return status || bench.wrong ? STATUS_FAILED : STATUS_OK;
}

typedef struct RankThread {
    const Settings *settings;
    ProcessGroup *group;
    pthread_t thread;
    int status;
} RankThread;

static void *rank_thread(void *context) {
    RankThread *rank = context;
    rank->status = run_rank(rank->settings, rank->group);
    return NULL;
}

static int run_threads(const Settings *settings, Error *err) {
    ProcessGroup *groups[PG_SHM_MAX_WORLD];
    RankThread ranks[PG_SHM_MAX_WORLD];
    int status = STATUS_OK;
    if (pg_shm_threads(settings->world, &(PgOptions){.timeout_s = settings->timeout_s}, groups,
                       err))
        return err->status;
    for (int r = 0; r < settings->world; r++) {
        ranks[r] = (RankThread){.settings = settings, .group = groups[r]};
        int failed = pthread_create(&ranks[r].thread, NULL, rank_thread, &ranks[r]);
        CHECK(!failed, "pthread_create: %s", strerror(failed));
    }
    for (int r = 0; r < settings->world; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].status) status = ranks[r].status;
    }
    return status;
}

static int run_process(const Settings *settings, PgShmSegment *segment, int rank) {
    Error error = {0};
    ProcessGroup *group =
        pg_shm_open(segment, rank, &(PgOptions){.timeout_s = settings->timeout_s}, &error);
    if (group) return run_rank(settings, group);
    fprintf(stderr, "error: %s\n", error.message);
    return error.status;
}

static int run_child(const Settings *settings, const char *address, int rank) {
    Error error = {0};
    PgShmSegment *segment = pg_shm_attach(address, settings->world, &error);
    if (!segment) error_exit(&error);
    return run_process(settings, segment, rank);
}

// This process is rank 0; the others are its children, forked before any thread exists.
static int run_processes(const Settings *settings, Error *err) {
    PgShmSegment *segment;
    char address[PG_SHM_ADDRESS_MAX];
    if (pg_shm_create(settings->world, &segment, address, err)) return err->status;
    for (int r = 1; r < settings->world; r++) {
        pid_t child = fork();
        CHECK(child >= 0, "cannot fork rank %d", r);
        if (child == 0) _exit(run_child(settings, address, r));
    }
    int status = run_process(settings, segment, 0), child_status;
    while (wait(&child_status) > 0)
        if (!WIFEXITED(child_status) || WEXITSTATUS(child_status)) status = STATUS_FAILED;
    return status;
}

// Under ddprun or torchrun, this process is one rank.
static int run_launched(const Settings *settings, Error *err) {
    Rendezvous rendezvous;
    if (init_from_env(&rendezvous, false, err)) return err->status;
    ProcessGroup *group = init_process_group("auto", &rendezvous, NULL, settings->timeout_s, err);
    return group ? run_rank(settings, group) : err->status;
}

static int parse_options(Settings *s, int argc, char **argv, Error *err) {
    Options *options = memory_zalloc(sizeof *options);
    options->program = "bench_allreduce";
    options->summary = "Measures all_reduce on shared memory, and checks every result.\n"
                       "Example: bench_allreduce --world 4 --min-bytes 4096 --max-bytes 1048576";
    double most = (double)((size_t)1 << 34);
    options_add_int(options, "world", &s->world, 1, PG_SHM_MAX_WORLD,
                    "ranks (default 2; under ddprun, its world)");
    options_add_count(options, "min-bytes", &s->min_bytes, 4, most,
                      "smallest buffer; the next ones are 4 times larger");
    options_add_count(options, "max-bytes", &s->max_bytes, 4, most, "largest buffer");
    options_add_count(options, "iterations", &s->iterations, 0, 1e6,
                      "timed all_reduces per size (0: 20 to 1000, by size)");
    options_add_flag(options, "processes", &s->processes, "ranks are processes (the default)");
    options_add_flag(options, "threads", &s->threads, "ranks are threads of one process");
    options_add_float(options, "timeout", &s->timeout_s, 0.1, 86400, "deadline of each collective");
    options_metavar(options, "SECONDS");
    int status = options_parse(options, argc, argv, err);
    free(options);
    if (!status && s->threads && s->processes)
        return error_set(err, STATUS_USAGE, "--threads and --processes exclude each other");
    if (!status && s->min_bytes > s->max_bytes)
        return error_set(err, STATUS_USAGE, "--min-bytes %zu is more than --max-bytes %zu",
                         s->min_bytes, s->max_bytes);
    return status;
}

int main(int argc, char **argv) {
    Settings settings = {.world = 2, .min_bytes = 4096, .max_bytes = PLAIN_BYTES, .timeout_s = 30};
    Error error = {0};
    if (parse_options(&settings, argc, argv, &error)) error_exit(&error);
    int status = getenv("RANK")     ? run_launched(&settings, &error)
                 : settings.threads ? run_threads(&settings, &error)
                                    : run_processes(&settings, &error);
    if (error.status) error_exit(&error);
    return status;
}
