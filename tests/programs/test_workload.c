/* test_workload.c: statistics of the programs that time steps, and the timed kernels: they compute
 * the same as the device's own kernels, and each call is counted with its time. Each reading of the
 * simulated clock advances it by a microsecond.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/account/kernel_clock.h"
#include "bench/kernel_times.h"
#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/format.h"
#include "tests/rigs/captured.h"

static uint64_t now;

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns(void) {
    return now += 1000;
}

static void assert_near(double seen, double wanted) {
    if (fabs(seen - wanted) > 1e-9 * fabs(wanted)) fail_msg("%g, not %g", seen, wanted);
}

static size_t waits; // number of synchronizes

void __real_device_synchronize(Device *device);
void __wrap_device_synchronize(Device *device);
void __wrap_device_synchronize(Device *device) {
    waits++;
    __real_device_synchronize(device);
}

static void quantiles_lie_between_two_values(void **state) {
    (void)state;
    static const struct {
        size_t count;
        double q, wanted;
    } cases[] = {{1, 0, 7},    {1, 0.5, 7}, {1, 1, 7},     {2, 0.5, 5},
                 {2, 0.25, 4}, {3, 0.5, 4}, {3, 1, 7},     {3, 0.75, 5.5},
                 {4, 0, 3},    {4, 1, 11},  {4, 0.5, 5.5}, {4, 0.25, 3.75},
                 {4, 0.75, 8}, {5, 0.5, 4}, {5, 0.75, 7},  {5, 0.99, 10.84}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double values[] = {7, 3, 4, 11, -1};
        assert_near(bench_quantile(values, cases[i].count, cases[i].q), cases[i].wanted);
        for (size_t k = 1; k < cases[i].count; k++) assert_true(values[k - 1] < values[k]);
    }
    double even[] = {9, 1, 2, 8};
    assert_near(bench_median(even, 4), 5);
}

// ---- timed kernels ------------------------------------------------------------------------------

static uint64_t fingerprint(const Workload *w) {
    NamedTensors all = module_tensors(w->model, MODULE_PARAMETERS);
    uint64_t hash = 14695981039346656037U; // FNV-1a
    for (size_t i = 0; i < all.count; i++)
        for (size_t k = 0; k < tensor_bytes(all.items[i].tensor); k++)
            hash = (hash ^ ((unsigned char *)all.items[i].tensor->data)[k]) * 1099511628211U;
    named_tensors_free(&all);
    return hash;
}

typedef enum Timed { NOT_TIMED, BY_TIMES, BY_CLOCK } Timed;

// Returns a hash of the weights after `steps` steps.
static uint64_t train(const char *device_name, const ModelConfig *model, int steps, Timed how) {
    Error err = {0};
    Device *device = must_get(device_open(device_name, &err), &err);
    const Kernels *own = device->kernels;
    KernelTimes *times = how == BY_TIMES ? kernel_times_open(device, 1) : NULL;
    Workload w = workload_open(model, device, 3, NULL);
    if (strcmp(device_name, "ref") == 0) workload_use_precision(&w, PRECISION_BF16);
    KernelClock *clock = how == BY_CLOCK ? kernel_clock_open(device, 1) : NULL;
    assert_int_equal(how == NOT_TIMED, device->kernels == own);
    for (int i = 0; i < steps; i++) assert_true(workload_step(&w) > 0);
    const uint64_t found = fingerprint(&w);
    workload_close(&w);
    kernel_clock_close(clock);
    kernel_times_close(times);
    assert_ptr_equal(device->kernels, own);
    device_close(device);
    return found;
}

static const GptSizes small = {.layers = 2, .heads = 2, .embedding = 16, .context = 8};

static void timed_kernels_compute_the_same(void **state) {
    (void)state;
    static const ModelConfig models[] = {{"mlp", "32,32", {5, 1, 1}, 10, .seed = 1},
                                         {"convnet", "", {1, 28, 28}, 10, .seed = 1},
                                         {"resnet20", "", {3, 16, 16}, 10, .seed = 1},
                                         {"segnet", "", {3, 16, 16}, 4, .seed = 1},
                                         {"gpt", .gpt = small, .outputs = 11, .seed = 1}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const uint64_t wanted = train("cpu:0", &models[i], 2, NOT_TIMED);
        assert_int_equal(train("cpu:0", &models[i], 2, BY_TIMES), wanted);
        assert_int_not_equal(train("cpu:0", &models[i], 1, NOT_TIMED), wanted);
    }
    const ModelConfig gpt = {"gpt2", .gpt = small, .outputs = 11, .seed = 1};
    assert_int_equal(train("ref", &gpt, 2, BY_CLOCK), train("ref", &gpt, 2, NOT_TIMED));
}

static void calls_count_with_their_mean(void **state) {
    (void)state;
    const uint16_t ones[2] = {0x3f80, 0x3f80}; // bfloat16
    const HalfRows row = {.n = 1, .columns = 2, .pitch = 2};
    float memory[6] = {0};
    for (size_t repeats = 1; repeats <= 4; repeats += 3) {
        Error err = {0};
        size_t count;
        Device *device = must_get(device_open("ref", &err), &err);
        KernelClock *clock = kernel_clock_open(device, repeats);
        waits = 0;
        for (int i = 0; i < 3; i++) device->kernels->elementwise->fill(memory, 1, 2);
        device->kernels->halves->widen_rows(PRECISION_BF16, row, ones, memory + 2, true);
        const EntryTime *times = kernel_clock_times(clock, &count);
        assert_int_equal(count, 2);
        assert_int_equal(waits, 2 * 4); // before and after each call
        assert_string_equal(times[0].entry, "fill");
        assert_string_equal(times[1].entry, "widen_rows");
        assert_int_equal(times[0].calls, 3);
        assert_int_equal(times[1].calls, 1);
        assert_near(times[0].seconds, 3e-6 / (double)repeats);
        assert_near(times[1].seconds, 1e-6 / (double)repeats);
        kernel_clock_close(clock);
        device_close(device);
    }
    const float sums[] = {1, 1, 1 + 4, 1 + 4, 0, 0}; // accumulated once, then four times
    assert_memory_equal(memory, sums, sizeof sums);
}

// Prints each entry of the clock and its calls, in alphabetical order.
static void list_calls(const KernelClock *clock, char *text, size_t room) {
    size_t count;
    const EntryTime *times = kernel_clock_times(clock, &count);
    const char *last = "";
    text[0] = '\0';
    for (size_t n = 0; n < count; n++) {
        const EntryTime *next = NULL;
        for (size_t i = 0; i < count; i++)
            if (strcmp(times[i].entry, last) > 0 &&
                (!next || strcmp(times[i].entry, next->entry) < 0))
                next = &times[i];
        assert_non_null(next);
        format_append(text, room, "%s %zu\n", next->entry, next->calls);
        last = next->entry;
    }
}

// A GPT of two blocks: four linear layers in each, one of which ends with GELU, and the head; two
// norms in each, and the last one. In float16 the loss has kernels of its own.
static void each_kernel_of_a_step_is_timed(void **state) {
    (void)state;
    static const char *const losses[] = {
        "", "count_correct 1\ncross_entropy 1\ncross_entropy_gradient 1\n"};
    static const char *const half_losses[] = {"half_cross_entropy 1\n", ""};
    static const char *const ends[] = {"position_gradient 1\n",
                                       "narrow_rows 1\nposition_gradient 1\nwiden_rows 1\n"};
    const ModelConfig gpt = {"gpt2", .gpt = small, .outputs = 11, .seed = 1};
    for (int i = 0; i < 2; i++) {
        Error err = {0};
        char text[1000], wanted[1000];
        Device *device = must_get(device_open("ref", &err), &err);
        Workload w = workload_open(&gpt, device, 3, NULL);
        workload_use_precision(&w, i == 0 ? PRECISION_BF16 : PRECISION_F16);
        (void)workload_step(&w);
        KernelClock *clock = kernel_clock_open(device, 1);
        (void)workload_step(&w);
        list_calls(clock, text, sizeof text);
        snprintf(wanted, sizeof wanted,
                 "adam 1\nattention 2\nattention_gradient 2\n%sembedding 1\nembedding_gradient 1\n"
                 "fill 1\n%slayer_norm 5\nlayer_norm_gradient 5\nlinear 7\nlinear_gelu 2\n"
                 "linear_gelu_gradient 2\nlinear_input_gradient 7\nlinear_weight_gradient 9\n%s",
                 losses[i], half_losses[i], ends[i]);
        assert_string_equal(text, wanted);
        kernel_clock_close(clock);
        workload_close(&w);
        device_close(device);
    }
}

// Returns the output of kernel_times_print, owned by the caller.
static char *printed(KernelTimes *times) {
    Captured captured = captured_begin_of(stdout);
    kernel_times_print(times);
    return captured_end(&captured);
}

// Three rounds of 1, 3 and 2 fills with a median of 2 us, in steps of 8, 9 and 16 us; earlier calls
// do not count. Rates: memory moves 50 MB per us, sgemm performs 2 * 512^3 operations.
static void rounds_count_with_their_median(void **state) {
    (void)state;
    static const int fills[] = {1, 3, 2};
    static const double steps[] = {8e-6, 9e-6, 16e-6};
    Error err = {0};
    float memory[1000] = {0}, rows[2] = {1, 1};
    Device *device = must_get(device_open("cpu:0", &err), &err);
    KernelTimes *times = kernel_times_open(device, 3);
    device->kernels->elementwise->add(memory, memory, memory, 1);
    kernel_times_round(times, 1);
    kernel_times_clear(times);
    for (int round = 0; round < 3; round++) {
        device->kernels->matrix->matmul((Compute){PRECISION_F32, NULL},
                                        (MatmulShape){false, false, 1, 1, 2}, rows, rows, memory,
                                        false);
        for (int i = 0; i < fills[round]; i++) device->kernels->elementwise->fill(memory, 1, 1000);
        kernel_times_round(times, steps[round]);
    }
    char *text = printed(times);
    static const char wanted[] =
        "step_ms=0.009 memory_gb_s=50331.6 sgemm_gflops=268435.5\n"
        "kernel                        calls        bytes   operations        ms  share  bound_ms "
        "by      to_bound\n"
        "fill                              2         8000            0     0.002  0.222     0.000 "
        "memory  12582.91\n"
        "matmul                            1           20            4     0.001  0.111     0.000 "
        "memory  2516582.40\n"
        "(all else)                                                        0.006  0.667\n";
    if (strcmp(text, wanted) != 0) fail_msg("%s", text);
    free(text);
    kernel_times_close(times);
    device_close(device);
}

// ---- probes -------------------------------------------------------------------------------------

static int adds, products; // of all rounds

// The second of three takes a microsecond, the others longer.
static void take_time(int number) {
    static const uint64_t more_ns[] = {2000, 0, 1000};
    now += more_ns[number % 3];
}

static void probe_add(float *y, const float *a, const float *b, size_t count) {
    assert_int_equal(count, 4 << 20);
    assert_true((size_t)labs(a - b) >= count && (size_t)labs(a - y) >= count &&
                (size_t)labs(b - y) >= count);
    for (size_t i = 0; i < count; i += count - 1) assert_true(a[i] == 1 && b[i] == 1);
    take_time(adds++);
}

static void probe_matmul(Compute how, MatmulShape s, const float *a, const float *b, float *c,
                         bool accumulate) {
    assert_true(how.precision == PRECISION_F32 && !accumulate && !s.transpose_a && !s.transpose_b);
    assert_true(s.m == 512 && s.n == 512 && s.k == 512);
    assert_true(a != b && a != c && b != c && *a == 1 && *b == 1);
    take_time(products++);
}

// A rate is that of the fastest of three probes of a round.
static void probes_add_and_multiply(void **state) {
    (void)state;
    Error err = {0};
    Device *device = must_get(device_open("cpu:0", &err), &err);
    const Kernels *own = device->kernels;
    ElementwiseKernels elementwise = *own->elementwise;
    MatrixKernels matrix = *own->matrix;
    Kernels kernels = *own;
    elementwise.add = probe_add;
    matrix.matmul = probe_matmul;
    kernels.elementwise = &elementwise;
    kernels.matrix = &matrix;
    device->kernels = &kernels;
    adds = products = 0;
    KernelTimes *times = kernel_times_open(device, 2);
    for (int round = 1; round <= 2; round++) {
        kernel_times_round(times, 1e-3);
        assert_int_equal(adds, 3 * round);
        assert_int_equal(products, 3 * round);
    }
    char *text = printed(times);
    static const char wanted[] = "step_ms=1.000 memory_gb_s=50331.6 sgemm_gflops=268435.5\n";
    if (strncmp(text, wanted, strlen(wanted)) != 0) fail_msg("%s", text);
    free(text);
    kernel_times_close(times);
    assert_ptr_equal(device->kernels, &kernels);
    device->kernels = own;
    device_close(device);
}

// ---- costs --------------------------------------------------------------------------------------

// Kernels that no step of bench_step's models calls (for those: tests/programs/by_op.py): outputs
// that are accumulated, or not; an activation that is not GELU or saves nothing; SGD without
// momentum. Convolutions and Adam, too. The device computes nothing.
static void call_other_kernels(const Kernels *kernels) {
    const Compute how = {PRECISION_F32, NULL};
    const Window window = {.n = 2, .c = 3, .h = 4, .w = 4, .k = 3, .kernel = 2, .oh = 2, .ow = 2};
    const BatchNorm norm = {.n = 2, .c = 3, .inner = 4};
    const Embedding embedding = {.rows = 6, .vocabulary = 11, .channels = 4};
    const Attention attention = {.batch = 2, .length = 3, .heads = 2, .size = 5};
    const SgdConfig sgd = {0};
    const SgdTensor weights[] = {{.count = 10}, {.count = 7}};
    const AdamConfig adam = {0};
    const AdamTensor moments[] = {{.count = 10}, {.count = 7}};
    const float upstream = 1;
    kernels->elementwise->accumulate(NULL, NULL, 10);
    kernels->elementwise->activation(ACTIVATION_GELU, NULL, NULL, 10, false);
    kernels->elementwise->activation(ACTIVATION_RELU, NULL, NULL, 10, true);
    kernels->elementwise->activation_gradient(ACTIVATION_RELU, NULL, NULL, NULL, 10, false);
    kernels->matrix->matmul(how, (MatmulShape){false, false, 2, 3, 4}, NULL, NULL, NULL, true);
    kernels->matrix->linear_weight_gradient(how, (LinearShape){.rows = 2, .in = 3, .out = 5}, NULL,
                                            NULL, &(LinearGradient){.add_dweight = true});
    kernels->convolution->conv2d(how, &window, NULL, NULL, NULL, NULL);
    for (int added = 0; added < 2; added++) {
        kernels->convolution->conv2d_input_gradient(how, &window, NULL, NULL, NULL, added);
        kernels->convolution->conv2d_weight_gradient(how, &window, NULL, NULL, NULL, added);
    }
    kernels->convolution->shortcut_gradient(&window, NULL, NULL, true);
    kernels->convolution->avg_pool_gradient(&window, NULL, NULL, true);
    kernels->norm->batch_norm_gradient(&norm, NULL, &(NormGradient){0});
    kernels->loss->cross_entropy_gradient((Labels){.n = 5, .classes = 7}, NULL, (Upstream){0}, NULL,
                                          true);
    kernels->pixels->upsample2x_gradient(NULL, NULL, true, 2, 3, 4);
    kernels->pixels->pixel_cross_entropy_gradient((PixelLabels){.n = 2, .classes = 3, .inner = 4},
                                                  NULL, NULL, &upstream, NULL, true);
    kernels->transformer->embedding_gradient(&embedding, NULL, NULL, false, NULL);
    kernels->transformer->attention_gradient(how, &attention, NULL, NULL, NULL, NULL, NULL, true);
    kernels->optimizer->sgd(&sgd, weights, 2, NULL);
    kernels->optimizer->adam(&adam, moments, 2, NULL);
}

static void other_costs(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int calls, floats, operations;
    } wanted[] = {{"accumulate", 1, 3 * 10, 0},
                  {"activation", 2, 2 * 10 + 2 * 10, 2 * (32 + 8) * 10},
                  {"activation_gradient", 1, 3 * 10, 0},
                  {"matmul", 1, 2 * 4 + 4 * 3 + 2 * 2 * 3, 2 * 2 * 3 * 4},
                  {"linear_weight_gradient", 1, 2 * 5 + 2 * 3 + 2 * 5 * 3, 2 * 5 * 3 * 2},
                  {"conv2d", 1, 96 + 36 + 24, 2 * 24 * 12},
                  {"conv2d_input_gradient", 2, 2 * (96 + 36 + 24) + 96, 2 * 2 * 24 * 12},
                  {"conv2d_weight_gradient", 2, 2 * (96 + 36 + 24), 2 * 2 * 24 * 12},
                  {"shortcut_gradient", 1, 24 + 2 * 24, 0},
                  {"avg_pool_gradient", 1, 24 + 2 * 96, 0},
                  {"batch_norm_gradient", 1, 4 * 24, 0},
                  {"cross_entropy_gradient", 1, 3 * 35, 0},
                  {"upsample2x_gradient", 1, (4 + 2) * 24, 0},
                  {"pixel_cross_entropy_gradient", 1, 3 * 24 + 18, 0}, // 2.25 of 8 pixels
                  {"embedding_gradient", 1, 24 + 44, 0},
                  {"attention_gradient", 1, 10 * 60 + 18, 4 * 2 * 24 * 5 + 2 * 5 * 24},
                  {"sgd", 1, 3 * 17, 0},
                  {"adam", 1, 7 * 17, 0}};
    Error err = {0};
    Device *device = must_get(device_open("dry-cpu:0", &err), &err);
    KernelTimes *times = kernel_times_open(device, 1);
    call_other_kernels(device->kernels);
    kernel_times_round(times, 1e-3);
    char *text = printed(times);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        char row[100];
        snprintf(row, sizeof row, "\n%-28s %6d %12d %12d ", wanted[i].name, wanted[i].calls,
                 (int)sizeof(float) * wanted[i].floats, wanted[i].operations);
        if (!strstr(text, row)) fail_msg("no %s in\n%s", row, text);
    }
    free(text);
    kernel_times_close(times);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_lie_between_two_values),
        cmocka_unit_test(timed_kernels_compute_the_same),
        cmocka_unit_test(calls_count_with_their_mean),
        cmocka_unit_test(each_kernel_of_a_step_is_timed),
        cmocka_unit_test(rounds_count_with_their_median),
        cmocka_unit_test(probes_add_and_multiply),
        cmocka_unit_test(other_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
