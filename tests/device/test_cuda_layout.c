/* test_cuda_layout.c: the conversion of 16-bit products (common/device/cuda/layout.cu) against a
 * loop: bias, relu, channels-last images, for shapes that fill tiles and shapes that do not.
 * Includes the kernels' own header, and so exists in builds with CUDA only.
 */
#include "tests/rigs/check.h"

#include "common/base/half.h"
#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/cuda/kernels.h"

static uint16_t to_half(Precision precision, float x) {
    return precision == PRECISION_F16 ? half_to_f16(x) : half_to_bf16(x);
}

static float from_half(Precision precision, uint16_t x) {
    return precision == PRECISION_F16 ? half_from_f16(x) : half_from_bf16(x);
}

static void *sent(Device *device, const void *host, size_t bytes) {
    void *memory = device_alloc(device, bytes);
    device_copy(device, memory, NULL, host, bytes);
    return memory;
}

static float *numbers(size_t count, uint64_t stream) {
    float *x = memory_zalloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rng_uniform(7, stream, i, -3, 3);
    return x;
}

// Index in [n, inner, c] of element i of x[n, c, inner].
static size_t turned(const ImageSizes *of, size_t i) {
    size_t pixel = i % of->inner, channel = i / of->inner % of->c, image = i / of->inner / of->c;
    return (image * of->inner + pixel) * of->c + channel;
}

static void check_finish(Device *device, CudaFinish f, const ImageSizes *of, bool with_bias) {
    size_t count = of->n * of->c * of->inner;
    float *values = numbers(count, 2), *bias = numbers(of->c, 4);
    uint16_t *narrow = memory_zalloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; i++) narrow[i] = to_half(f.stored, values[i]);
    uint16_t *y = sent(device, narrow, count * sizeof *narrow);
    float *there = sent(device, bias, of->c * sizeof *bias);
    f.bias = with_bias ? there : NULL;
    (void)device_kernels(device);
    cuda_finish(&f, y, count);
    uint16_t *got = memory_zalloc(count * sizeof *got);
    device_copy(NULL, got, device, y, count * sizeof *got);
    for (size_t i = 0; i < count; i++) {
        float value = from_half(f.stored, narrow[i]);
        float more = from_half(f.stored, to_half(f.stored, bias[i / of->inner % of->c]));
        if (with_bias) value += more;
        if (f.relu && value < 0) value = 0;
        float wanted = from_half(f.stored, to_half(f.stored, value));
        if (from_half(f.stored, got[i]) != wanted)
            fail_msg("[%zu, %zu, %zu]: element %zu is %g, not %g", of->n, of->c, of->inner, i,
                     (double)from_half(f.stored, got[i]), (double)wanted);
    }
    device_free(device, y, count * sizeof *y);
    device_free(device, there, of->c * sizeof *bias);
    free(values);
    free(bias);
    free(narrow);
    free(got);
}

static const ImageSizes shapes[] = {{1, 1, 1},    {2, 3, 1025}, {3, 4, 513}, {5, 5, 9},
                                    {2, 16, 128}, {1, 16, 129}, {3, 17, 63}, {2, 32, 64},
                                    {1, 33, 65},  {4, 64, 64},  {16, 3, 9},  {2, 10, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

// A channels-last product in float32 or 16 bits is rounded and transposed.
static void check_widen(Device *device, CudaStored as, const ImageSizes *of, bool accumulate) {
    size_t count = of->n * of->c * of->inner;
    float *wide = numbers(count, 2), *before = numbers(count, 3), *got = numbers(count, 4);
    float *product = memory_zalloc(count * sizeof *product);
    uint16_t *narrow = memory_zalloc(count * sizeof *narrow);
    for (size_t i = 0; i < count; i++) {
        product[turned(of, i)] = wide[i];
        narrow[turned(of, i)] = to_half(as.rounding, wide[i]);
    }
    bool is_wide = as.stored == PRECISION_F32;
    size_t bytes = count * (is_wide ? sizeof *product : sizeof *narrow);
    void *from = sent(device, is_wide ? (void *)product : narrow, bytes);
    float *y = sent(device, before, count * sizeof *y);
    (void)device_kernels(device);
    cuda_widen_images(as, *of, from, y, accumulate);
    device_copy(NULL, got, device, y, count * sizeof *y);
    for (size_t i = 0; i < count; i++) {
        float wanted = from_half(as.rounding, to_half(as.rounding, wide[i]));
        if (accumulate) wanted += before[i];
        if (got[i] != wanted)
            fail_msg("[%zu, %zu, %zu]: element %zu is %g, not %g", of->n, of->c, of->inner, i,
                     (double)got[i], (double)wanted);
    }
    device_free(device, from, bytes);
    device_free(device, y, count * sizeof *y);
    free(wide);
    free(before);
    free(got);
    free(product);
    free(narrow);
}

static void test_widen(void **state) {
    for (size_t i = 0; i < SHAPES; i++)
        for (int flags = 0; flags < 8; flags++) {
            Precision precision = flags & 1 ? PRECISION_F16 : PRECISION_BF16;
            CudaStored as = {flags & 2 ? PRECISION_F32 : precision, precision};
            check_widen(*state, as, &shapes[i], flags & 4);
        }
}

static void test_finish(void **state) {
    for (size_t i = 0; i < SHAPES; i++)
        for (int flags = 0; flags < 8; flags++) {
            CudaFinish f = {.stored = flags & 1 ? PRECISION_F16 : PRECISION_BF16,
                            .inner = shapes[i].inner,
                            .channels = shapes[i].c,
                            .relu = flags & 2};
            check_finish(*state, f, &shapes[i], flags & 4);
        }
}

int main(void) {
    Error err = {0};
    Device *device = device_open("cuda", &err);
    if (!device) {
        printf("skipped: %s\n", err.message);
        return err.status;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_widen, device),
        cmocka_unit_test_prestate(test_finish, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(device);
    return failed;
}
