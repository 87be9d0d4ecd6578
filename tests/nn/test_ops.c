/* test_ops.c: every operation's backward against central differences, on both kernel tables, and in
 * 16 bits against float32. Invalid operands: test_ops_refusals.c. The tape's contract: test_tape.c.
 */
#include "tests/rigs/check.h"

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/ops.h"

enum { MAX_INPUTS = 4 };

static Tensor *random_tensor(Tape *tape, int ndim, const size_t *shape, uint64_t stream) {
    Tensor *tensor = tape_tensor(tape, DTYPE_F32, ndim, shape);
    for (size_t i = 0; i < tensor_count(tensor); i++)
        tensor_f32(tensor)[i] = rng_normal(7, stream, i);
    return tensor;
}

// A case builds its graph from leaves; equal streams draw equal leaves.
typedef struct Case {
    const char *name;
    int input_count;
    struct {
        int ndim;
        size_t shape[4];
    } inputs[MAX_INPUTS];
    Tensor *(*build)(Tape *tape, Tensor **leaves);
} Case;

static Tensor *build_linear(Tape *tape, Tensor **x) {
    return op_linear(tape, x[0], x[1], x[2]);
}
static Tensor *build_linear_relu(Tape *tape, Tensor **x) {
    return op_linear(tape, op_linear_relu(tape, x[0], x[1], x[2]), x[3], NULL);
}
static Tensor *build_linear_then_relu(Tape *tape, Tensor **x) {
    return op_linear(tape, op_relu(tape, op_linear(tape, x[0], x[1], x[2])), x[3], NULL);
}
// A relu with two linear consumers, and a relu added to a layer's output of it.
static Tensor *read_more(Tape *tape, Tensor *y, Tensor *weight) {
    Tensor *once = op_linear(tape, y, weight, NULL), *twice = op_linear(tape, y, weight, NULL);
    return op_add(tape, y, op_add(tape, once, twice));
}
static Tensor *build_linear_relu_more(Tape *tape, Tensor **x) {
    return read_more(tape, op_linear_relu(tape, x[0], x[1], x[2]), x[3]);
}
static Tensor *build_linear_then_relu_more(Tape *tape, Tensor **x) {
    return read_more(tape, op_relu(tape, op_linear(tape, x[0], x[1], x[2])), x[3]);
}
static Tensor *build_linear_add(Tape *tape, Tensor **x) { // accumulates into the residual
    Tensor *y = op_linear_add(tape, x[0], x[1], x[2], x[3]);
    return op_linear_add(tape, x[0], x[1], NULL, op_add(tape, y, x[3]));
}
static Tensor *build_relu_linear_add(Tape *tape, Tensor **x) { // the residual is the relu
    Tensor *y = op_linear_relu(tape, x[0], x[1], x[2]);
    return op_linear_add(tape, y, x[3], NULL, y);
}
static Tensor *build_conv(Tape *tape, Tensor **x) {
    return op_conv2d(tape, x[0], x[1], x[2], 2, 1);
}
static Tensor *build_conv_plain(Tape *tape, Tensor **x) {
    return op_conv2d(tape, x[0], x[1], NULL, 1, 1);
}
// The state of a batch norm with weight x[1] and bias x[2].
static BatchNormState batch_norm_state(Tape *tape, Tensor **x) {
    size_t c = x[1]->shape[0];
    Tensor *mean = tape_tensor(tape, DTYPE_F32, 1, &c), *var = tape_tensor(tape, DTYPE_F32, 1, &c);
    Tensor *count = tape_tensor(tape, DTYPE_I64, 0, NULL);
    for (size_t i = 0; i < c; i++) {
        tensor_f32(mean)[i] = 0.1f * (float)i;
        tensor_f32(var)[i] = 1.5f;
    }
    *(int64_t *)count->data = 0;
    return (BatchNormState){x[1], x[2], mean, var, count, 0.1f, 1e-5f};
}
static Tensor *build_batch_norm(Tape *tape, Tensor **x) {
    const BatchNormState state = batch_norm_state(tape, x);
    return op_batch_norm(tape, x[0], &state);
}
static Tensor *build_batch_norm_relu(Tape *tape, Tensor **x) {
    const BatchNormState state = batch_norm_state(tape, x);
    return op_batch_norm_relu(tape, x[0], &state, NULL);
}
static Tensor *build_batch_norm_residual(Tape *tape, Tensor **x) {
    const BatchNormState state = batch_norm_state(tape, x);
    return op_batch_norm_relu(tape, x[0], &state, x[3]);
}
static Tensor *build_norm_then_relu(Tape *tape, Tensor **x) {
    return op_relu(tape, build_batch_norm(tape, x));
}
static Tensor *build_norm_add_relu(Tape *tape, Tensor **x) {
    return op_relu(tape, op_add(tape, build_batch_norm(tape, x), x[3]));
}
static Tensor *build_relu(Tape *tape, Tensor **x) {
    return op_relu(tape, op_add(tape, x[0], x[1])); // relu may not overwrite a leaf
}
static Tensor *build_shared(Tape *tape, Tensor **x) { // x + x through two views of x
    return op_flatten(tape, op_add(tape, x[0], op_add(tape, x[0], x[1])));
}
static Tensor *build_max_pool(Tape *tape, Tensor **x) {
    return op_max_pool(tape, x[0], 3, 2, 1);
}
static Tensor *build_avg_pool(Tape *tape, Tensor **x) {
    return op_avg_pool(tape, x[0], 2, 2, 0);
}
static Tensor *build_shortcut(Tape *tape, Tensor **x) {
    return op_shortcut(tape, x[0], 7, 2);
}

