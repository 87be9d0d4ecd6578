/* test_half.c: 16-bit tensors on the tape of the device given as argument ("ref" by default): their
 * memory, the operations whose inputs and outputs stay in float32, and gradients.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/half_types.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/ops_half.h"
#include "common/nn/tuple.h"

static const char *name = "ref";

static Device *open_device(const char *of) {
    Error err = {0};
    Device *device = device_open(of, &err);
    CHECK_OK(device, err);
    return device;
}

static Tensor *random_tensor(Tape *tape, int ndim, const size_t *shape, uint64_t which,
                             float size) {
    size_t count = 1;
    for (int i = 0; i < ndim; i++) count *= shape[i];
    float *host = memory_zalloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++) host[i] = size * rng_normal(which, RNG_STREAM_TEST, i);
    Tensor *x = tape_input(tape, DTYPE_F32, ndim, shape, host);
    free(host);
    return x;
}

static Tensor *random_input(Tape *tape, const size_t shape[4]) {
    return random_tensor(tape, 4, shape, 3, 1);
}

// ---- memory -----------------------------------------------------------------------------------

static const size_t SHAPE[] = {4, 16, 32, 32};

// relu(bn2(conv2(relu(bn1(conv1 x))))), with x's number of channels throughout.
typedef struct Chain {
    Module *part[4];
} Chain;

static Chain chain_open(Device *device) {
    Chain chain = {{layer_conv2d(device, SHAPE[1], SHAPE[1], 3, 1, 1, false),
                    layer_batch_norm(device, SHAPE[1]),
                    layer_conv2d(device, SHAPE[1], SHAPE[1], 3, 1, 1, false),
                    layer_batch_norm(device, SHAPE[1])}};
    module_initialize(chain.part[0], 1);
    module_initialize(chain.part[2], 2);
    return chain;
}

// Bytes of activations and their gradients after a step, without x, per element of the two
// convolutions' outputs.
static double bytes_per_output(Precision precision) {
    Error err = {0};
    Device *device = open_device(name);
    Chain chain = chain_open(device);
    Tape *tape = tape_create(device, NULL);
    tape->precision = precision;
    Tensor *x =
        random_input(tape, (size_t[]){4, SHAPE[1], 64, 64}); // large, so that padding is small
    size_t before = device->bytes;
    Tensor *y = module_forward(chain.part[0], tape, x);
    y = layer_batch_norm_relu(chain.part[1], tape, y, NULL);
    y = module_forward(chain.part[2], tape, y);
    y = layer_batch_norm_relu(chain.part[3], tape, y, NULL);
    Tensor *loss = op_mean(tape, op_flatten(tape, op_max_pool(tape, y, 8, 8, 0)));
    CHECK_OK(tape_error(tape, &err) == 0, err);
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    double bytes = (double)(device->bytes - before - tape->scratch_bytes);
    double outputs = 2 * (double)tensor_count(x);
    tape_close(tape);
    for (int i = 0; i < 4; i++) module_close(chain.part[i]);
    device_close(device);
    return bytes / outputs;
}

// Two tensors per convolution, gradients of at most two tensors at a time and, in 16 bits, a copy
// of x.
static void half_the_memory(void **state) {
    (void)state;
    double wide = bytes_per_output(PRECISION_F32), narrow = bytes_per_output(PRECISION_F16);
    printf("%s: bytes stored per output of a convolution: %.2f in float32, %.2f in fp16\n", name,
           wide, narrow);
    assert_true(wide > 12 && wide < 13);
    assert_true(narrow > 7 && narrow < 7.6);
}

// ---- types of outputs -------------------------------------------------------------------------

static void expect(const Tensor *x, DType dtype, const char *what) {
    if (!x || x->dtype != dtype) fail_msg("%s is %s", what, x ? dtype_name(x->dtype) : "nothing");
}

static Tensor *rows_of_ones(Tape *tape, size_t rows, size_t columns) {
    Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){rows, columns});
    device_kernels(tape->device)->elementwise->fill(tensor_f32(x), 1.0f, rows * columns);
    return x;
}

static Tensor *ones(Tape *tape, size_t count) {
    Tensor *x = tape_tensor(tape, DTYPE_F32, 1, &count);
    device_kernels(tape->device)->elementwise->fill(tensor_f32(x), 1.0f, count);
    return x;
}

static void types(void **state) {
    (void)state;
    Device *device = open_device(name);
    Chain chain = chain_open(device);
    Tape *tape = tape_create(device, NULL);
    for (int p = first_half(device); p <= PRECISION_F16; p++) {
        DType half = p == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F16;
        tape_reset(tape);
        tape->precision = (Precision)p;
        Tensor *x = random_input(tape, SHAPE), *y = module_forward(chain.part[0], tape, x);
        expect(y, half, "a convolution");
        expect(module_forward(chain.part[1], tape, y), half, "batch norm");
        expect(op_relu(tape, y), half, "relu");
        expect(op_add(tape, y, y), half, "a sum");
        expect(op_add(tape, y, x), DTYPE_F32, "a sum with float32");
        expect(op_add(tape, x, y), DTYPE_F32, "a sum of float32");
        expect(layer_batch_norm_relu(chain.part[1], tape, y, x), DTYPE_F32, "a residual");
        expect(op_max_pool(tape, y, 2, 2, 0), half, "max_pool");
        expect(op_avg_pool(tape, y, 2, 2, 0), half, "avg_pool");
        expect(op_upsample2x(tape, y), half, "upsample2x");
        expect(op_shortcut(tape, y, 20, 2), half, "shortcut");
        expect(op_flatten(tape, y), DTYPE_F32, "flatten");
        expect(op_flatten(tape, op_avg_pool(tape, y, 32, 1, 0)), half, "flatten of single pixels");
        expect(op_activation(tape, ACTIVATION_GELU, y), half, "gelu");
        expect(op_activation(tape, ACTIVATION_GELU, op_float32(tape, y)), DTYPE_F32,
               "gelu of float32");
        expect(op_mean(tape, y), DTYPE_F32, "the mean");
        expect(tuple_create(tape, &y, 1)->items[0], DTYPE_F32, "an item of a tuple");
        expect(op_max_pool(tape, x, 2, 2, 0), DTYPE_F32, "max_pool of float32");
        tape->training = false; // gradients through running statistics
        expect(module_forward(chain.part[1], tape, y), DTYPE_F32, "batch norm in evaluation");
        tape->recording = false;
        expect(module_forward(chain.part[1], tape, y), half, "batch norm without gradients");
        tape->recording = tape->training = true;
        Tensor *rows = op_flatten(tape, x), *weight = rows_of_ones(tape, 8, rows->shape[1]);
        Tensor *z = op_linear(tape, rows, weight, NULL);
        expect(z, half, "linear");
        expect(op_linear_relu(tape, z, rows_of_ones(tape, 3, 8), NULL), half, "linear with relu");
        expect(op_linear_add(tape, rows, weight, NULL, z), half, "linear with a residual");
        expect(op_flatten(tape, z), half, "flatten of rows");
        expect(op_add(tape, op_float32(tape, z), z), DTYPE_F32, "a sum of rows with float32");
        expect(op_add(tape, z, op_float32(tape, z)), DTYPE_F32, "a sum of rows of float32");
        expect(op_add(tape, z, z), half, "a sum of rows");
        expect(op_relu(tape, op_clone(tape, z)), half, "relu of rows");
        expect(op_layer_norm(tape, z, ones(tape, 8), ones(tape, 8)), half, "layer_norm");
        Tensor *sum = rows_of_ones(tape, z->shape[0], 8);
        expect(op_add_layer_norm(tape, &sum, z, ones(tape, 8), ones(tape, 8)), half,
               "layer_norm of a sum");
        expect(sum, DTYPE_F32, "the sum");
        Tensor *wide = op_float32(tape, z);
        expect(op_add_layer_norm(tape, &sum, wide, ones(tape, 8), ones(tape, 8)), half,
               "layer_norm of a sum with float32");
        expect(sum, DTYPE_F32, "the sum with float32");
        expect(tuple_keep(tape, &z, 1)->items[0], half, "a kept item of a tuple");
        Tensor *qkv = rows_of_ones(tape, 6, 12);
        expect(op_attention(tape, qkv, 3, 2), half, "attention of float32");
        expect(op_attention(tape, op_half(tape, qkv), 3, 2), half, "attention");
        Tensor *back = op_float32(tape, op_half(tape, ones(tape, 7))); // one dimension
        float numbers[7];
        device_copy(NULL, numbers, device, tensor_f32(back), sizeof numbers);
        for (int i = 0; i < 7; i++) assert_true(numbers[i] == 1);
    }
    tape_close(tape);
    for (int i = 0; i < 4; i++) module_close(chain.part[i]);
    device_close(device);
}

// A layer's bias begins at the first multiple of 8 elements behind its padded weight.
static void parameters_are_contiguous(void **state) {
    (void)state;
    static const struct {
        size_t in, out, padding, bias;
    } cases[] = {{3, 3, 0, 16}, {1, 1, 0, 8},  {4, 2, 0, 8},
                 {5, 3, 0, 16}, {5, 3, 5, 40}, {9, 7, 2, 88}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const LinearShape shape = {
            .in = cases[i].in, .out = cases[i].out, .padding = cases[i].padding};
        assert_int_equal(linear_narrow_bias(shape), cases[i].bias);
        assert_int_equal(linear_narrow_count(shape), cases[i].bias + shape.out);
    }
}

// ---- gradients with several consumers ---------------------------------------------------------

// Gradients of part[0]'s weight and of x in a graph where every pair of 16-bit paths joins: sums of
// 16-bit and float32 gradients, in either order.
static void mixed_gradients(Device *device, Precision precision, float *dweight, float *dx) {
    Error err = {0};
    Chain chain = chain_open(device);
    Tape *tape = tape_create(device, NULL);
    tape->precision = precision;
    Tensor *x = random_input(tape, SHAPE);
    x->requires_grad = true;
    Tensor *first = op_activation(tape, ACTIVATION_GELU, x);
    Tensor *y = module_forward(chain.part[0], tape, first);
    Tensor *z = layer_batch_norm_relu(chain.part[1], tape, y, first);
    z = op_add(tape, op_add(tape, y, first), op_add(tape, z, op_relu(tape, op_add(tape, y, y))));
    z = op_add(tape, z, op_upsample2x(tape, op_avg_pool(tape, y, 2, 2, 0)));
    z = op_add(tape, z, op_upsample2x(tape, op_shortcut(tape, y, SHAPE[1], 2)));
    z = layer_batch_norm_relu(chain.part[3], tape, module_forward(chain.part[2], tape, z), y);
    Tensor *target = random_input(tape, SHAPE);
    Tensor *loss = op_squared_error(tape, z, target, 1024); // a divisor that suits fp16's range
    CHECK_OK(tape_error(tape, &err) == 0, err);
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    const Tensor *weight = module_parameter(chain.part[0], 0);
    device_copy(NULL, dweight, device, weight->grad, tensor_bytes(weight));
    device_copy(NULL, dx, device, x->grad, tensor_bytes(x));
    tape_close(tape);
    for (int i = 0; i < 4; i++) module_close(chain.part[i]);
}

// Relative distance of two gradients. Most of it is not rounding itself, but a relu whose input is
// near 0 and rounds to the other side.
static void compare(const float *a, const float *b, size_t count, double tolerance,
                    const char *what) {
    double apart = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        apart += pow((double)a[i] - (double)b[i], 2);
        length += pow((double)b[i], 2);
    }
    if (!(apart <= tolerance * tolerance * length) || length == 0)
        fail_msg("%s: %g apart, of length %g", what, sqrt(apart), sqrt(length));
}

static void gradients_meet(void **state) {
    (void)state;
    enum { WEIGHTS = 16 * 16 * 9, INPUTS = 4 * 16 * 32 * 32 };
    float *wanted = memory_zalloc((WEIGHTS + INPUTS) * sizeof *wanted);
    float *got = memory_zalloc((WEIGHTS + INPUTS) * sizeof *got);
    Device *cpu = open_device("cpu"), *device = open_device(name);
    mixed_gradients(cpu, PRECISION_F32, wanted, wanted + WEIGHTS);
    for (int p = first_half(device); p <= PRECISION_F16; p++) {
        double tolerance = p == PRECISION_BF16 ? 0.06 : 0.02;
        mixed_gradients(device, (Precision)p, got, got + WEIGHTS);
        compare(got, wanted, WEIGHTS, tolerance, "the weight's gradient");
        compare(got + WEIGHTS, wanted + WEIGHTS, INPUTS, tolerance, "the input's gradient");
    }
    device_close(cpu);
    device_close(device);
    free(wanted);
    free(got);
}

// Gradient through attention, whose query, key and value have another consumer: two texts of five
// tokens, two heads.
enum { TOKENS = 10, WIDTH = 24 };

static void attention_gradient(Device *device, Precision precision, float *dx) {
    Error err = {0};
    Tape *tape = tape_create(device, NULL);
    tape->precision = precision;
    Tensor *x = random_tensor(tape, 2, (size_t[]){TOKENS, WIDTH}, 4, 1);
    x->requires_grad = true;
    Tensor *qkv =
        op_linear(tape, x, random_tensor(tape, 2, (size_t[]){WIDTH, WIDTH}, 5, 0.2f), NULL);
    Tensor *y = op_attention(tape, qkv, 5, 2);
    Tensor *other = random_tensor(tape, 2, (size_t[]){WIDTH / 3, WIDTH}, 6, 0.2f);
    y = op_add(tape, y, op_linear(tape, qkv, other, NULL));
    Tensor *target = random_tensor(tape, 2, (size_t[]){TOKENS, WIDTH / 3}, 7, 1);
    Tensor *loss = op_squared_error(tape, y, target, 16);
    CHECK_OK(tape_error(tape, &err) == 0, err);
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    device_copy(NULL, dx, device, x->grad, tensor_bytes(x));
    tape_close(tape);
}

static void attention_and_another_reader(void **state) {
    (void)state;
    float wanted[TOKENS * WIDTH], got[TOKENS * WIDTH];
    Device *cpu = open_device("cpu"), *device = open_device(name);
    attention_gradient(cpu, PRECISION_F32, wanted);
    for (int p = first_half(device); p <= PRECISION_F16; p++) {
        attention_gradient(device, (Precision)p, got);
        compare(got, wanted, TOKENS * WIDTH, p == PRECISION_BF16 ? 0.04 : 0.005,
                "the gradient through attention");
    }
    device_close(cpu);
    device_close(device);
}

// Gradients of a residual stream and of its branch, dx[2]: through the sum's layer norm, another
// consumer of the sum and, with `also`, another consumer of the branch.
static void stream_gradients(Device *device, Precision precision, bool also, float *dx[2]) {
    Error err = {0};
    const size_t square[] = {WIDTH, WIDTH};
    Tape *tape = tape_create(device, NULL);
    tape->precision = precision;
    Tensor *x[2], *weight = random_tensor(tape, 2, square, 4, 0.2f);
    for (int i = 0; i < 2; i++) {
        x[i] = random_tensor(tape, 2, (size_t[]){TOKENS, WIDTH}, 5 + (uint64_t)i, 1);
        x[i]->requires_grad = true;
    }
    Tensor *sum = x[0], *branch = op_linear(tape, x[1], weight, NULL);
    Tensor *y = op_add_layer_norm(tape, &sum, branch, random_tensor(tape, 1, square, 7, 1),
                                  random_tensor(tape, 1, square, 8, 1));
    y = op_add(tape, sum, op_linear(tape, y, random_tensor(tape, 2, square, 9, 0.2f), NULL));
    if (also) y = op_add(tape, y, op_linear(tape, branch, weight, NULL));
    Tensor *target = random_tensor(tape, 2, (size_t[]){TOKENS, WIDTH}, 10, 1);
    Tensor *loss = op_squared_error(tape, y, target, 16);
    CHECK_OK(tape_error(tape, &err) == 0, err);
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    for (int i = 0; i < 2; i++) device_copy(NULL, dx[i], device, x[i]->grad, tensor_bytes(x[i]));
    tape_close(tape);
}

static void a_branch_of_a_stream(void **state) {
    (void)state;
    float wanted[2][TOKENS * WIDTH], got[2][TOKENS * WIDTH];
    Device *cpu = open_device("cpu"), *device = open_device(name);
    for (int also = 0; also < 2; also++) {
        stream_gradients(cpu, PRECISION_F32, also, (float *[]){wanted[0], wanted[1]});
        for (int p = first_half(device); p <= PRECISION_F16; p++) {
            const double tolerance = p == PRECISION_BF16 ? 0.04 : 0.005;
            stream_gradients(device, (Precision)p, also, (float *[]){got[0], got[1]});
            compare(got[0], wanted[0], TOKENS * WIDTH, tolerance, "the stream's gradient");
            compare(got[1], wanted[1], TOKENS * WIDTH, tolerance, "the gradient of a branch");
        }
    }
    device_close(cpu);
    device_close(device);
}

static void a_branch_has_the_shape_of_its_stream(void **state) {
    (void)state;
    Error err = {0};
    Device *device = open_device(name);
    Tape *tape = tape_create(device, NULL);
    tape->precision = (Precision)first_half(device);
    Tensor *sum = random_tensor(tape, 2, (size_t[]){3, WIDTH}, 1, 1);
    Tensor *branch = op_half(tape, random_tensor(tape, 2, (size_t[]){2, WIDTH}, 2, 1));
    Tensor *weight = random_tensor(tape, 1, (size_t[]){WIDTH}, 3, 1);
    assert_null(op_add_layer_norm(tape, &sum, branch, weight, weight));
    assert_int_equal(tape_error(tape, &err), -1);
    assert_non_null(strstr(err.message, ": a branch [2, 24] does not fit [3, 24]"));
    tape_close(tape);
    device_close(device);
}

// ---- an output layer with padded rows, and its loss -------------------------------------------

enum { ROWS = 6, IN = 8, CLASSES = 11, MULTIPLE = 16 };

typedef struct Head {
    Device *device;
    Tape *tape;
    Tensor *x, *weight, *logits, *target, *loss;
    int64_t *hits; // [1], device memory
} Head;

typedef struct HeadResult {
    float loss, dx[ROWS * IN], dweight[CLASSES * IN];
    int64_t hits;
} HeadResult;

static void head_open(Head *head, const char *device_name, Precision precision, size_t multiple) {
    int64_t labels[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        labels[i] = (int64_t)rng_below(8, RNG_STREAM_TEST, i, CLASSES);
    *head = (Head){.device = open_device(device_name)};
    head->tape = tape_create(head->device, NULL);
    head->tape->precision = precision;
    head->x = random_tensor(head->tape, 2, (size_t[]){ROWS, IN}, 4, 1);
    head->weight = random_tensor(head->tape, 2, (size_t[]){CLASSES, IN}, 5, 1);
    head->x->requires_grad = head->weight->requires_grad = true;
    head->target = tape_input(head->tape, DTYPE_I64, 1, (size_t[]){ROWS}, labels);
    head->logits = op_linear_padded(head->tape, head->x, head->weight, multiple);
    head->hits = device_alloc(head->device, sizeof *head->hits);
}

static void head_close(Head *head) {
    device_free(head->device, head->hits, sizeof *head->hits);
    tape_close(head->tape);
    device_close(head->device);
}

static HeadResult head_step(Head *head, bool in_place) {
    Error err = {0};
    HeadResult result = {0};
    head->loss = in_place ? op_cross_entropy_and_hits(head->tape, head->logits, head->target, ROWS,
                                                      head->hits)
                          : op_cross_entropy(head->tape, head->logits, head->target, ROWS);
    CHECK_OK(tape_error(head->tape, &err) == 0, err);
    result.loss = tensor_item(head->loss);
    CHECK_OK(tape_backward(head->tape, head->loss, &err) == 0, err);
    device_copy(NULL, result.dx, head->device, head->x->grad, sizeof result.dx);
    device_copy(NULL, result.dweight, head->device, head->weight->grad, sizeof result.dweight);
    if (in_place) device_copy(NULL, &result.hits, head->device, head->hits, sizeof result.hits);
    return result;
}

// With and without padding, in place and through float32: equal but for the order of sums (cuBLASLt
// chooses a kernel by the number of columns), and close to the CPU's.
static void a_padded_head_is_a_head(void **state) {
    (void)state;
    Head cpu, device, plain;
    head_open(&cpu, "cpu", PRECISION_F32, MULTIPLE);
    const HeadResult wanted = head_step(&cpu, true);
    assert_int_equal(cpu.logits->pitch, 0);
    assert_in_range(wanted.hits, 1, ROWS - 1);
    Device *opened = open_device(name);
    for (int p = first_half(opened); p <= PRECISION_F16; p++) {
        head_open(&plain, name, (Precision)p, 1);
        const HeadResult usual = head_step(&plain, false);
        assert_int_equal(plain.logits->pitch, 0);
        for (int in_place = 0; in_place < 2; in_place++) {
            head_open(&device, name, (Precision)p, MULTIPLE);
            assert_int_equal(device.logits->shape[1], CLASSES);
            assert_int_equal(device.logits->pitch, MULTIPLE);
            HeadResult got = head_step(&device, in_place);
            // Reading the logits again fails if backward has overwritten them with their gradient.
            Tensor *again = op_float32(device.tape, device.logits);
            assert_int_equal(tape_error(device.tape, &(Error){0}) != 0,
                             in_place && p == PRECISION_BF16);
            assert_non_null(again);
            if (in_place) assert_int_equal(got.hits, wanted.hits);
            assert_true(got.loss == usual.loss);
            compare(got.dx, usual.dx, ROWS * IN, 1e-6, "dx, padded");
            compare(got.dweight, usual.dweight, CLASSES * IN, 1e-6, "dweight, padded");
            double bound = p == PRECISION_BF16 ? 0.04 : 0.005;
            compare(got.dx, wanted.dx, ROWS * IN, bound, "dx");
            compare(got.dweight, wanted.dweight, CLASSES * IN, bound, "dweight");
            head_close(&device);
        }
        head_close(&plain);
    }
    device_close(opened);
    head_close(&cpu);
}

// Other operations read the logits without the padding; evaluation does not overwrite them.
static void padded_logits_have_other_readers(void **state) {
    (void)state;
    Error err = {0};
    Device *opened = open_device(name);
    const Precision half = first_half(opened);
    Head device;
    head_open(&device, name, half, MULTIPLE);
    Tensor *readers[] = {
        op_float32(device.tape, device.logits), op_add(device.tape, device.logits, device.logits),
        op_activation(device.tape, ACTIVATION_RELU, device.logits),
        op_flatten(device.tape, device.logits), op_half(device.tape, device.logits)};
    CHECK_OK(tape_error(device.tape, &err) == 0, err);
    float plain[ROWS * CLASSES], found[ROWS * CLASSES];
    device_copy(NULL, plain, device.device, tensor_f32(readers[0]), sizeof plain);
    for (size_t k = 1; k < sizeof readers / sizeof *readers; k++) {
        const Tensor *wide = op_float32(device.tape, readers[k]);
        device_copy(NULL, found, device.device, tensor_f32(wide), sizeof found);
        for (size_t i = 0; i < ROWS * CLASSES; i++) {
            float relu = plain[i] > 0 ? plain[i] : 0;
            if (found[i] != (k == 1 ? 2 * plain[i] : k == 2 ? relu : plain[i]))
                fail_msg("reader %zu, element %zu: %g of %g", k, i, (double)found[i],
                         (double)plain[i]);
        }
    }
    device.tape->recording = false;
    float loss = tensor_item(
        op_cross_entropy_and_hits(device.tape, device.logits, device.target, ROWS, device.hits));
    assert_non_null(device.logits->data);
    check_close(
        (double)loss,
        (double)tensor_item(op_cross_entropy(device.tape, device.logits, device.target, ROWS)),
        1e-6, "the loss in evaluation");
    head_close(&device);
    device_close(opened);
}

int main(int argc, char **argv) {
    if (argc > 1) name = argv[1];
    if (device_available(name) == 0) return STATUS_SKIPPED;
    const struct CMUnitTest tests[] = {cmocka_unit_test(half_the_memory),
                                       cmocka_unit_test(types),
                                       cmocka_unit_test(gradients_meet),
                                       cmocka_unit_test(attention_and_another_reader),
                                       cmocka_unit_test(a_branch_of_a_stream),
                                       cmocka_unit_test(a_branch_has_the_shape_of_its_stream),
                                       cmocka_unit_test(parameters_are_contiguous),
                                       cmocka_unit_test(a_padded_head_is_a_head),
                                       cmocka_unit_test(padded_logits_have_other_readers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
