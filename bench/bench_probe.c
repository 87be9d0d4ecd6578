/* bench_probe.c: how fast is this machine right now? Matrix products and a plain pass through
 * memory on every core at once, a tenth of a second in all. bench/compare.sh runs it before and
 * after each measurement: where it finds less than usual, something else was using the machine.
 *
 * A rate is all threads' work over the time until the last one was done, since a step waits for the
 * slowest. The arrays of a thread are far larger than its share of the caches: arrays that nearly
 * fit stay in a cache in a part that varies, so that an idle machine seems to have several speeds.
 * Their pages are touched before the clock runs.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/device/device.h"

enum { WIDTH = 384, FLOATS = 8 << 20, HUGE_PAGE = 2 << 20, MAX_CORES = 1024 };

typedef struct Probe {
    const Kernels *kernels;
    size_t threads, products, passes;
    pthread_barrier_t together;
} Probe;

typedef struct Worker {
    Probe *probe;
    int core;
    pthread_t thread;
    uint64_t multiplied_ns, passed_ns;
} Worker;

static void multiply(const Probe *probe, const float *x, const float *w, float *y) {
    for (size_t i = 0; i < probe->products; i++)
        probe->kernels->matrix->matmul((Compute){PRECISION_F32, NULL},
                                       (MatmulShape){false, false, WIDTH, WIDTH, WIDTH}, x, w, y,
                                       false);
}

static void pass(const Probe *probe, float *restrict sum, const float *x, const float *w) {
    for (size_t p = 0; p < probe->passes; p++)
        for (size_t i = 0; i < FLOATS; i++) sum[i] = x[i] + 0.5f * w[i];
}

// Three arrays of FLOATS ones, one after the other; the caller frees them. They lie in large pages
// where the system has such.
static float *make_arrays(void) {
    size_t count = 3 * (size_t)FLOATS;
    float *arrays = aligned_alloc(HUGE_PAGE, count * sizeof *arrays);
    CHECK(arrays, "no memory for %zu floats", count);
    madvise(arrays, count * sizeof *arrays, MADV_HUGEPAGE);
    for (size_t i = 0; i < count; i++) arrays[i] = 1;
    return arrays;
}

static void *work(void *argument) {
    Worker *self = argument;
    Probe *probe = self->probe;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET((size_t)self->core, &mine);
    pthread_setaffinity_np(pthread_self(), sizeof mine, &mine); // without it the probe is as good
    float *x = make_arrays(), *w = x + FLOATS, *y = w + FLOATS;
    multiply(&(Probe){.kernels = probe->kernels, .products = 1}, x, w, y); // the code is loaded

    pthread_barrier_wait(&probe->together);
    uint64_t start = clock_ns();
    multiply(probe, x, w, y);
    self->multiplied_ns = clock_ns() - start;
    pthread_barrier_wait(&probe->together);
    start = clock_ns();
    pass(probe, y, x, w);
    self->passed_ns = clock_ns() - start;
    free(x);
    return NULL;
}

// Writes the numbers of the cores that this process may use into cores[MAX_CORES]. Returns how many
// there are.
static size_t find_cores(int *cores) {
    cpu_set_t allowed;
    size_t count = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
    for (int c = 0; c < MAX_CORES && c < CPU_SETSIZE; c++)
        if (CPU_ISSET((size_t)c, &allowed)) cores[count++] = c;
    if (count == 0) cores[count++] = 0;
    return count;
}

static void run(Probe *probe) {
    int cores[MAX_CORES];
    size_t count = find_cores(cores);
    if (probe->threads == 0) probe->threads = count;
    Worker *workers = memory_zalloc(probe->threads * sizeof *workers);
    pthread_barrier_init(&probe->together, NULL, (unsigned)probe->threads);
    for (size_t t = 0; t < probe->threads; t++) {
        workers[t] = (Worker){.probe = probe, .core = cores[t % count]};
        CHECK(pthread_create(&workers[t].thread, NULL, work, &workers[t]) == 0, "no thread %zu", t);
    }
    uint64_t multiplied = 1, passed = 1;
    for (size_t t = 0; t < probe->threads; t++) {
        pthread_join(workers[t].thread, NULL);
        if (workers[t].multiplied_ns > multiplied) multiplied = workers[t].multiplied_ns;
        if (workers[t].passed_ns > passed) passed = workers[t].passed_ns;
    }
    double flops = 2.0 * WIDTH * WIDTH * WIDTH * (double)(probe->threads * probe->products);
    double bytes = 3.0 * sizeof(float) * FLOATS * (double)(probe->threads * probe->passes);
    printf("threads=%zu gflops=%.1f triad_gbps=%.2f products_ms=%.3f passes_ms=%.3f\n",
           probe->threads, flops / (double)multiplied, bytes / (double)passed,
           (double)multiplied / 1e6, (double)passed / 1e6);
    pthread_barrier_destroy(&probe->together);
    free(workers);
}

int main(int argc, char **argv) {
    Probe probe = {.products = 40, .passes = 4};
    Options options = {.program = "bench_probe",
                       .summary = "Measures the present rate of all cores together."};
    options_add_count(&options, "threads", &probe.threads, 0, MAX_CORES, "0: one on each core");
    options_add_count(&options, "products", &probe.products, 1, 1 << 20, "of 384 x 384, by each");
    options_add_count(&options, "passes", &probe.passes, 1, 1 << 20, "a = b + s c, 32 MiB each");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    probe.kernels = device->kernels;
    run(&probe);
    device_close(device);
    return STATUS_OK;
}