static Tensor *build_upsample(Tape *tape, Tensor **x) {
    return op_upsample2x(tape, x[0]);
}
// The mean loss of 24 pixels, every fourth of which is ignored.
static Tensor *pixel_loss(Tape *tape, Tensor *logits, const Mining *mining) {
    int64_t labels[24];
    for (int i = 0; i < 24; i++) labels[i] = i % 4 == 3 ? -1 : i * 7 % 5;
    Tensor *target = tape_input(tape, DTYPE_I64, 3, (size_t[]){2, 3, 4}, labels);
    size_t kept;
    Tensor *sum = op_pixel_cross_entropy(tape, logits, target, mining, &kept);
    return op_divide(tape, sum, (double)kept);
}
static Tensor *build_pixels(Tape *tape, Tensor **x) {
    return pixel_loss(tape, x[0], NULL);
}
static Tensor *build_hard_pixels(Tape *tape, Tensor **x) {
    return pixel_loss(tape, x[0], &(Mining){.threshold = 1.5});
}
static Tensor *build_hardest_pixels(Tape *tape, Tensor **x) {
    return pixel_loss(tape, x[0], &(Mining){.threshold = 9, .least = 5});
}
static Tensor *build_divide(Tape *tape, Tensor **x) { // two uses: accumulates
    return op_add(tape, op_divide(tape, x[0], 3), op_divide(tape, x[0], -7));
}
static Tensor *build_mean(Tape *tape, Tensor **x) { // two uses: accumulates
    return op_add(tape, op_mean(tape, x[0]), op_mean(tape, op_add(tape, x[0], x[1])));
}

