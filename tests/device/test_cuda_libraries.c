/* test_cuda_libraries.c: behaviour that NVIDIA's libraries do not guarantee, or guarantee and lack:
 * which convolutions cuDNN has plans for, and NaN in cuBLASLt's relu.
 *
 *   test_cuda_libraries cuda [WORD]    WORD: calls that the emulator's cuDNN
 *                                      (DDPC_EMULATED_CUDNN_REFUSES) or cuBLASLt
 *                                      (DDPC_EMULATED_BLAS_REFUSES) refuses; or "relu": its relu
 *                                      keeps NaN, which it otherwise does not. Real libraries
 *                                      refuse nothing
 */
#include "tests/rigs/half_types.h"
#include "tests/rigs/two_devices.h"

#include <unistd.h>

#include "common/base/half.h"
#include "common/device/cuda/kernels.h"

// Multiples of eight channels, which cuDNN's tensor cores need.
static const Window WINDOW = {
    .n = 2, .c = 16, .h = 8, .w = 8, .k = 16, .kernel = 3, .stride = 1, .pad = 1, .oh = 8, .ow = 8};

enum { PASSES = 3, TEXT = 128 };

typedef struct State {
    TwoDevices *two;
    const char *word; // the refusal of cuDNN; "": none
    const char *blas; // the refusal of cuBLASLt
} State;

static void expect_plan(const State *state, Precision precision, const char *const wanted[PASSES]) {
    two_kernels(state->two, TESTED); // sets the thread's current device
    for (int pass = 0; pass < PASSES; pass++) {
        char text[TEXT];
        cuda_convolution_plan_describe(
            cuda_convolution_plan((ConvolutionPass)pass, precision, &WINDOW), text, sizeof text);
        if (!strstr(text, wanted[pass]))
            fail_msg("pass %d in precision %d: \"%s\", expected \"%s\"", pass, (int)precision, text,
                     wanted[pass]);
    }
}

static bool is_word(const State *state, const char *word) {
    return strcmp(state->word, word) == 0;
}

// Plans with a tolerance of 1e-6 use neither Winograd nor Fourier transforms nor TF32.
static void exact_plans(void **context) {
    const State *state = *context;
    bool preferred =
        is_word(state, "preferred") || is_word(state, "memory") || is_word(state, "queries");
    const char *const usual[] = {"IMPLICIT_PRECOMP_GEMM (channels first, FMA)",
                                 "ALGO_1 (channels first, FMA)", "ALGO_1 (channels first, FMA)"};
    const char *const second[] = {"IMPLICIT_GEMM (channels first, FMA)", "im2col", "im2col"};
    const char *const none[] = {"im2col", "im2col", "im2col"};
    expect_plan(state, PRECISION_F32, is_word(state, "all") ? none : preferred ? second : usual);
}

#ifdef CUDA_EMULATED
#define LAST "(channels last, tensor cores)"
#else // a real cuDNN may report them as default
#define LAST "(channels last, "
#endif

// 16-bit plans use tensor cores, also after failed attempts.
static void plans_in_16_bits(void **context) {
    const State *state = *context;
    const char *const usual[] = {"IMPLICIT_PRECOMP_GEMM " LAST, "ALGO_1 " LAST, "ALGO_1 " LAST};
    const char *const second[] = {"IMPLICIT_GEMM " LAST, "im2col", "im2col"};
    const char *const none[] = {"im2col", "im2col", "im2col"};
    bool refused = is_word(state, "all") || is_word(state, "channels-last");
    const char *const *wanted = refused ? none : is_word(state, "") ? usual : second;
    for (int p = first_half(state->two->of[TESTED]); p <= PRECISION_F16; p++)
        expect_plan(state, (Precision)p, wanted);
}

// The remaining implementation is right. (In 16 bits: test_kernels_halves.)
static void results(void **context) {
    TwoDevices *two = ((const State *)*context)->two;
    size_t inputs = WINDOW.n * WINDOW.c * WINDOW.h * WINDOW.w;
    size_t outputs = WINDOW.n * WINDOW.k * WINDOW.oh * WINDOW.ow;
    Both x = both_normal(two, inputs, 1), weight = both_normal(two, WINDOW.k * WINDOW.c * 9, 2);
    Both y = both_start(two, outputs, false);
    for (int d = 0; d < DEVICES; d++) {
        const ConvolutionKernels *table = two_kernels(two, d)->convolution;
        size_t bytes = table->conv2d_workspace(PRECISION_F32, &WINDOW);
        Compute how = {PRECISION_F32, two_take(two, two->of[d], NULL, bytes)};
        table->conv2d(how, &WINDOW, x.of[d], weight.of[d], NULL, y.of[d]);
    }
    both_check(y, 1e-6, "conv2d");
    two_free(two);
}

