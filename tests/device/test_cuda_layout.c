/* test_cuda_layout.c: what surrounds a product in 16 bits (common/device/cuda/layout.cu) against a
 * loop: images there and back in the other order, bias, relu, sums, for shapes that fill tiles and
 * that do not. Uses the kernels' own header, so it is part of builds with CUDA only.
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

// Where element i of x[n, c, inner] lies in [n, inner, c].
static size_t turned(const CudaImages *of, size_t i) {
    size_t pixel = i % of->inner, channel = i / of->inner % of->c, image = i / of->inner / of->c;
    return (image * of->inner + pixel) * of->c + channel;
}

typedef struct Narrowed {
    float *x; // the host's
    CudaNarrowing job;
    size_t count;
} Narrowed;

static Narrowed narrowed_open(Device *device, const CudaImages *of, uint64_t stream) {
    size_t count = of->n * of->c * of->inner;
    float *x = numbers(count, stream);
    CudaNarrowing job = {*of, sent(device, x, count * sizeof *x),
                         device_alloc(device, count * sizeof *job.y)};
    return (Narrowed){x, job, count};
}

static void narrowed_check(Device *device, Precision precision, Narrowed *narrowed) {
    const CudaImages *of = &narrowed->job.of;
    size_t count = narrowed->count;
    uint16_t *got = memory_zalloc(count * sizeof *got);
    device_copy(NULL, got, device, narrowed->job.y, count * sizeof *got);
    for (size_t i = 0; i < count; i++)
        if (got[turned(of, i)] != to_half(precision, narrowed->x[i]))
            fail_msg("[%zu, %zu, %zu]: element %zu was narrowed to %x", of->n, of->c, of->inner, i,
                     got[turned(of, i)]);
    device_free(device, (void *)narrowed->job.x, count * sizeof *narrowed->x);
    device_free(device, narrowed->job.y, count * sizeof *got);
    free(narrowed->x);
    free(got);
}

static void check_narrow(Device *device, Precision precision, const CudaImages *first,
                         const CudaImages *second) {
    Narrowed a = narrowed_open(device, first, 1), b = narrowed_open(device, second, 5);
    (void)device_kernels(device);
    cuda_narrow_images(precision, &a.job, &b.job);
    narrowed_check(device, precision, &a);
    narrowed_check(device, precision, &b);
}

static float finished(const CudaFinish *f, const float *bias, float value, size_t channel,
                      float before) {
    if (bias) value += from_half(f->rounding, to_half(f->rounding, bias[channel]));
    value = from_half(f->rounding, to_half(f->rounding, value));
    if (f->relu && value < 0) value = 0;
    return f->accumulate ? before + value : value;
}

// channels_last: by cuda_finish_images, else by cuda_finish.
static void check_finish(Device *device, CudaFinish f, const CudaImages *of, bool with_bias,
                         bool channels_last) {
    size_t count = of->n * of->c * of->inner;
    float *wide = numbers(count, 2), *before = numbers(count, 3), *bias = numbers(of->c, 4);
    uint16_t *product = memory_zalloc(count * sizeof *product);
    for (size_t i = 0; i < count; i++)
        product[channels_last ? turned(of, i) : i] = to_half(f.stored, wide[i]);
    uint16_t *from = sent(device, product, count * sizeof *product);
    float *y = sent(device, before, count * sizeof *y), *got = memory_zalloc(count * sizeof *got);
    float *there = sent(device, bias, of->c * sizeof *bias);
    f.bias = with_bias ? there : NULL;
    (void)device_kernels(device);
    if (channels_last)
        cuda_finish_images(&f, of, y, from);
    else
        cuda_finish(&f, y, from, count);
    device_copy(NULL, got, device, y, count * sizeof *y);
    for (size_t i = 0; i < count; i++) {
        float value = from_half(f.stored, to_half(f.stored, wide[i]));
        float wanted =
            finished(&f, with_bias ? bias : NULL, value, i / of->inner % of->c, before[i]);
        if (got[i] != wanted)
            fail_msg("[%zu, %zu, %zu]: element %zu is %g, not %g", of->n, of->c, of->inner, i,
                     (double)got[i], (double)wanted);
    }
    device_free(device, from, count * sizeof *product);
    device_free(device, y, count * sizeof *y);
    device_free(device, there, of->c * sizeof *bias);
    free(wide);
    free(before);
    free(bias);
    free(product);
    free(got);
}

static const CudaImages shapes[] = {{1, 1, 1},    {2, 3, 1025}, {3, 4, 513}, {5, 5, 9},
                                    {2, 16, 128}, {1, 16, 129}, {3, 17, 63}, {2, 32, 64},
                                    {1, 33, 65},  {4, 64, 64},  {16, 3, 9},  {2, 10, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void test_narrow(void **state) {
    for (size_t i = 0; i < SHAPES; i++) {
        check_narrow(*state, PRECISION_BF16, &shapes[i], &shapes[(i + 5) % SHAPES]);
        check_narrow(*state, PRECISION_F16, &shapes[i], &shapes[i]);
    }
}

static void test_finish(void **state) {
    for (size_t i = 0; i < SHAPES; i++)
        for (int flags = 0; flags < 32; flags++) {
            Precision precision = flags & 1 ? PRECISION_F16 : PRECISION_BF16;
            CudaFinish f = {.stored = precision,
                            .rounding = precision,
                            .inner = shapes[i].inner,
                            .channels = shapes[i].c,
                            .relu = flags & 2,
                            .accumulate = flags & 4};
            check_finish(*state, f, &shapes[i], flags & 8, flags & 16);
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
        cmocka_unit_test_prestate(test_narrow, device),
        cmocka_unit_test_prestate(test_finish, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_close(device);
    return failed;
}
