/* test_conv.c: bits of the CPU's convolution: each of this processor's instruction sets computes
 * the chains of multiply-adds defined in conv_sums.h, and an image's results have the same bits in
 * any batch.
 */
#include "tests/rigs/check.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/cpu/conv_sums.h"
#include "common/device/device.h"

static float *normal(size_t count, uint64_t seed) {
    float *values = memory_zalloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = rng_normal(seed, 0, i);
    return values;
}

// ---- instruction sets --------------------------------------------------------------------------

// volatile forces the product to be rounded.
static float multiply_add(bool is_fused, float a, float b, float sum) {
    volatile float product = a * b;
    return is_fused ? fmaf(a, b, sum) : product + sum;
}

enum {
    CHANNELS = 3,
    TAPS = 4,
    PLANE = 300,
    LEFT = 200,
    OUTPUTS_MAX = 33,
    CHAINS = CHANNELS * TAPS
};
static const uint32_t offsets[TAPS] = {0, 17, 41, 99};

static ConvLowered lowered_open(size_t channels) {
    return (ConvLowered){normal(channels * PLANE + CONV_SLACK, 1), offsets, channels, PLANE, TAPS};
}

static float tap_at(const ConvLowered *lowered, size_t j, size_t pixel) {
    return lowered->data[j / TAPS * PLANE + offsets[j % TAPS] + pixel];
}

// Returns the expected output of channel k at pixel p.
static float sum_of(const ConvInstructions *set, const ConvSums *of, size_t k, size_t p,
                    float before) {
    const size_t chains = of->lowered.channels * TAPS, group = conv_group(&of->lowered) * TAPS;
    float total = of->accumulate ? before : 0, sum = of->bias ? of->bias[k] : 0;
    for (size_t j = 0; j < chains; j++) {
        const size_t at = (k / CONV_FILTERS * chains + j) * CONV_FILTERS + k % CONV_FILTERS;
        sum = multiply_add(set->is_fused, of->weights[at], tap_at(&of->lowered, j, p), sum);
        if ((j + 1) % group != 0 && j + 1 < chains) continue;
        total += sum;
        sum = 0;
    }
    return total;
}

static void check_sums(const ConvInstructions *set, size_t channels, size_t outputs,
                       size_t pixels) {
    const size_t padded = (outputs + CONV_FILTERS - 1) / CONV_FILTERS * CONV_FILTERS;
    float *weights = normal(padded * channels * TAPS, 2), *bias = normal(outputs, 3);
    float *to = normal(outputs * LEFT, 4), *before = normal(outputs * LEFT, 4);
    const ConvSums of = {lowered_open(channels),
                         weights,
                         pixels % 2 ? bias : NULL,
                         to,
                         outputs,
                         pixels,
                         .stride = LEFT,
                         .accumulate = pixels % 3 == 0};
    set->sums(&of);
    for (size_t i = 0; i < outputs * LEFT; i++) {
        const size_t k = i / LEFT, p = i % LEFT;
        const float expected = p < pixels ? sum_of(set, &of, k, p, before[i]) : before[i];
        if (to[i] != expected)
            fail_msg("%s, %zu channels, %zu x %zu: output %zu, pixel %zu: %a, not %a", set->name,
                     channels, outputs, pixels, k, p, (double)to[i], (double)expected);
    }
    free((float *)of.lowered.data), free(weights), free(bias), free(to), free(before);
}

static void check_weight_sums(const ConvInstructions *set, size_t blocks, size_t first,
                              size_t pixels) {
    const ConvLowered lowered = lowered_open(3);
    const size_t chains = lowered.channels * TAPS, count = blocks * chains * CONV_BLOCK;
    float *dy = normal(blocks * CONV_CHUNK * CONV_BLOCK, 2);
    float *to = normal(count, 3), *before = normal(count, 3);
    set->weight_sums(&(ConvWeightSums){lowered, first, pixels, dy, to, blocks});
    for (size_t i = 0; i < count; i++) {
        const size_t block = i / CONV_BLOCK / chains, j = i / CONV_BLOCK % chains;
        float sum = 0;
        for (size_t p = 0; p < pixels; p++)
            sum = multiply_add(set->is_fused, tap_at(&lowered, j, first + p),
                               dy[(block * CONV_CHUNK + p) * CONV_BLOCK + i % CONV_BLOCK], sum);
        if (to[i] != before[i] + sum)
            fail_msg("%s, %zu blocks, %zu pixels: weight %zu: %a, not %a", set->name, blocks,
                     pixels, i, (double)to[i], (double)(before[i] + sum));
    }
    free((float *)lowered.data), free(dy), free(to), free(before);
}