static Tensor *build_answers(Tape *tape, Tensor **x) { // 3 rows, 4 classes
    const float targets[] = {1, 0, 0, 1, 0.25f, 1, 0, 0, 1, 1, 0, 0.5f};
    Tensor *target = tape_input(tape, DTYPE_F32, 2, (size_t[]){3, 4}, targets);
    Tensor *weight = tape_input(tape, DTYPE_F32, 1, (size_t[]){4}, (float[]){1, 3, 0.5f, 7});
    Tensor *half = op_binary_cross_entropy(tape, x[0], target, weight, 5);
    return op_add(tape, half, op_binary_cross_entropy(tape, x[0], target, NULL, -7));
}
// Two texts of three tokens; one token occurs twice, and some rows of the tables are unused.
static Tensor *build_embedding(Tape *tape, Tensor **x) {
    const int64_t values[] = {4, 0, 2, 1, 4, 6};
    Tensor *tokens = tape_input(tape, DTYPE_I64, 2, (size_t[]){2, 3}, values);
    return op_add(tape, op_embedding(tape, tokens, x[0], x[1]),
                  op_embedding(tape, tokens, x[0], x[1])); // two uses: accumulates
}
static Tensor *build_layer_norm(Tape *tape, Tensor **x) {
    return op_layer_norm(tape, op_add(tape, x[0], op_layer_norm(tape, x[0], x[1], x[2])), x[1],
                         x[2]);
}
static Tensor *build_gelu(Tape *tape, Tensor **x) {
    return op_add(tape, op_activation(tape, ACTIVATION_GELU, op_add(tape, x[1], x[1])),
                  op_activation(tape, ACTIVATION_GELU, op_add(tape, x[0], x[1])));
}
static Tensor *build_attention(Tape *tape, Tensor **x) { // five tokens a text, three heads
    return op_attention(tape, x[0], 5, 3);
}
static Tensor *build_attention_twice(Tape *tape, Tensor **x) {
    return op_add(tape, op_attention(tape, x[0], 3, 1), op_attention(tape, x[0], 2, 2));
}
// ---- in-place operations after an operation whose backward reads the overwritten values

static Tensor *gelu(Tape *tape, Tensor *x) {
    return op_activation(tape, ACTIVATION_GELU, x);
}
static Tensor *build_gelu_of_relu(Tape *tape, Tensor **x) { // relu's mask, flatten's alias
    return gelu(tape, op_flatten(tape, op_relu(tape, op_linear(tape, x[0], x[1], x[2]))));
}
static Tensor *build_gelu_of_norm_relu(Tape *tape, Tensor **x) {
    return gelu(tape, build_batch_norm_relu(tape, x));
}
static Tensor *build_gelu_of_attention(Tape *tape, Tensor **x) {
    return gelu(tape, op_attention(tape, x[0], 5, 3));
}
static Tensor *build_relu_beside_linear(Tape *tape, Tensor **x) { // linear reads relu's input
    Tensor *y = op_linear(tape, x[0], x[1], x[2]), *product = op_linear(tape, y, x[3], NULL);
    return op_add(tape, product, op_relu(tape, op_flatten(tape, y)));
}
static Tensor *build_relu_of_clone(Tape *tape, Tensor **x) {
    Tensor *sum = op_add(tape, x[0], x[1]), *y = op_relu(tape, op_clone(tape, sum));
    return op_add(tape, sum, y);
}
// A user-defined operation, x^3, whose backward reads its input and output.
static void cube_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0];
    bool add;
    float *dx = tape_grad(tape, x, &add);
    for (size_t i = 0; i < tensor_count(x); i++) {
        const float slope = 3 * tensor_f32(x)[i] * cbrtf(tensor_f32(node->output)[i]);
        dx[i] = (add ? dx[i] : 0) + node->output->grad[i] * slope;
    }
    tape_grad_done(tape, x);
}
static Tensor *build_gelus_beside_own(Tape *tape, Tensor **x) {
    Tensor *sum = op_add(tape, x[0], x[1]), *y = tape_tensor(tape, DTYPE_F32, 2, sum->shape);
    for (size_t i = 0; i < tensor_count(y); i++) tensor_f32(y)[i] = powf(tensor_f32(sum)[i], 3);
    tape_record(tape, "cube", cube_backward, y, 1, &sum, NULL);
    return op_add(tape, gelu(tape, y), gelu(tape, sum));
}

