/* test_cuda_kernels.c: kernels whose implementation on a GPU differs from a CPU's, against the
 * reference: products of any shape, convolutions whose columns do not fit at once, shapes without
 * elements, sums over many blocks, pixels with any values, and the recording of these in a graph.
 * (The properties of every device are tested by test_kernels*.c, on GPUs too.)
 */
#include "tests/rigs/two_devices.h"

#include "common/base/half.h"

static const double TOLERANCE = 4e-6; // of the largest result

static void what_computes(void **state) {
    TwoDevices *two = *state;
    char text[256];
    two_kernels(two, TESTED)->describe(text, sizeof text);
    const char *wanted[] = {"CUDA ", "driver ", "cuBLASLt ", "TF32 off"};
    for (size_t i = 0; i < 4; i++)
        if (!strstr(text, wanted[i])) fail_msg("no \"%s\" in \"%s\"", wanted[i], text);
    two->of[TESTED]->tf32 = true;
    two_kernels(two, TESTED)->describe(text, sizeof text);
    two->of[TESTED]->tf32 = false;
    if (!strstr(text, "TF32 on")) fail_msg("no \"TF32 on\" in \"%s\"", text);
}

// ---- products --------------------------------------------------------------------------------

static void check_product(TwoDevices *two, const size_t size[3], bool ta, bool tb,
                          bool accumulate) {
    size_t m = size[0], n = size[1], k = size[2];
    Both a = both_normal(two, m * k, 1), b = both_normal(two, k * n, 2);
    Both c = both_start(two, m * n, accumulate);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->matrix->matmul((Compute){PRECISION_F32, NULL},
                                            (MatmulShape){ta, tb, m, n, k}, a.of[d], b.of[d],
                                            c.of[d], accumulate);
    both_check(c, TOLERANCE, "matmul");
    two_free(two);
}

static void check_linear(TwoDevices *two, const size_t size[3], bool with_bias, bool relu) {
    size_t rows = size[0], out = size[1], in = size[2];
    Both x = both_normal(two, rows * in, 1), weight = both_normal(two, out * in, 2);
    Both bias = both_normal(two, out, 3), y = both_start(two, rows * out, false);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->matrix->linear(
            (Compute){PRECISION_F32, NULL},
            (LinearShape){rows, out, in, relu ? &(ReluMask){0} : NULL, 0}, x.of[d], weight.of[d],
            with_bias ? bias.of[d] : NULL, y.of[d]);
    both_check(y, TOLERANCE, "linear");
    two_free(two);
}

// Also with operands 4 bytes off an aligned address, as gradients in a bucket may be.
static void products(void **state) {
    TwoDevices *two = *state;
    const size_t sizes[][3] = {{1, 1, 1},  {7, 13, 5}, {64, 10, 257}, {3, 1, 31}, {1, 17, 2},
                               {8, 16, 8}, {0, 5, 3},  {5, 0, 3},     {4, 5, 0}};
    for (two->shift = 0; two->shift < 2; two->shift++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int flags = 0; flags < 8; flags++) {
                check_product(two, sizes[i], flags & 1, flags & 2, flags & 4);
                check_linear(two, sizes[i], flags & 1, flags & 2);
            }
    two->shift = 0;
}

// Layers of equal shape share a product's plan but not its operands.
static void layers_of_one_shape(void **state) {
    TwoDevices *two = *state;
    Both x = both_normal(two, 7 * 5, 1), weight = both_normal(two, 3 * 5, 2), bias[2], y[2];
    for (uint64_t layer = 0; layer < 2; layer++) {
        bias[layer] = both_normal(two, 3, 3 + layer);
        y[layer] = both_start(two, 7 * 3, false);
        for (int d = 0; d < DEVICES; d++)
            two_kernels(two, d)->matrix->linear((Compute){PRECISION_F32, NULL},
                                                (LinearShape){7, 3, 5, &(ReluMask){0}, 0}, x.of[d],
                                                weight.of[d], bias[layer].of[d], y[layer].of[d]);
    }
    for (int layer = 0; layer < 2; layer++) both_check(y[layer], TOLERANCE, "layer");
    two_free(two);
}