static void instruction_sets_compute_the_same_chains(void **state) {
    (void)state;
    size_t sets = 0, fused = 0;
    for (const ConvInstructions *set = conv_instructions; set->name; set++) {
        if (!set->runs_here()) continue;
        for (size_t pixels = 1; pixels <= LEFT; pixels++)
            check_sums(set, pixels % 50 == 0 ? 131 : 3, pixels % OUTPUTS_MAX + 1, pixels);
        for (size_t pixels = 1; pixels <= CONV_CHUNK; pixels++)
            check_weight_sums(set, pixels % 3 + 1, pixels % 64, pixels);
        sets++;
        fused += set->is_fused;
    }
    print_message("%zu sets, %zu of them with fused multiply-add\n", sets, fused);
    assert_true(sets >= 1);
}

// ---- batches -----------------------------------------------------------------------------------

// y and dx of each image alone equal those of the batch.
static void check_images(const Kernels *kernels, Window v) {
    v.oh = (v.h + 2 * v.pad - v.kernel) / v.stride + 1;
    v.ow = (v.w + 2 * v.pad - v.kernel) / v.stride + 1;
    const ConvolutionKernels *conv = kernels->convolution;
    const size_t input = v.c * v.h * v.w, output = v.k * v.oh * v.ow;
    float *x = normal(v.n * input, 1), *dy = normal(v.n * output, 2), *bias = normal(v.k, 4);
    float *w = normal(v.k * v.c * v.kernel * v.kernel, 3);
    float *y = normal(v.n * output, 5), *dx = normal(v.n * input, 6);
    float *one = normal(input + output, 7);
    const Compute how = {PRECISION_F32, memory_zalloc(conv->conv2d_workspace(PRECISION_F32, &v))};
    conv->conv2d(how, &v, x, w, bias, y);
    conv->conv2d_input_gradient(how, &v, w, dy, dx, false);
    Window single = v;
    single.n = 1;
    for (size_t i = 0; i < v.n; i++) {
        conv->conv2d(how, &single, x + i * input, w, bias, one);
        assert_memory_equal(one, y + i * output, output * sizeof *y);
        conv->conv2d_input_gradient(how, &single, w, dy + i * output, one, false);
        assert_memory_equal(one, dx + i * input, input * sizeof *dx);
    }
    free(x), free(dy), free(bias), free(w), free(y), free(dx), free(one), free(how.workspace);
}

static void an_image_has_the_same_bits_in_any_batch(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu", &err);
    if (!device) fail_msg("%s", err.message);
    const Window windows[] = {
        {.n = 5, .c = 3, .h = 32, .w = 32, .k = 16, .kernel = 3, .stride = 1, .pad = 1},
        {.n = 3, .c = 32, .h = 16, .w = 16, .k = 64, .kernel = 3, .stride = 2, .pad = 1},
        {.n = 3, .c = 64, .h = 31, .w = 37, .k = 70, .kernel = 3, .stride = 1, .pad = 1}, // bands
        {.n = 2, .c = 7, .h = 9, .w = 11, .k = 5, .kernel = 5, .stride = 3, .pad = 2},
        {.n = 3, .c = 16, .h = 8, .w = 8, .k = 3, .kernel = 1, .stride = 1, .pad = 0},
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        check_images(device_kernels(device), windows[i]);
    device_close(device);
}

// An image is lowered in bands of at most 2^17 elements, so a higher one takes no more memory.
static void a_high_image_takes_the_memory_of_a_band(void **state) {
    (void)state;
    enum { BAND = 1 << 17, HEIGHT = 512 };
    Error err = {0};
    Device *device = device_open("cpu", &err);
    if (!device) fail_msg("%s", err.message);
    const ConvolutionKernels *conv = device_kernels(device)->convolution;
    Window v = {.n = 1, .c = 64, .w = 64, .ow = 64, .k = 16, .kernel = 3, .stride = 1, .pad = 1};
    v.h = v.oh = HEIGHT;
    const size_t bytes = conv->conv2d_workspace(PRECISION_F32, &v);
    // Besides: gradients and sums of one block of channels.
    const size_t others = CONV_BLOCK * (CONV_CHUNK + 64 * 9) + CONV_SLACK + 64;
    assert_in_range(bytes / sizeof(float), BAND / 2, BAND + others);
    v.h = v.oh = 2 * HEIGHT;
    assert_int_equal(conv->conv2d_workspace(PRECISION_F32, &v), bytes);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instruction_sets_compute_the_same_chains),
        cmocka_unit_test(an_image_has_the_same_bits_in_any_batch),
        cmocka_unit_test(a_high_image_takes_the_memory_of_a_band),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