static const Case CASES[] = {
    {"gelu of a relu", 3, {{2, {3, 5}}, {2, {4, 5}}, {1, {4}}}, build_gelu_of_relu},
    {"gelu of a norm's relu", 3, {{4, {3, 4, 3, 2}}, {1, {4}}, {1, {4}}}, build_gelu_of_norm_relu},
    {"gelu of attention", 1, {{2, {10, 36}}}, build_gelu_of_attention},
    {"relu beside a linear",
     4,
     {{2, {3, 5}}, {2, {4, 5}}, {1, {4}}, {2, {4, 4}}},
     build_relu_beside_linear},
    {"relu of a clone", 2, {{2, {4, 9}}, {2, {4, 9}}}, build_relu_of_clone},
    {"gelus beside an own operation", 2, {{2, {4, 9}}, {2, {4, 9}}}, build_gelus_beside_own},
    {"embedding", 2, {{2, {8, 5}}, {2, {4, 5}}}, build_embedding},
    {"layer_norm", 3, {{2, {5, 7}}, {1, {7}}, {1, {7}}}, build_layer_norm},
    {"gelu", 2, {{2, {4, 9}}, {2, {4, 9}}}, build_gelu},
    {"attention", 1, {{2, {10, 36}}}, build_attention},
    {"attention twice", 1, {{2, {6, 12}}}, build_attention_twice},
    {"linear", 3, {{2, {3, 5}}, {2, {4, 5}}, {1, {4}}}, build_linear},
    {"linear_add", 4, {{2, {3, 5}}, {2, {4, 5}}, {1, {4}}, {2, {3, 4}}}, build_linear_add},
    {"linear_add of a relu",
     4,
     {{2, {3, 5}}, {2, {4, 5}}, {1, {4}}, {2, {4, 4}}},
     build_relu_linear_add},
    {"linear of one row", 3, {{2, {1, 7}}, {2, {1, 7}}, {1, {1}}}, build_linear},
    {"linear_relu", 4, {{2, {7, 5}}, {2, {4, 5}}, {1, {4}}, {2, {3, 4}}}, build_linear_relu},
    {"conv2d stride 2", 3, {{4, {2, 3, 5, 7}}, {4, {4, 3, 3, 3}}, {1, {4}}}, build_conv},
    {"conv2d no bias", 2, {{4, {3, 2, 4, 4}}, {4, {5, 2, 3, 3}}}, build_conv_plain},
    {"batch_norm 2d", 3, {{4, {3, 4, 3, 2}}, {1, {4}}, {1, {4}}}, build_batch_norm},
    {"batch_norm 1d", 3, {{2, {6, 3}}, {1, {3}}, {1, {3}}}, build_batch_norm},
    {"batch_norm_relu", 3, {{4, {3, 4, 3, 2}}, {1, {4}}, {1, {4}}}, build_batch_norm_relu},
    {"batch_norm_relu, residual",
     4,
     {{4, {3, 4, 3, 2}}, {1, {4}}, {1, {4}}, {4, {3, 4, 3, 2}}},
     build_batch_norm_residual},
    {"relu", 2, {{2, {4, 9}}, {2, {4, 9}}}, build_relu},
    {"shared", 2, {{2, {4, 9}}, {2, {4, 9}}}, build_shared},
    {"max_pool", 1, {{4, {2, 3, 5, 7}}}, build_max_pool},
    {"avg_pool", 1, {{4, {2, 3, 5, 6}}}, build_avg_pool},
    {"shortcut", 1, {{4, {2, 4, 5, 5}}}, build_shortcut},
    {"upsample2x", 1, {{4, {2, 3, 3, 5}}}, build_upsample},
    {"pixel_cross_entropy", 1, {{4, {2, 5, 3, 4}}}, build_pixels},
    {"pixel_cross_entropy, hard", 1, {{4, {2, 5, 3, 4}}}, build_hard_pixels},
    {"pixel_cross_entropy, hardest", 1, {{4, {2, 5, 3, 4}}}, build_hardest_pixels},
    {"binary_cross_entropy", 1, {{2, {3, 4}}}, build_answers},
    {"mean", 2, {{2, {3, 4}}, {2, {3, 4}}}, build_mean},
    {"divide", 1, {{0, {0}}}, build_divide},
};

