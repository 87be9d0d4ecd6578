/* gpu_probe.c: properties of a machine's GPU, one per call; used by tests/first_contact.sh.
 *
 *   gpu_probe all-reduce BYTES    a rank of a job: an all-reduce over NCCL, checked, and its time
 *   gpu_probe convolutions        the plan of each of resnet20's convolutions (algorithm, layout,
 *                                 mathematics), then the implementation in use, and how many
 *                                 convolutions cuDNN has a plan for
 *   gpu_probe machine             each card: its compute capability and the libraries in use
 *
 * Rank 0 prints; the last line is the result. The status is 77 without a GPU, 1 if a sum is wrong.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"
#include "ddp/strategy_ddp.h"

enum { TIMES = 4, TIMEOUT_S = 50 };

static Device *open_gpu(int index) {
    char name[16];
    Error err = {0};
    snprintf(name, sizeof name, "cuda:%d", index);
    Device *device = device_open(name, &err);
    if (!device) error_exit(&err);
    return device;
}

// ---- all-reduce ---------------------------------------------------------------------------------

// Element i of a rank's buffer: a small integer, so that sums are exact.
static float value(size_t i, int rank) {
    return (float)((i % 1000 + 1) * (size_t)(rank + 1));
}

static size_t count_wrong(const float *x, size_t count, int world) {
    size_t wrong = 0;
    int ranks = world * (world + 1) / 2 - 1; // the sum over ranks is value(i, ranks)
    for (size_t i = 0; i < count; i++) wrong += x[i] != value(i, ranks);
    return wrong;
}

static double reduce_ms(ProcessGroup *group, Device *device, float *x, size_t count, Error *err) {
    uint64_t start = clock_ns();
    if (pg_run(group, pg_all_reduce(x, count, PG_F32, PG_SUM), err) != 0) error_exit(err);
    device_synchronize(device);
    return (double)(clock_ns() - start) / 1e6;
}

static int all_reduce(size_t bytes) {
    Error err = {0};
    Rendezvous me;
    TrainConfig config = train_config_default();
    config.device = "cuda";
    must_do(init_from_env(&me, true, &err), &err);
    Device *device = must_get(ddp_open_device(&config, &me, &err), &err);
    ProcessGroup *group = init_process_group("nccl", &me, device, TIMEOUT_S, &err);
    if (!group) error_exit(&err);

    size_t count = bytes / sizeof(float), wrong = 0;
    float *host = memory_zalloc(bytes), *x = device_alloc(device, bytes);
    double least = 0, ms;
    for (int n = 0; n < TIMES; n++) {
        for (size_t i = 0; i < count; i++) host[i] = value(i, me.rank);
        device_copy(device, x, NULL, host, bytes);
        ms = reduce_ms(group, device, x, count, &err);
        if (n == 0 || ms < least) least = ms;
        device_copy(NULL, host, device, x, bytes);
        wrong += count_wrong(host, count, me.world_size);
    }
    if (me.rank == 0)
        printf("%zu bytes on %d ranks: %zu wrong, the fastest of %d took %.3f ms\n", bytes,
               me.world_size, wrong, TIMES, least);
    device_free(device, x, bytes);
    free(host);
    pg_close(group);
    device_close(device);
    return wrong ? STATUS_FAILED : STATUS_OK;
}

// ---- convolutions -------------------------------------------------------------------------------

// Prints one line; returns whether cuDNN has a plan.
static bool print_plan(ConvolutionPass pass, Precision precision, const Window *window) {
    static const char *const passes[] = {"forward", "input gradient", "weight gradient"};
    static const char *const precisions[] = {"float32", "bf16", "fp16"};
    const ConvolutionPlan *plan = cuda_convolution_plan(pass, precision, window);
    char text[128];
    cuda_convolution_plan_describe(plan, text, sizeof text);
    printf("%zu channels of %zux%zu to %zu, stride %zu, %s, %s: %s\n", window->c, window->h,
           window->w, window->k, window->stride, passes[pass], precisions[precision], text);
    return plan;
}

static int convolutions(void) {
    static const size_t layers[][4] = {// c, size, k, stride
                                       {3, 32, 16, 1},  {16, 32, 16, 1}, {16, 32, 32, 2},
                                       {32, 16, 32, 1}, {32, 16, 64, 2}, {64, 8, 64, 1}};
    static const Precision precisions[] = {PRECISION_F32, PRECISION_BF16, PRECISION_F16};
    Device *device = open_gpu(0);
    device_kernels(device); // makes it the thread's current device
    int planned = 0, asked = 0;
    for (size_t l = 0; l < sizeof layers / sizeof *layers; l++) {
        const size_t *s = layers[l], out = s[1] / s[3];
        Window window = {.n = 256,
                         .c = s[0],
                         .h = s[1],
                         .w = s[1],
                         .k = s[2],
                         .kernel = 3,
                         .stride = s[3],
                         .pad = 1,
                         .oh = out,
                         .ow = out};
        for (int pass = CONVOLUTION_FORWARD; pass <= CONVOLUTION_WEIGHT_GRADIENT; pass++)
            for (int p = 0; p < 3; p++, asked++)
                planned += print_plan((ConvolutionPass)pass, precisions[p], &window);
    }
    char name[256];
    device_kernels(device)->describe(name, sizeof name);
    printf("%s; plans for %d of %d convolutions, the others go by im2col\n", name, planned, asked);
    device_close(device);
    return STATUS_OK;
}

// ---- the machine --------------------------------------------------------------------------------

static int machine(void) {
    const int cards = device_available("cuda");
    for (int i = 0; i < cards; i++) {
        Device *device = open_gpu(i);
        char name[256];
        device_kernels(device)->describe(name, sizeof name);
        printf("cuda:%d: compute capability %d.%d, %s\n", i, device->capability / 10,
               device->capability % 10, name);
        device_close(device);
    }
    return STATUS_OK;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "machine") == 0) return machine();
    if (argc == 3 && strcmp(argv[1], "all-reduce") == 0)
        return all_reduce(strtoul(argv[2], NULL, 10));
    CHECK(argc == 2 && strcmp(argv[1], "convolutions") == 0,
          "usage: gpu_probe all-reduce BYTES | convolutions | machine");
    return convolutions();
}
