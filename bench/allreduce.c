/* allreduce.c: one rank's part in measuring all_reduce. See the header.
 *
 * For each size: warm up, then per iteration fill the buffer, meet, time one all_reduce on every
 * rank, and check every element of that very result (as nccl-tests does). An iteration's time is
 * the slowest rank's.
 *
 * The bound is measured in turns with it. It is the plain sum: each core adds up its share of W
 * buffers, which the other cores have filled just as they fill those of the all_reduce, and writes
 * the sum to all W, with the same loop. The bytes that cross between caches and memory are the
 * same; but without a group and without waiting. For it, and for a cache line's round
 * trip, the ranks map memory of their own with every backend, if they run on one host.
 */
#include "bench/allreduce.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/base/sync.h"
#include "ddp/group/reduce.h"
#include "ddp/group/shm/segment.h"

enum {
    WARM_UP = 3,
    LEAST = 10,
    MOST = 1000,
    BYTES_PER_SIZE = 512 * 1024 * 1024, // over all iterations of a size
    BOUND_FROM = 1024 * 1024,           // below, a sum takes less time than meeting does
    SMALL = 4096,                       // bytes up to which a time is printed in round trips
    ROUND_TRIPS = 200,                  // in a block that is timed,
    BLOCKS = 51,                        // number of blocks
    HUGE_PAGE_BYTES = 2 * 1024 * 1024,
    MOST_SIZES = 40, // more than 4 B to 16 GiB are, doubled each time
};

// Behind the blocks of the plain sum, in the memory that all ranks map.
typedef struct SharedTail {
    SyncWord words[2]; // are sent to and fro between ranks 0 and 1,
    int cores[2];      // which run there
    int64_t token;     // identifies the memory to the other ranks
} SharedTail;

typedef struct SizeResult {
    size_t bytes;
    double p50, bound; // us; bound 0: there is none
} SizeResult;

typedef struct Bench { // one rank
    const AllReduceSettings *settings;
    ProcessGroup *group;
    Device *device; // NULL: the buffer is in host memory
    int rank, world;
    float *buffer; // [largest size], the group's, shared or on the device
    float *host;   // [largest size], where it is filled and checked; the buffer, unless on a GPU
    double *ours;  // us per iteration; after take_slowest() the slowest rank's
    double *bound; // the same of the plain sum
    int64_t wrong; // elements, in all iterations so far
    int core;      // that this rank is bound to; -1: none
    // Memory that all ranks map: world blocks of block_bytes, then a SharedTail. Pages that are not
    // written take no memory. NULL: they have none, and why_alone says why.
    PgShmSegment *shared;
    size_t block_bytes;
    void **slices; // [world], of the blocks
    const char *why_alone;
    SizeResult results[MOST_SIZES];
    int sizes;
    Error error;
} Bench;

// ---- memory that all ranks map --------------------------------------------------------------

static SharedTail *shared_tail(const Bench *bench) {
    size_t blocks = bench->block_bytes * (size_t)bench->world;
    return (SharedTail *)(void *)(bench->shared->base + blocks);
}

// Rank 0 creates the memory and sends its name to the others. If one of them cannot map it, no
// rank uses it, which is no failure.
static int share_memory(Bench *bench) {
    Error unsaid = {0};
    int64_t place[3] = {0}; // process, descriptor, token; process 0: there is no memory
    size_t pages = (bench->settings->max_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
    bench->block_bytes = pages * HUGE_PAGE_BYTES;
    size_t bytes = bench->block_bytes * (size_t)bench->world + sizeof(SharedTail);
    if (bench->rank == 0 && (bench->shared = segment_create(bytes, &unsaid))) {
        place[0] = getpid();
        place[1] = bench->shared->fd;
        place[2] = shared_tail(bench)->token = (int64_t)clock_ns();
    }
    if (pg_run(bench->group, pg_broadcast(place, 3, PG_I64, 0), &bench->error) != 0) return -1;
    if (bench->rank != 0) // fails for process 0
        bench->shared = segment_open((int)place[0], (int)place[1], bytes, &unsaid);
    int64_t found = bench->shared && shared_tail(bench)->token == place[2];
    if (pg_run(bench->group, pg_all_reduce(&found, 1, PG_I64, PG_MIN), &bench->error) != 0)
        return -1;
    if (found) {
        if (bench->rank < 2) shared_tail(bench)->cores[bench->rank] = bench->core;
        return 0;
    }
    segment_release(bench->shared);
    bench->shared = NULL;
    bench->why_alone = "the ranks share no memory (several hosts?)";
    return 0;
}

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
    float factor = 0.5f * (float)(world * (world + 1)); // 1 + 2 + ... + world
    for (size_t i = 0; i < count; i++) wrong += !(x[i] == base_value(i, iteration) * factor);
    return wrong;
}