static int note_ready(void *context, Tensor *leaf, Error *err) {
    (void)leaf, (void)err;
    ++*(int *)context;
    return 0;
}

enum { GUARD = 64 }; // floats around a gradient that no kernel may write

// Allocates the leaf's gradient: NaN, between guards.
static void guard_gradient(Tape *tape, Tensor *leaf) {
    const size_t count = tensor_count(leaf) + 2 * GUARD;
    float *memory = tape_memory(tape, count * sizeof *memory);
    for (size_t i = 0; i < count; i++) memory[i] = NAN;
    for (size_t i = 0; i < GUARD; i++) memory[i] = memory[count - 1 - i] = 77;
    leaf->grad = memory + GUARD;
}

static void check_guards(const Tensor *leaf) {
    const float *end = leaf->grad + tensor_count(leaf);
    for (size_t i = 0; i < GUARD; i++) assert_true(leaf->grad[-1 - (int)i] == 77 && end[i] == 77);
}

// Returns the loss sum (y - t)^2 of a case, for a random t, with leaf `which` moved by h along a
// random direction. If h is 0, also runs `rounds` forwards and backwards, which accumulate the
// gradients of the leaves in bit mask `wanted`; each of them must become ready once per backward.
static double case_loss(Tape *tape, const Case *c, int which, float h, unsigned wanted, int rounds,
                        Tensor **leaves) {
    int ready[MAX_INPUTS] = {0};
    Tensor *loss = NULL;
    tape_reset(tape);
    for (int i = 0; i < c->input_count; i++) {
        leaves[i] = random_tensor(tape, c->inputs[i].ndim, c->inputs[i].shape, (uint64_t)i);
        leaves[i]->requires_grad = wanted >> i & 1;
        leaves[i]->on_ready = note_ready;
        leaves[i]->on_ready_context = &ready[i];
        guard_gradient(tape, leaves[i]);
        for (size_t j = 0; i == which && j < tensor_count(leaves[i]); j++)
            tensor_f32(leaves[i])[j] += h * rng_normal(8, (uint64_t)i, j);
    }
    for (int round = 0; round < rounds; round++) {
        Tensor *y = c->build(tape, leaves);
        assert_non_null(y);
        Tensor *target = random_tensor(tape, y->ndim, y->shape, 99);
        Error err = {0};
        loss = op_squared_error(tape, y, target, 1.0);
        if (h == 0.0f) CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    }
    for (int i = 0; i < c->input_count; i++) {
        const bool expected = h == 0.0f && leaves[i]->requires_grad;
        assert_int_equal(ready[i], expected ? rounds : 0);
        assert_int_equal(leaves[i]->has_grad, expected);
        check_guards(leaves[i]);
    }
    return (double)tensor_item(loss);
}

enum { ALL = (1 << MAX_INPUTS) - 1 };

static void check_case(Tape *tape, const Case *c, int which) {
    Tensor *leaves[MAX_INPUTS];
    const float h = 2e-3f;
    double plus = case_loss(tape, c, which, h, ALL, 1, leaves);
    double minus = case_loss(tape, c, which, -h, ALL, 1, leaves);
    case_loss(tape, c, which, 0.0f, ALL, 1, leaves);
    double slope = 0, size = 0;
    for (size_t j = 0; j < tensor_count(leaves[which]); j++) {
        double g = (double)leaves[which]->grad[j];
        slope += g * (double)rng_normal(8, (uint64_t)which, j);
        size += g * g;
    }
    assert_true(size > 1e-6); // a zero gradient would pass for a constant
    char what[64];
    snprintf(what, sizeof what, "%s, input %d", c->name, which);
    check_close((plus - minus) / (2.0 * (double)h), slope, 1e-2, what);
}

