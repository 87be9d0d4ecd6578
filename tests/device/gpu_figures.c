/* gpu_figures.c: single figures of a GPU, from which a step's time can be estimated.
 *
 *   gpu_figures graph-gap full|quick       a small kernel, launched and replayed from a graph
 *   gpu_figures product full|quick         a product of 64 x 1024 x 1024, with and without TF32
 *   gpu_figures channels-last full|quick   images converted to 16 bits and channels-last order
 *   gpu_figures gelu full|quick            a linear layer with GELU and its gradient, each in one
 *                                          kernel and in two
 *
 * Each prints one line: the fastest of several tries, each of which ends with one synchronize. The
 * status is 77 without a GPU.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"

enum { TRIES = 5 };

typedef struct Figure {
    Device *device;
    float *a, *b, *c; // [ELEMENTS] each, device memory; with quick FEWER elements
    size_t times;     // calls in each try
    void *workspace;
    DeviceGraph *graph;
    ImageSizes images;
    LinearShape shape; // of the layer before GELU, in 16 bits; the layer after it is its transpose
    HalfActivation gelu;
    bool fused;
} Figure;

enum { ELEMENTS = 1 << 24, FEWER = 1 << 20, GRAPH_NODES = 1000, QUICK = 64 };

// Returns the microseconds of one call.
static double measure(const Figure *figure, void (*work)(const Figure *figure)) {
    double least = 0;
    for (int n = 0; n < TRIES; n++) {
        device_synchronize(figure->device);
        uint64_t start = clock_ns();
        work(figure);
        device_synchronize(figure->device);
        double us = (double)(clock_ns() - start) / 1e3 / (double)figure->times;
        if (n == 0 || us < least) least = us;
    }
    return least;
}

// ---- the gap between the nodes of a graph -------------------------------------------------------

static void ask_for_kernels(const Figure *figure) {
    for (size_t i = 0; i < figure->times; i++)
        device_kernels(figure->device)->elementwise->fill(figure->a, 1, 256);
}

static void replay(const Figure *figure) {
    device_graph_launch(figure->device, figure->graph);
}

static void graph_gap(Figure *figure, size_t divisor) {
    Error err = {0};
    figure->times = GRAPH_NODES / divisor;
    ask_for_kernels(figure);
    if (device_graph_begin(figure->device, &err) != 0) error_exit(&err);
    ask_for_kernels(figure);
    figure->graph = device_graph_end(figure->device, &err);
    if (!figure->graph) error_exit(&err);
    double asked = measure(figure, ask_for_kernels), replayed = measure(figure, replay);
    device_graph_close(figure->device, figure->graph);
    printf("a kernel of 256 numbers takes %.2f us asked for, %.2f us replayed, %zu in a row\n",
           asked, replayed, figure->times);
}

// ---- a product ----------------------------------------------------------------------------------

static void multiply(const Figure *figure) {
    const MatmulShape shape = {.transpose_b = true, .m = 64, .n = 1024, .k = 1024};
    const Compute how = {.workspace = figure->workspace};
    for (size_t i = 0; i < figure->times; i++)
        device_kernels(figure->device)
            ->matrix->matmul(how, shape, figure->a, figure->b, figure->c, false);
}

static void product(Figure *figure, size_t divisor) {
    Device *device = figure->device;
    size_t bytes = device_kernels(device)->matrix->matmul_workspace(PRECISION_F32, 64, 1024, 1024);
    double us[2] = {0};
    const bool has_tf32 = device->capability >= 80; // others compute in float32
    figure->workspace = device_alloc(device, bytes);
    figure->times = 200 / divisor + 1;
    for (int tf32 = 0; tf32 < 1 + has_tf32; tf32++) {
        device->tf32 = tf32;
        us[tf32] = measure(figure, multiply);
    }
    device_free(device, figure->workspace, bytes);
    const double gflop = 2e-9 * 64 * 1024 * 1024;
    printf("64 x 1024 x 1024 takes %.2f us (%.1f TFLOP/s)", us[0], gflop / us[0] * 1e3);
    if (has_tf32) printf(", with TF32 %.2f us (%.1f TFLOP/s)", us[1], gflop / us[1] * 1e3);
    printf("\n");
}

// ---- channels-last order ------------------------------------------------------------------------

static void narrow(const Figure *figure) {
    const HalfKernels *kernels = device_kernels(figure->device)->halves;
    for (size_t i = 0; i < figure->times; i++)
        kernels->narrow(PRECISION_BF16, figure->images, figure->a, (void *)figure->c, false);
}

static void channels_last(Figure *figure, size_t divisor) {
    figure->images = (ImageSizes){.n = 256 / divisor, .c = 64, .inner = 1024};
    figure->times = 20 / divisor + 1;
    double us = measure(figure, narrow);
    size_t count = figure->images.n * figure->images.c * figure->images.inner;
    double bytes = (double)count * (sizeof(float) + sizeof(uint16_t));
    printf("%zu numbers to bf16, channels last: %.1f us, %.0f GB/s\n", count, us, bytes / us / 1e3);
}

// ---- a product with GELU in one kernel ----------------------------------------------------------

// Both variants leave GELU's input, and another matrix of its size, in `c`.
static void gelu_forward(const Figure *figure) {
    const HalfKernels *kernels = device_kernels(figure->device)->halves;
    const Compute how = {figure->gelu.precision, figure->workspace};
    const size_t count = figure->shape.rows * figure->shape.out;
    const uint16_t *x = (void *)figure->a, *narrow = (void *)figure->b;
    uint16_t *before = (void *)figure->c, *y = before + count;
    for (size_t i = 0; i < figure->times; i++)
        if (figure->fused) {
            kernels->linear_gelu(how, figure->shape, x, narrow, figure->a, (HalfGelu){before, y});
        } else {
            kernels->linear(how, figure->shape, x, narrow, figure->a, before);
            kernels->activation(figure->gelu, y, before, count);
        }
}

static void gelu_backward(const Figure *figure) {
    const HalfKernels *kernels = device_kernels(figure->device)->halves;
    const Compute how = {figure->gelu.precision, figure->workspace};
    const LinearShape s = {figure->shape.rows, figure->shape.in, figure->shape.out, NULL, 0};
    const size_t count = s.rows * s.in;
    const uint16_t *dy = (void *)figure->a, *weight = (void *)figure->b;
    uint16_t *before = (void *)figure->c, *dx = before + count;
    for (size_t i = 0; i < figure->times; i++)
        if (figure->fused) {
            kernels->linear_gelu_gradient(how, s, dy, weight, before, dx);
        } else {
            kernels->linear_input_gradient(how, s, dy, weight, NULL, dx, false);
            kernels->activation_gradient(figure->gelu, dx, before, dx, count, false);
        }
}

static void gelu(Figure *figure, size_t divisor) {
    Device *device = figure->device;
    const size_t width = divisor == 1 ? 768 : 96;
    figure->gelu = (HalfActivation){device->capability >= 80 ? PRECISION_BF16 : PRECISION_F16,
                                    ACTIVATION_GELU};
    figure->shape = (LinearShape){4096 / divisor, 4 * width, width, NULL, 0};
    figure->times = 50 / divisor + 1;
    size_t bytes =
        device_kernels(device)->halves->linear_workspace(figure->gelu.precision, figure->shape);
    figure->workspace = device_alloc(device, bytes);
    double us[2][2]; // [forward, backward][two kernels, one kernel]
    for (int fused = 0; fused < 2; fused++) {
        figure->fused = fused;
        us[0][fused] = measure(figure, gelu_forward);
        us[1][fused] = measure(figure, gelu_backward);
    }
    device_free(device, figure->workspace, bytes);
    printf(
        "%zu rows, %zu to %zu, and GELU take %.1f us in one kernel, %.1f us in two; the gradient "
        "%.1f us in one, %.1f us in two\n",
        figure->shape.rows, width, 4 * width, us[0][1], us[0][0], us[1][1], us[1][0]);
}

// ---- the program --------------------------------------------------------------------------------

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(Figure *figure, size_t divisor);
    } figures[] = {{"graph-gap", graph_gap},
                   {"product", product},
                   {"channels-last", channels_last},
                   {"gelu", gelu}};
    Error err = {0};
    CHECK(argc == 3, "usage: gpu_figures graph-gap|product|channels-last|gelu full|quick");
    size_t divisor = strcmp(argv[2], "quick") == 0 ? QUICK : 1;
    size_t count = divisor == 1 ? ELEMENTS : FEWER, bytes = count * sizeof(float);
    Device *device = device_open("cuda:0", &err);
    if (!device) error_exit(&err);
    Figure figure = {.device = device,
                     .a = device_alloc(device, bytes),
                     .b = device_alloc(device, bytes),
                     .c = device_alloc(device, bytes)};
    float *memory[] = {figure.a, figure.b, figure.c};
    for (int i = 0; i < 3; i++) device_kernels(device)->elementwise->fill(memory[i], 1, count);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        if (strcmp(figures[i].name, argv[1]) == 0) figures[i].run(&figure, divisor);
    for (int i = 0; i < 3; i++) device_free(device, memory[i], bytes);
    device_close(device);
    return STATUS_OK;
}