// ---- windows ---------------------------------------------------------------------------------

static Window window_of(size_t n, size_t c, size_t h, size_t w, size_t k, size_t kernel,
                        size_t stride, size_t pad) {
    return (Window){.n = n,
                    .c = c,
                    .h = h,
                    .w = w,
                    .k = k,
                    .kernel = kernel,
                    .stride = stride,
                    .pad = pad,
                    .oh = (h + 2 * pad - kernel) / stride + 1,
                    .ow = (w + 2 * pad - kernel) / stride + 1};
}

typedef struct Convolution {
    Window window;
    Both x, weight, bias, y, dy, dx, dweight, dbias;
    void *workspace[DEVICES];
} Convolution;

static Convolution convolution_of(TwoDevices *two, Window v, bool accumulate) {
    size_t x = v.n * v.c * v.h * v.w, y = v.n * v.k * v.oh * v.ow;
    size_t weight = v.k * v.c * v.kernel * v.kernel;
    Convolution c = {.window = v,
                     .x = both_normal(two, x, 1),
                     .weight = both_normal(two, weight, 2),
                     .bias = both_normal(two, v.k, 3),
                     .y = both_start(two, y, false),
                     .dy = both_normal(two, y, 4),
                     .dx = both_start(two, x, accumulate),
                     .dweight = both_start(two, weight, accumulate),
                     .dbias = both_start(two, v.k, accumulate)};
    for (int d = 0; d < DEVICES; d++)
        c.workspace[d] =
            two_take(two, two->of[d], NULL,
                     two_kernels(two, d)->convolution->conv2d_workspace(PRECISION_F32, &c.window));
    return c;
}

static void convolution_run(const TwoDevices *two, int d, const Convolution *c, bool with_bias,
                            bool accumulate) {
    const Kernels *table = two_kernels(two, d);
    table->convolution->conv2d((Compute){PRECISION_F32, c->workspace[d]}, &c->window, c->x.of[d],
                               c->weight.of[d], with_bias ? c->bias.of[d] : NULL, c->y.of[d]);
    table->convolution->conv2d_input_gradient((Compute){PRECISION_F32, c->workspace[d]}, &c->window,
                                              c->weight.of[d], c->dy.of[d], c->dx.of[d],
                                              accumulate);
    table->convolution->conv2d_weight_gradient((Compute){PRECISION_F32, c->workspace[d]},
                                               &c->window, c->x.of[d], c->dy.of[d],
                                               c->dweight.of[d], accumulate);
    table->convolution->conv2d_bias_gradient(&c->window, c->dy.of[d], c->dbias.of[d], accumulate);
}

static void convolution_check(const Convolution *c) {
    both_check(c->y, TOLERANCE, "conv2d");
    both_check(c->dx, TOLERANCE, "conv2d_input_gradient");
    both_check(c->dweight, TOLERANCE, "conv2d_weight_gradient");
    both_check(c->dbias, 2e-7, "conv2d_bias_gradient");
}

static void compare_convolution(TwoDevices *two, Window v, bool with_bias, bool accumulate) {
    Convolution c = convolution_of(two, v, accumulate);
    for (int d = 0; d < DEVICES; d++) convolution_run(two, d, &c, with_bias, accumulate);
    convolution_check(&c);
    two_free(two);
}

static void convolutions(void **state) {
    const Window windows[] = {
        window_of(3, 2, 7, 5, 4, 3, 1, 1), // the common case
        window_of(2, 3, 9, 8, 5, 3, 2, 1), // a last column outside all windows
        window_of(2, 5, 4, 6, 3, 1, 1, 0), // columns equal the input
        window_of(2, 3, 5, 5, 2, 1, 2, 0), // pixels outside all windows
        window_of(1, 1, 1, 1, 1, 1, 1, 0), // all sizes are 1
        window_of(2, 1, 3, 2, 2, 5, 3, 3), // a kernel larger than the image
        window_of(1, 2, 11, 13, 3, 4, 3, 2), window_of(0, 2, 5, 5, 3, 3, 1, 1), // no images
        window_of(2, 2, 5, 5, 0, 3, 1, 1),                                      // no outputs
        window_of(2, 0, 5, 5, 3, 3, 1, 1), // no input channels: only the bias
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int flags = 0; flags < 4; flags++)
            compare_convolution(*state, windows[i], flags & 1, flags & 2);
}