// Asserts |a - b| <= bound * |b| in the Euclidean norm.
static void check_near(const float *a, const float *b, size_t count, double bound, const Case *c) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    if (!(difference <= bound * bound * size))
        fail_msg("%s: |a - b| is %g of |b| = %g", c->name, sqrt(difference / size), sqrt(size));
}

// A leaf's gradient is the same when the other leaves are frozen, and a second backward doubles it.
static void check_frozen_and_repeated(Tape *tape, const Case *c) {
    Tensor *leaves[MAX_INPUTS];
    float *all[MAX_INPUTS];
    case_loss(tape, c, 0, 0.0f, ALL, 1, leaves);
    for (int i = 0; i < c->input_count; i++) {
        all[i] = memory_zalloc(tensor_bytes(leaves[i]));
        memcpy(all[i], leaves[i]->grad, tensor_bytes(leaves[i]));
    }
    for (int i = 0; i < c->input_count; i++) {
        case_loss(tape, c, 0, 0.0f, 1u << i, 1, leaves);
        check_near(leaves[i]->grad, all[i], tensor_count(leaves[i]), 1e-6, c);
    }
    case_loss(tape, c, 0, 0.0f, ALL, 2, leaves);
    for (int i = 0; i < c->input_count; i++) {
        for (size_t j = 0; j < tensor_count(leaves[i]); j++) all[i][j] *= 2;
        check_near(leaves[i]->grad, all[i], tensor_count(leaves[i]), 1e-6, c);
        free(all[i]);
    }
}

static void gradients_match_differences(void **state) {
    const char *names[] = {"cpu:0", "ref:0"};
    (void)state;
    for (int d = 0; d < 2; d++) {
        Error err = {0};
        Device *device = device_open(names[d], &err);
        CHECK_OK(device, err);
        Tape *tape = tape_create(device, NULL);
        for (int training = 0; training < 2; training++) {
            tape->training = training;
            for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
                for (int which = 0; which < CASES[i].input_count; which++)
                    check_case(tape, &CASES[i], which);
                check_frozen_and_repeated(tape, &CASES[i]);
            }
        }
        tape_close(tape);
        device_close(device);
    }
}

// In 16 bits, gradients equal float32's within rounding, on kernels that store 16 bits.
static void halves_follow_float32(void **state) {
    (void)state;
    const double bounds[] = {[PRECISION_BF16] = 0.05, [PRECISION_F16] = 0.01};
    Error err = {0};
    Device *device = device_open("ref:0", &err);
    CHECK_OK(device, err);
    Tape *wide = tape_create(device, NULL), *narrow = tape_create(device, NULL);
    for (int k = 0; k < 2 * 2 * (int)(sizeof CASES / sizeof *CASES); k++) {
        const Case *c = &CASES[k / 4];
        Tensor *want[MAX_INPUTS], *have[MAX_INPUTS];
        narrow->precision = k % 2 ? PRECISION_F16 : PRECISION_BF16;
        narrow->training = wide->training = k / 2 % 2;
        case_loss(wide, c, 0, 0.0f, ALL, 2, want);
        case_loss(narrow, c, 0, 0.0f, ALL, 2, have);
        for (int i = 0; i < c->input_count; i++)
            check_near(have[i]->grad, want[i]->grad, tensor_count(want[i]),
                       bounds[narrow->precision], c);
    }
    tape_close(wide);
    tape_close(narrow);
    device_close(device);
}

// ---- fused operations ------------------------------------------------------------------------

enum { FUSED_N = 5, FUSED_C = 3, FUSED_SIDE = 7 };

// Concatenates a case's output and all gradients; returns the bytes.
static size_t all_results(Tape *tape, const Case *c, char *bytes) {
    Tensor *leaves[MAX_INPUTS];
    size_t used = 0;
    case_loss(tape, c, 0, 0.0f, ALL, 1, leaves);
    for (int i = 0; i < c->input_count; i++) {
        memcpy(bytes + used, leaves[i]->grad, tensor_bytes(leaves[i]));
        used += tensor_bytes(leaves[i]);
    }
    Tensor *y = tape->nodes[tape->count - 2].output; // the node before the loss
    memcpy(bytes + used, y->data, tensor_bytes(y));
    return used + tensor_bytes(y);
}