// Counts the lines on stderr that contain `part` while the plan of a weight gradient is made.
static size_t count_notes(Precision precision, const Window *window, const char *part) {
    FILE *notes = tmpfile();
    assert_non_null(notes);
    int kept = dup(STDERR_FILENO);
    fflush(stderr);
    assert_true(dup2(fileno(notes), STDERR_FILENO) >= 0);
    cuda_convolution_plan(CONVOLUTION_WEIGHT_GRADIENT, precision, window);
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(notes);
    char line[512];
    size_t count = 0;
    while (fgets(line, sizeof line, notes))
        count += strncmp(line, "note: cuda:0: ", 14) == 0 && strstr(line, part);
    fclose(notes);
    return count;
}

// A convolution that falls back to another implementation notes it once.
static void a_fallback_is_told_once(void **context) {
    const State *state = *context;
    Window window = WINDOW;
    window.n = 3; // a size without a plan
    two_kernels(state->two, TESTED);
    bool refused = !is_word(state, "") && !is_word(state, "channels-last");
    // One note about the algorithm, one about im2col.
    assert_int_equal(count_notes(PRECISION_F32, &window, ""), refused ? 2 : 0);
    assert_int_equal(count_notes(PRECISION_F32, &window, ""), 0);
    if (is_word(state, "")) return; // a real cuDNN may choose otherwise
    // The emulator's FFT_TILING is refused with and without tensor cores.
    const Precision half = first_half(state->two->of[TESTED]);
    assert_int_equal(count_notes(half, &window, "more than 512 MiB of scratch"), 2);
}

// If cuBLASLt's own relu turns NaN into 0 (the emulator's does by default), it is not used.
static void relu_keeps_nan(void **context) {
    const State *state = *context;
    enum { ROWS = 8, IN = 16, OUT = 16 };
    TwoDevices *two = state->two;
    float *values = two_normal(two, ROWS * IN, 1);
    values[3 * IN + 5] = NAN; // makes row 3 NaN
    Both x = both_floats(two, values, ROWS * IN), weight = both_normal(two, OUT * IN, 2);
    Both bias = both_normal(two, OUT, 3);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        Both y = both_start(two, ROWS * OUT, false);
        two_kernels(two, TESTED)
            ->matrix->linear((Compute){PRECISION_F32, NULL},
                             (LinearShape){ROWS, OUT, IN, &(ReluMask){0}, 0}, x.of[TESTED],
                             weight.of[TESTED], with_bias ? bias.of[TESTED] : NULL, y.of[TESTED]);
        const float *got = both_read(y, TESTED, y.bytes);
        for (size_t i = 0; i < ROWS * OUT; i++)
            if ((i / OUT == 3) != (bool)isnan(got[i]) || got[i] < 0)
                fail_msg("y[%zu] is %.9g", i, (double)got[i]);
    }
    two_free(two);
}

// Results are equal whether bias and relu are computed inside the products or by separate kernels.
static void layers(void **context) {
    const State *state = *context;
    TwoDevices *two = state->two;
    enum { ROWS = 33, IN = 40, OUT = 150, NEXT = 7 };
    Both x = both_normal(two, ROWS * IN, 1), weight = both_normal(two, OUT * IN, 2);
    Both bias = both_normal(two, OUT, 3), next = both_normal(two, NEXT * OUT, 4);
    Both dnext = both_normal(two, ROWS * NEXT, 5), dy = both_start(two, ROWS * OUT, false);
    Both y = both_start(two, ROWS * OUT, false), db = both_start(two, OUT, false);
    Both dweight = both_start(two, OUT * IN, false);
    const Compute how = {PRECISION_F32, NULL};
    for (int d = 0; d < DEVICES; d++) {
        const MatrixKernels *matrix = two_kernels(two, d)->matrix;
        ReluMask mask = {0};
        LinearShape shape = {ROWS, OUT, IN, &mask, 0};
        mask.bits = two_take(two, two->of[d], NULL, matrix->relu_mask(PRECISION_F32, shape));
        matrix->linear(how, shape, x.of[d], weight.of[d], bias.of[d], y.of[d]);
        if (d == TESTED && *state->blas)
            assert_int_equal(mask.written, strcmp(state->blas, "relu") == 0);
        matrix->linear_relu_gradient(how, (LinearShape){ROWS, NEXT, OUT, NULL, 0}, dnext.of[d],
                                     next.of[d], &mask, dy.of[d]);
        matrix->linear_weight_gradient(how, shape, dy.of[d], x.of[d],
                                       &(LinearGradient){dweight.of[d], db.of[d], false, false});
    }
    both_check(y, 1e-6, "linear with relu");
    both_check(dy, 1e-6, "linear_relu_gradient");
    both_check(dweight, 1e-6, "linear_weight_gradient");
    both_check(db, 1e-6, "the gradient of a bias with its weight");
    two_free(two);
}