// The columns of all images exceed im2col's buffer (64 MiB): the images are processed in three
// parts, the last of them smaller.
static void a_convolution_in_parts(void **state) {
    compare_convolution(*state, window_of(5, 1, 303, 301, 1, 9, 1, 4), true, true);
}

// NaN, infinity and many equal values.
static void pooling_of_odd_numbers(void **state) {
    TwoDevices *two = *state;
    const Window v = window_of(3, 2, 9, 8, 2, 3, 2, 1);
    size_t inputs = v.n * v.c * v.h * v.w, outputs = v.n * v.c * v.oh * v.ow;
    float *values = two_normal(two, inputs, 1);
    for (size_t i = 0; i < inputs; i++)
        values[i] = i % 29 == 3 ? NAN : i % 7 == 2 ? -INFINITY : roundf(values[i]);
    Both x = both_floats(two, values, inputs);
    Both y = both_bytes(two, NULL, outputs * sizeof(float));
    Both chosen = both_bytes(two, NULL, outputs * sizeof(int32_t));
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->convolution->max_pool(&v, x.of[d], y.of[d], chosen.of[d]);
    both_check_bytes(chosen, "chosen");
    both_check_bytes(y, "max_pool");
    two_free(two);
}

// ---- pixels ----------------------------------------------------------------------------------

// Two images, two classes: invalid targets (one would be valid as a class of the second image), an
// ignored pixel whose logits are NaN, NaN, equal logits, infinities.
static void odd_pixels(void **state) {
    TwoDevices *two = *state;
    enum { PIXELS = 5 };
    const float logits[2][2][PIXELS] = {{{1, NAN, 0, 2, INFINITY}, {2, 0, NAN, 2, -INFINITY}},
                                        {{1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}}};
    const int64_t target[2][PIXELS] = {{2, -1, 0, 1, 0}, {INT64_MAX, 0, 0, 0, -7}};
    Both x = both_bytes(two, logits, sizeof logits), t = both_bytes(two, target, sizeof target);
    Both p = both_start(two, 4 * PIXELS, false), losses = both_start(two, 2 * PIXELS, false);
    Both predicted = both_bytes(two, NULL, sizeof(int32_t[2 * PIXELS]));
    const Kernels *table = two_kernels(two, TESTED);
    table->pixels->pixel_cross_entropy((PixelLabels){t.of[TESTED], 2, 2, PIXELS}, x.of[TESTED],
                                       p.of[TESTED], losses.of[TESTED]);
    table->pixels->predict_pixels(x.of[TESTED], predicted.of[TESTED], 2, 2, PIXELS);
    const float *loss = both_read(losses, TESTED, losses.bytes);
    assert_true(isnan(loss[0]) && isnan(loss[2]) && isnan(loss[PIXELS]));
    assert_true(loss[1] == 0 && loss[2 * PIXELS - 1] == 0);
    check_close((double)loss[3], log(2), 1e-6, "the loss of equals");
    check_close((double)loss[PIXELS + 1], log(1 + exp(-1)), 1e-6, "a loss");
    const int32_t wanted[2 * PIXELS] = {1, -1, -1, 0, 0};
    assert_memory_equal(both_read(predicted, TESTED, predicted.bytes), wanted, sizeof wanted);
    two_free(two);
}