// ---- one iteration --------------------------------------------------------------------------

static int meet(Bench *bench) {
    return pg_run(bench->group, pg_barrier(), &bench->error);
}

static double elapsed_us(uint64_t since_ns) {
    return (double)(clock_ns() - since_ns) * 1e-3;
}

// Times one all_reduce of `count` elements: *us receives microseconds.
static int time_all_reduce(Bench *bench, size_t count, size_t iteration, double *us) {
    Device *device = bench->device;
    fill_buffer(bench->host, count, bench->rank, iteration);
    if (device) {
        device_copy(device, bench->buffer, NULL, bench->host, count * sizeof(float));
        device_synchronize(device);
    }
    if (meet(bench)) return -1;
    uint64_t begin = clock_ns();
    if (pg_run(bench->group, pg_all_reduce(bench->buffer, count, PG_F32, PG_SUM), &bench->error) !=
        0)
        return -1;
    if (device) device_synchronize(device);
    *us = elapsed_us(begin);
    if (device) device_copy(NULL, bench->host, device, bench->buffer, count * sizeof(float));
    bench->wrong += count_wrong(bench->host, count, bench->world, iteration);
    return 0;
}

// The plain sum of this rank's slice; slices are cut as the backend cuts them.
static int time_plain_sum(Bench *bench, size_t count, size_t iteration, double *us) {
    unsigned char *blocks = bench->shared->base;
    size_t rank = (size_t)bench->rank, world = (size_t)bench->world;
    size_t line = CACHE_LINE / sizeof(float), slice = count / line / world * line;
    size_t first = rank * slice, share = rank + 1 == world ? count - first : slice;
    for (size_t r = 0; r < world; r++)
        bench->slices[r] = (float *)(void *)(blocks + r * bench->block_bytes) + first;
    float *own = (float *)(void *)(blocks + rank * bench->block_bytes);
    fill_buffer(own, count, bench->rank, iteration);
    if (meet(bench)) return -1;
    uint64_t begin = clock_ns();
    reduce_in_rank_order(PG_F32, PG_SUM, bench->slices, bench->world, bench->slices, bench->world,
                         share);
    *us = elapsed_us(begin);
    if (meet(bench)) return -1;
    bench->wrong += count_wrong(own, count, bench->world, iteration);
    return 0;
}

// ---- one size -------------------------------------------------------------------------------

static size_t iterations_for(const AllReduceSettings *settings, size_t bytes) {
    if (settings->iterations) return settings->iterations;
    size_t n = BYTES_PER_SIZE / bytes;
    return n < LEAST ? LEAST : n > MOST ? MOST : n;
}

static int take_slowest(Bench *bench, double *times, size_t n) {
    return pg_run(bench->group, pg_all_reduce(times, n, PG_F64, PG_MAX), &bench->error);
}

static bool has_bound(const Bench *bench, size_t bytes) {
    return bench->shared && bytes >= BOUND_FROM;
}

// The times of this size, bench->ours [n], are sorted.
static void print_row(const Bench *bench, const SizeResult *result, size_t n, int64_t wrong) {
    double algbw = (double)result->bytes / result->p50 * 1e-3; // bytes/us = MB/s
    char busbw[32] = "-", bound_us[32] = "-", share[32] = "-";
    if (bench->world > 1)
        snprintf(busbw, sizeof busbw, "%.2f", algbw * 2 * (bench->world - 1) / bench->world);
    if (result->bound > 0) {
        snprintf(bound_us, sizeof bound_us, "%.1f", result->bound);
        snprintf(share, sizeof share, "%.2f", result->bound / result->p50);
    }
    printf("%11zu %10.2f %10.2f %10.2f %6.2f %6s %9s %5s %5jd\n", result->bytes, bench->ours[0],
           result->p50, bench_quantile(bench->ours, n, 0.99), algbw, busbw, bound_us, share,
           (intmax_t)wrong);
    fflush(stdout);
}