// A fused batch norm and relu equals the separate operations bit for bit.
static void fused_batch_norm_keeps_bits(void **state) {
    enum { BYTES = 4 * 4 * FUSED_N * FUSED_C * FUSED_SIDE * FUSED_SIDE };
    static Tensor *(*const builds[2][2])(Tape *, Tensor **) = {
        {build_batch_norm_relu, build_norm_then_relu},
        {build_batch_norm_residual, build_norm_add_relu}};
    const char *names[] = {"cpu:0", "ref:0"};
    (void)state;
    for (int i = 0; i < 2 * 2 * 2; i++) {
        Error err = {0};
        Device *device = device_open(names[i % 2], &err);
        CHECK_OK(device, err);
        Tape *tape = tape_create(device, NULL);
        tape->training = i / 2 % 2;
        char results[2][BYTES];
        size_t bytes[2];
        for (int way = 0; way < 2; way++) {
            const Case c = {"fused",
                            i / 4 ? 4 : 3,
                            {{4, {FUSED_N, FUSED_C, FUSED_SIDE, FUSED_SIDE}},
                             {1, {FUSED_C}},
                             {1, {FUSED_C}},
                             {4, {FUSED_N, FUSED_C, FUSED_SIDE, FUSED_SIDE}}},
                            builds[i / 4][way]};
            bytes[way] = all_results(tape, &c, results[way]);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(results[0], results[1], bytes[0]);
        tape_close(tape);
        device_close(device);
    }
}

// So does a fused linear and relu, whichever of the two backwards applies the relu's mask.
static void fused_linear_keeps_bits(void **state) {
    static Tensor *(*const builds[2][2])(Tape *, Tensor **) = {
        {build_linear_relu, build_linear_then_relu},
        {build_linear_relu_more, build_linear_then_relu_more}};
    const char *names[] = {"cpu:0", "ref:0"};
    (void)state;
    for (int i = 0; i < 2 * 2; i++) {
        Error err = {0};
        Device *device = device_open(names[i % 2], &err);
        CHECK_OK(device, err);
        Tape *tape = tape_create(device, NULL);
        char results[2][4096];
        size_t bytes[2];
        for (int way = 0; way < 2; way++) {
            const Case c = {
                "fused", 4, {{2, {7, 5}}, {2, {4, 5}}, {1, {4}}, {2, {4, 4}}}, builds[i / 2][way]};
            bytes[way] = all_results(tape, &c, results[way]);
        }
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(results[0], results[1], bytes[0]);
        tape_close(tape);
        device_close(device);
    }
}

// ---- known answers and errors ----------------------------------------------------------------

static Device *device;
static Tape *tape;

static int setup(void **state) {
    (void)state;
    Error err = {0};
    device = device_open("cpu:0", &err);
    tape = tape_create(device, NULL);
    return device ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    tape_close(tape);
    device_close(device); // checks that all memory was freed
    return 0;
}

static void cross_entropy_gradient_is_softmax_minus_onehot(void **state) {
    (void)state;
    size_t shape[] = {2, 3};
    Tensor *logits = tape_input(tape, DTYPE_F32, 2, shape, (float[]){1, 2, 3, 0, 0, 0});
    Tensor *target = tape_input(tape, DTYPE_I64, 1, shape, (int64_t[]){2, 0});
    logits->requires_grad = true;
    Tensor *loss = op_cross_entropy(tape, logits, target, 2);
    Error err = {0};
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    double z = exp(1) + exp(2) + exp(3);
    check_close((double)tensor_item(loss), (-log(exp(3) / z) + log(3.0)) / 2, 1e-6, "loss");
    double expected[] = {exp(1) / z / 2, exp(2) / z / 2, (exp(3) / z - 1) / 2,
                         -1 / 3.0,       1 / 6.0,        1 / 6.0};
    for (int i = 0; i < 6; i++) check_close((double)logits->grad[i], expected[i], 1e-6, "gradient");
}

// Two images of 1x2 pixels, two classes. The losses are ln 2, ln 4 (ignored), ln 4 and ln 4/3: the
// first and the third exceed 0.5.
static void ohem_keeps_the_hard_pixels(void **state) {
    (void)state;
    const float l3 = logf(3);
    const float values[] = {0, l3, 0, 0, l3, l3, 0, 0};
    Tensor *logits = tape_input(tape, DTYPE_F32, 4, (size_t[]){2, 2, 1, 2}, values);
    Tensor *target = tape_input(tape, DTYPE_I64, 3, (size_t[]){2, 1, 2}, (int64_t[]){0, -1, 1, 0});
    logits->requires_grad = true;
    const struct {
        Mining mining;
        size_t kept;
        double sum;
        float weights[4]; // of the pixels in the sum
    } cases[] = {{{-INFINITY, 0}, 3, log(2) + log(4) + log(4.0 / 3), {1, 0, 1, 1}},
                 {{0.5, 0}, 2, log(2) + log(4), {1, 0, 1, 0}},
                 {{1, 1}, 1, log(4), {0, 0, 1, 0}},
                 {{1, 2}, 2, log(2) + log(4), {1, 0, 1, 0}},
                 {{9, 9}, 3, log(2) + log(4) + log(4.0 / 3), {1, 0, 1, 1}},
                 {{9, 0}, 0, 0, {0, 0, 0, 0}}};
    const double slopes[] = {-0.5, 0, 0.5, 0, 0.75, -0.25, -0.75, 0.25}; // p - onehot
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t kept;
        logits->has_grad = false;
        Tensor *sum = op_pixel_cross_entropy(tape, logits, target, &cases[i].mining, &kept);
        Tensor *loss = op_divide(tape, sum, (double)kept);
        double divisor = kept ? (double)kept : 1;
        Error err = {0};
        CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
        assert_int_equal(kept, cases[i].kept);
        check_close((double)tensor_item(loss), cases[i].sum / divisor, 1e-6, "loss");
        for (size_t j = 0; j < 8; j++) {
            double weight = (double)cases[i].weights[j / 4 * 2 + j % 2];
            check_close((double)logits->grad[j], weight * slopes[j] / divisor, 1e-6, "gradient");
        }
        tape->count = 0; // keeps the logits, drops the graph
    }
}