static void compare_hard(TwoDevices *two, Both losses, Both target, float threshold, size_t least,
                         size_t count) {
    Both kept = both_bytes(two, NULL, count), keep = both_bytes(two, NULL, sizeof(int64_t));
    Both sum = both_start(two, 1, false);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->pixels->hard_pixels(&(HardPixels){.losses = losses.of[d],
                                                               .target = target.of[d],
                                                               .count = count,
                                                               .threshold = threshold,
                                                               .least = least},
                                                 kept.of[d], keep.of[d], sum.of[d]);
    both_check_bytes(kept, "kept");
    both_check_bytes(keep, "how many are kept");
}

// Losses of all kinds: negative, both zeros (which are equal), subnormal. Some pixels are ignored.
static void hard_pixels_of_all_numbers(void **state) {
    TwoDevices *two = *state;
    const float odd[] = {-1,    0.0f,    -0.0f, 1e-45f, -1e-45f, INFINITY,  -INFINITY, -2,
                         -0.0f, 3.4e38f, 0.0f,  NAN,    -NAN,    0x1p-126f, -3.4e38f,  1};
    enum { COUNT = sizeof odd / sizeof *odd };
    for (int ignored = 0; ignored < 2; ignored++)
        for (size_t least = 0; least <= COUNT + 1; least++) {
            int64_t target[COUNT];
            for (int i = 0; i < COUNT; i++) target[i] = ignored && i % 3 == 0 ? -1 : 5;
            Both losses = both_floats(two, odd, COUNT);
            Both classes = both_bytes(two, target, sizeof target);
            const float thresholds[] = {1, 0, -INFINITY, NAN};
            for (size_t i = 0; i < 4; i++)
                compare_hard(two, losses, classes, thresholds[i], least, COUNT);
            two_free(two);
        }
}

// Losses that differ in one byte only, in shuffled order, so that each pass of the radix selection
// decides once.
static void hard_pixels_byte_by_byte(void **state) {
    TwoDevices *two = *state;
    enum { COUNT = 512 };
    for (int byte = 0; byte < 3; byte++) {
        float losses[COUNT];
        int64_t target[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            losses[i] = half_value(0x3f000000u + (i * 37 % 256 << 8 * byte));
            target[i] = i % 5 == 0 ? -1 : 0;
        }
        for (size_t least = 0; least < COUNT; least += 31) {
            Both classes = both_bytes(two, target, sizeof target);
            compare_hard(two, both_floats(two, losses, COUNT), classes, 1e9f, least, COUNT);
            two_free(two);
        }
    }
}

// ---- graphs ----------------------------------------------------------------------------------

// A graph recorded after a first call repeats the call on the current contents of x: recording must
// not allocate, query or wait.
static void a_recorded_step(void **state) {
    TwoDevices *two = *state;
    Error err = {0};
    Device *device = two->of[TESTED];
    Convolution c = convolution_of(two, window_of(2, 3, 6, 5, 2, 3, 1, 1), false);
    convolution_run(two, TESTED, &c, true, false);
    CHECK_OK(device_graph_begin(device, &err) == 0, err);
    convolution_run(two, TESTED, &c, true, false);
    DeviceGraph *graph = device_graph_end(device, &err);
    CHECK_OK(graph, err);
    Both other = both_normal(two, c.x.bytes / sizeof(float), 8);
    for (int d = 0; d < DEVICES; d++)
        device_copy(two->of[d], c.x.of[d], two->of[d], other.of[d], other.bytes);
    device_graph_launch(device, graph);
    convolution_run(two, REF, &c, true, false);
    convolution_check(&c);
    device_graph_close(device, graph);
    two_free(two);
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(what_computes, &two),
        cmocka_unit_test_prestate(products, &two),
        cmocka_unit_test_prestate(layers_of_one_shape, &two),
        cmocka_unit_test_prestate(convolutions, &two),
        cmocka_unit_test_prestate(a_convolution_in_parts, &two),
        cmocka_unit_test_prestate(pooling_of_odd_numbers, &two),
        cmocka_unit_test_prestate(odd_pixels, &two),
        cmocka_unit_test_prestate(hard_pixels_of_all_numbers, &two),
        cmocka_unit_test_prestate(hard_pixels_byte_by_byte, &two),
        cmocka_unit_test_prestate(a_recorded_step, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