static int measure_size(Bench *bench, size_t bytes) {
    size_t count = bytes / sizeof(float), n = iterations_for(bench->settings, bytes);
    int64_t before = bench->wrong;
    int status = 0;
    for (size_t i = 0; i < n + WARM_UP && !status; i++) {
        size_t slot = i < WARM_UP ? 0 : i - WARM_UP; // overwritten by the first one that counts
        status = time_all_reduce(bench, count, i, &bench->ours[slot]);
        if (!status && has_bound(bench, bytes))
            status = time_plain_sum(bench, count, i, &bench->bound[slot]);
    }
    int64_t wrong = bench->wrong - before;
    if (status || take_slowest(bench, bench->ours, n) || take_slowest(bench, bench->bound, n) ||
        pg_run(bench->group, pg_all_reduce(&wrong, 1, PG_I64, PG_SUM), &bench->error) != 0)
        return -1;
    bench->wrong = before + wrong; // now the same on all ranks
    SizeResult *result = &bench->results[bench->sizes++];
    result->bytes = bytes;
    result->p50 = bench_median(bench->ours, n);
    if (has_bound(bench, bytes)) result->bound = bench_median(bench->bound, n);
    if (bench->rank == 0) print_row(bench, result, n, wrong);
    return 0;
}

// ---- a cache line's way ---------------------------------------------------------------------

// Spins for as long as a round trip may take, then yields: the other rank is late or has no core.
static int await_word(SyncWord *word, uint32_t target, double timeout_s) {
    for (int turn = 0; turn < 1000; turn++)
        if (sync_load(word) == target) return 0;
    uint64_t deadline = clock_ns_after(timeout_s);
    return sync_wait(word, target, NULL, deadline, SYNC_SPINS) == SYNC_DONE ? 0 : -1;
}

// Ranks 0 and 1 send a word to and fro: the time of one way and back, as rank 0 sees it.
static int time_round_trip(Bench *bench, double *us) {
    SyncWord *mine = &shared_tail(bench)->words[bench->rank != 0];
    SyncWord *theirs = &shared_tail(bench)->words[bench->rank == 0];
    uint32_t last = sync_load(mine);
    if (meet(bench)) return -1;
    uint64_t begin = clock_ns();
    for (uint32_t i = 1; i <= ROUND_TRIPS && bench->rank < 2; i++) {
        if (bench->rank == 0) sync_store(mine, last + i);
        if (await_word(theirs, last + i, bench->settings->timeout_s))
            return error_set(&bench->error, STATUS_FAILED, "round trip %u: no answer", i);
        if (bench->rank == 1) sync_store(mine, last + i);
    }
    *us = elapsed_us(begin) / ROUND_TRIPS;
    return 0;
}

// NULL if it can be measured, else the reason. The same on all ranks.
static const char *why_no_round_trip(const Bench *bench) {
    if (!bench->shared) return bench->why_alone;
    if (bench->world < 2) return "there is one rank";
    const int *cores = shared_tail(bench)->cores;
    return cores[0] == cores[1] ? "ranks 0 and 1 have not a core each" : NULL;
}

// *p50 receives the median in microseconds, and keeps its value where there is no round trip.
static int measure_round_trip(Bench *bench, double *p50) {
    double us[BLOCKS];
    const char *why = why_no_round_trip(bench);
    if (why && bench->rank == 0) printf("# no round trip of a cache line: %s\n", why);
    if (why) return 0;
    for (int i = 0; i < BLOCKS; i++)
        if (time_round_trip(bench, &us[i])) return -1;
    *p50 = bench_median(us, BLOCKS);
    if (bench->rank == 0)
        printf("# round trip of a cache line between two cores: p50_us=%.3f min_us=%.3f\n", *p50,
               us[0]);
    return 0;
}

// ---- results --------------------------------------------------------------------------------

static void print_size(size_t bytes) {
    if (bytes % ((size_t)1024 * 1024) == 0)
        printf("%zu MiB", bytes / ((size_t)1024 * 1024));
    else if (bytes % 1024 == 0)
        printf("%zu KiB", bytes / 1024);
    else
        printf("%zu B", bytes);
}

static void print_round_trips(const SizeResult *result, double round_trip) {
    print_size(result->bytes);
    printf(" takes %.1f round trips", result->p50 / round_trip);
}