// A sum of 1 whose partial sums are not representable in 16 bits (2049; in bf16 257): partial sums
// must be added in float32.
static void sums_in_16_bits(void **context) {
    enum { ROWS = 8, OUT = 8, DEPTH = 64 };
    const LinearShape shape = {ROWS, OUT, DEPTH, NULL, 0};
    TwoDevices *two = ((const State *)*context)->two;
    for (int p = first_half(two->of[TESTED]); p <= PRECISION_F16; p++) {
        const bool f16 = p == PRECISION_F16;
        const uint16_t one = f16 ? half_to_f16(1) : half_to_bf16(1);
        const uint16_t large = f16 ? half_to_f16(2048) : half_to_bf16(256);
        uint16_t x[ROWS * DEPTH], weight[OUT * DEPTH] = {0};
        for (int i = 0; i < ROWS * DEPTH; i++) x[i] = one;
        for (int o = 0; o < OUT * DEPTH; o += DEPTH) {
            weight[o] = large;
            weight[o + 1] = one;
            weight[o + DEPTH - 1] = large | 0x8000; // negative
        }
        Both rows = both_bytes(two, x, sizeof x), narrow = both_bytes(two, weight, sizeof weight);
        Both y = both_bytes(two, NULL, ROWS * OUT * sizeof(uint16_t));
        for (int d = 0; d < DEVICES; d++) {
            const HalfKernels *k = two_kernels(two, d)->halves;
            size_t room = k->linear_workspace((Precision)p, shape);
            const Compute how = {(Precision)p, two_take(two, two->of[d], NULL, room)};
            k->linear(how, shape, rows.of[d], narrow.of[d], NULL, y.of[d]);
        }
        both_check_bytes(y, "2048 + 1 - 2048");
        two_free(two);
    }
}

// A collective's kernels have priority over compute kernels, because other GPUs wait for them.
static void communication_goes_first(void **context) {
    two_kernels(((const State *)*context)->two, TESTED); // sets the thread's current device
    const CudaDevice *cuda = cuda_current();
    int least, greatest, compute, communication;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA(cudaStreamGetPriority(cuda->compute, &compute));
    CUDA(cudaStreamGetPriority(cuda->communication, &communication));
    assert_int_equal(communication, greatest);
    assert_true(communication < compute); // a lower number is a higher priority
    (void)least;
}

static bool is_of_blas(const char *word) {
    return strcmp(word, "relu") == 0 || strcmp(word, "epilogues") == 0 || strcmp(word, "runs") == 0;
}

// Copies to two devices, the first of which is busy: the second copy does not wait.
static void copies_run_at_once(void **context) {
    (void)context;
    enum { COUNT = 1 << 14, KERNELS = 100, TRIES = 20 };
    Error err = {0};
    Device *devices[3];
    float *memory[3];
    for (int i = 0; i < 3; i++) {
        devices[i] = device_open("cuda:0", &err);
        if (!devices[i]) fail_msg("%s", err.message);
        memory[i] = device_alloc(devices[i], COUNT * sizeof(float));
    }
    const DeviceCopy copies[] = {{devices[1], memory[1]}, {devices[2], memory[2]}};
    const CudaDevice *busy = devices[1]->state;
    DeviceEvent *copied = device_event_create(devices[2]);
    int overtakes = 0;
    for (int n = 0; n < TRIES; n++) {
        for (int i = 0; i < KERNELS; i++)
            device_kernels(devices[1])->elementwise->fill(memory[1], 1, COUNT);
        device_copy_to_all(copies, 2, devices[0], memory[0], COUNT * sizeof(float));
        device_event_record(copied);
        device_event_wait(copied);
        overtakes += cudaStreamQuery(busy->compute) == cudaErrorNotReady;
    }
    assert_true(overtakes > 0);
    device_event_close(copied);
    for (int i = 0; i < 3; i++) {
        device_free(devices[i], memory[i], COUNT * sizeof(float));
        device_close(devices[i]);
    }
}

int main(int argc, char **argv) {
    const char *word = argc > 2 ? argv[2] : "";
    State state = {.word = is_of_blas(word) ? "" : word, .blas = is_of_blas(word) ? word : ""};
    bool keeps = strcmp(word, "relu") == 0;
    setenv("DDPC_EMULATED_CUDNN_REFUSES", state.word, 1);
    setenv("DDPC_EMULATED_BLAS_REFUSES", keeps ? "" : state.blas, 1);
    setenv("DDPC_EMULATED_RELU_NAN", *state.blas ? "1" : "0", 1);
    TwoDevices two = two_open(argc, argv);
    state.two = &two;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(exact_plans, &state),
        cmocka_unit_test_prestate(plans_in_16_bits, &state),
        cmocka_unit_test_prestate(results, &state),
        cmocka_unit_test_prestate(a_fallback_is_told_once, &state),
        cmocka_unit_test_prestate(relu_keeps_nan, &state),
        cmocka_unit_test_prestate(layers, &state),
        cmocka_unit_test_prestate(sums_in_16_bits, &state),
        cmocka_unit_test_prestate(communication_goes_first, &state),
        cmocka_unit_test(copies_run_at_once),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