static void an_empty_batch_runs_through(void **state) {
    (void)state;
    float weight_grad[15], bias_grad[5];
    Tensor weight = tensor_make(device, DTYPE_F32, 2, (size_t[]){5, 3}, (float[15]){0});
    Tensor bias = tensor_make(device, DTYPE_F32, 1, (size_t[]){5}, (float[5]){0});
    weight.requires_grad = bias.requires_grad = true;
    weight.grad = weight_grad;
    bias.grad = bias_grad;
    Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){0, 3});
    Tensor *target = tape_tensor(tape, DTYPE_I64, 1, (size_t[]){0});
    Tensor *loss = op_cross_entropy(tape, op_linear(tape, x, &weight, &bias), target, 0);
    Error err = {0};
    CHECK_OK(tape_backward(tape, loss, &err) == 0, err);
    assert_true(tensor_item(loss) == 0.0f && weight.has_grad && bias.has_grad);
    for (int i = 0; i < 15; i++) assert_true(weight_grad[i] == 0.0f);
    for (int i = 0; i < 5; i++) assert_true(bias_grad[i] == 0.0f);
}

int main(void) {
#define WITH_TAPE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(halves_follow_float32),
        cmocka_unit_test(fused_linear_keeps_bits),
        cmocka_unit_test(fused_batch_norm_keeps_bits),
        WITH_TAPE(cross_entropy_gradient_is_softmax_minus_onehot),
        WITH_TAPE(ohem_keeps_the_hard_pixels),
        WITH_TAPE(an_empty_batch_runs_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