// The smallest message and the largest of the small ones, in round trips of a cache line.
static void print_small(const Bench *bench, double round_trip) {
    const SizeResult *results = bench->results;
    int small = 0;
    while (small < bench->sizes && results[small].bytes <= SMALL) small++;
    if (small == 0 || round_trip == 0) return;
    printf("# ");
    print_round_trips(&results[0], round_trip);
    if (small > 1) printf(", ");
    if (small > 1) print_round_trips(&results[small - 1], round_trip);
    printf("\n");
}

// The largest message beside the memory bound, and the message farthest from it.
static void print_large(const Bench *bench) {
    const SizeResult *last = NULL, *least = NULL;
    for (const SizeResult *r = bench->results; r < bench->results + bench->sizes; r++) {
        if (r->bound == 0) continue;
        if (!least || r->bound / r->p50 < least->bound / least->p50) least = r;
        last = r;
    }
    if (!last && !bench->shared) printf("# no memory bound: %s\n", bench->why_alone);
    if (!last) return;
    printf("# ");
    print_size(last->bytes);
    printf(": %.2f of the bound; the least of all sizes: %.2f, of ", last->bound / last->p50,
           least->bound / least->p50);
    print_size(least->bytes);
    printf("\n");
}

// ---- a rank ---------------------------------------------------------------------------------

static void print_head(const Bench *bench) {
    const AllReduceSettings *s = bench->settings;
    const char *ranks = s->threads ? "threads" : "processes";
    printf("# all_reduce F32 sum world=%d ranks=%s backend=%s\n", bench->world, ranks,
           pg_backend(bench->group));
    printf("# algbw = bytes / p50, in GB/s; busbw = algbw * 2(W-1)/W, which a link carries\n"
           "# at least. bound = the same sum by the same cores, no waits; of = its share\n");
    printf("%11s %10s %10s %10s %6s %6s %9s %5s %5s\n", "bytes", "min_us", "p50_us", "p99_us",
           "algbw", "busbw", "bound_us", "of", "wrong");
}

static int run_sizes(Bench *bench) {
    const AllReduceSettings *s = bench->settings;
    double round_trip = 0;
    if (!bench->device && share_memory(bench)) return -1;
    if (bench->rank == 0) print_head(bench);
    for (size_t bytes = s->min_bytes; bytes < s->max_bytes; bytes *= s->factor)
        if (measure_size(bench, bytes / sizeof(float) * sizeof(float))) return -1;
    if (measure_size(bench, s->max_bytes / sizeof(float) * sizeof(float))) return -1;
    if (measure_round_trip(bench, &round_trip)) return -1;
    if (bench->rank == 0) {
        print_small(bench, round_trip);
        print_large(bench);
    }
    return 0;
}

// Binds the calling thread to allowed core `number`. Unbound ranks migrate to one core, because a
// rank that waits looks idle. Returns the core, or -1.
static int bind_to_core(int number) {
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return -1;
    int left = number % CPU_COUNT(&allowed);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed) || left-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        // Without it the times are only worse.
        return sched_setaffinity(0, sizeof one, &one) ? -1 : (int)core;
    }
    return -1;
}

int allreduce_run_rank(const AllReduceSettings *settings, ProcessGroup *group, Device *device) {
    Bench bench = {.settings = settings,
                   .group = group,
                   .device = device,
                   .rank = pg_rank(group),
                   .world = pg_size(group),
                   .why_alone = "the buffers are in the memory of GPUs"};
    size_t most = settings->iterations > MOST ? settings->iterations : MOST;
    bench.core = device ? -1 : bind_to_core(bench.rank);
    bench.slices = memory_zalloc((size_t)bench.world * sizeof *bench.slices);
    bench.ours = memory_zalloc(most * sizeof *bench.ours);
    bench.bound = memory_zalloc(most * sizeof *bench.bound);
    bench.buffer = pg_shared_alloc(group, settings->max_bytes, &bench.error);
    bench.host = device ? memory_zalloc(settings->max_bytes) : bench.buffer;
    int status = bench.buffer ? run_sizes(&bench) : -1;
    if (status)
        fprintf(stderr, "error: %s\n", bench.error.message);
    else if (bench.wrong)
        fprintf(stderr, "error: rank %d found %jd wrong element%s\n", bench.rank,
                (intmax_t)bench.wrong, format_s((size_t)bench.wrong));
    segment_release(bench.shared);
    pg_close(group);
    if (device) free(bench.host);
    free(bench.slices);
    free(bench.ours);
    free(bench.bound);
    return status || bench.wrong ? STATUS_FAILED : STATUS_OK;
}
