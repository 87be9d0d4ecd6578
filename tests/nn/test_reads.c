/* test_reads.c: the values that each operation's backward reads (tape_backward_reads): other values
 * may be overwritten in place without a copy. A value too many costs memory, a value too few makes
 * a wrong gradient.
 */
#include "tests/rigs/check.h"

#include "common/nn/ops.h"
#include "common/nn/ops_half.h"

enum { NOTHING = 0, BOTH = TAPE_READS_INPUTS | TAPE_READS_OUTPUT };

// A leaf of zeros that requires a gradient.
static Tensor *leaf(Tape *tape, DType dtype, int ndim, const size_t *shape) {
    Tensor *x = tape_tensor(tape, dtype, ndim, shape);
    memset(x->data, 0, tensor_bytes(x));
    x->requires_grad = true;
    return x;
}

#define LEAF(tape, dtype, ...)                                                   \
    leaf((tape), (dtype), (int)(sizeof(size_t[]){__VA_ARGS__} / sizeof(size_t)), \
         (size_t[]){__VA_ARGS__})

static Tensor *rows(Tape *tape) {
    return LEAF(tape, DTYPE_F32, 4, 6);
}

static Tensor *image(Tape *tape) {
    return LEAF(tape, DTYPE_F32, 2, 3, 4, 4);
}

static BatchNormState norm_state(Tape *tape) {
    return (BatchNormState){.weight = LEAF(tape, DTYPE_F32, 3),
                            .bias = LEAF(tape, DTYPE_F32, 3),
                            .running_mean = LEAF(tape, DTYPE_F32, 3),
                            .running_var = LEAF(tape, DTYPE_F32, 3),
                            .num_batches_tracked = leaf(tape, DTYPE_I64, 0, NULL),
                            .momentum = 0.1f,
                            .eps = 1};
}

static Tensor *linear(Tape *tape) {
    return op_linear(tape, rows(tape), rows(tape), LEAF(tape, DTYPE_F32, 4));
}
static Tensor *linear_add(Tape *tape) {
    return op_linear_add(tape, rows(tape), rows(tape), NULL, LEAF(tape, DTYPE_F32, 4, 4));
}
static Tensor *clone(Tape *tape) {
    return op_clone(tape, rows(tape));
}
static Tensor *relu(Tape *tape) {
    return op_relu(tape, op_clone(tape, rows(tape)));
}
static Tensor *gelu(Tape *tape) {
    return op_activation(tape, ACTIVATION_GELU, op_clone(tape, rows(tape)));
}
static Tensor *add(Tape *tape) {
    return op_add(tape, rows(tape), rows(tape));
}
static Tensor *add_narrow(Tape *tape) {
    return op_add(tape, rows(tape), op_half(tape, rows(tape)));
}
static Tensor *flatten(Tape *tape) {
    return op_flatten(tape, image(tape));
}
static Tensor *half(Tape *tape) {
    return op_half(tape, rows(tape));
}
static Tensor *float32(Tape *tape) {
    return op_float32(tape, op_half(tape, rows(tape)));
}
static Tensor *conv2d(Tape *tape) {
    return op_conv2d(tape, image(tape), LEAF(tape, DTYPE_F32, 2, 3, 3, 3), NULL, 1, 1);
}
static Tensor *batch_norm(Tape *tape) {
    const BatchNormState state = norm_state(tape);
    return op_batch_norm(tape, image(tape), &state);
}
static Tensor *batch_norm_relu(Tape *tape) {
    const BatchNormState state = norm_state(tape);
    return op_batch_norm_relu(tape, image(tape), &state, image(tape));
}
static Tensor *max_pool(Tape *tape) {
    return op_max_pool(tape, image(tape), 2, 2, 0);
}
static Tensor *avg_pool(Tape *tape) {
    return op_avg_pool(tape, image(tape), 2, 2, 0);
}
static Tensor *upsample(Tape *tape) {
    return op_upsample2x(tape, image(tape));
}
static Tensor *shortcut(Tape *tape) {
    return op_shortcut(tape, image(tape), 5, 2);
}

static const struct {
    const char *op; // of the node
    Tensor *(*build)(Tape *tape);
    Precision precision;
    int reads;
} CASES[] = {
    {"linear", linear, PRECISION_F32, TAPE_READS_INPUTS},
    {"linear", linear, PRECISION_BF16, TAPE_READS_INPUTS},
    {"linear", linear_add, PRECISION_F32, TAPE_READS_INPUTS},
    {"clone", clone, PRECISION_F32, NOTHING},
    {"relu", relu, PRECISION_F32, BOTH},
    {"gelu", gelu, PRECISION_F32, TAPE_READS_INPUTS},
    {"add", add, PRECISION_F32, NOTHING},
    {"add", add_narrow, PRECISION_BF16, NOTHING},
    {"flatten", flatten, PRECISION_F32, NOTHING},
    {"half", half, PRECISION_BF16, NOTHING},
    {"float32", float32, PRECISION_BF16, NOTHING},
    {"conv2d", conv2d, PRECISION_F32, TAPE_READS_INPUTS},
    {"conv2d", conv2d, PRECISION_F16, TAPE_READS_INPUTS},
    {"batch_norm", batch_norm, PRECISION_F32, TAPE_READS_INPUTS},
    {"batch_norm_relu", batch_norm_relu, PRECISION_F32, BOTH},
    {"max_pool", max_pool, PRECISION_F32, NOTHING},
    {"avg_pool", avg_pool, PRECISION_F32, NOTHING},
    {"upsample2x", upsample, PRECISION_F32, NOTHING},
    {"shortcut", shortcut, PRECISION_F32, NOTHING},
};

static void what_backwards_read(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("ref:0", &err); // has the 16-bit operations too
    CHECK_OK(device, err);
    Tape *tape = tape_create(device, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        tape_reset(tape);
        tape->precision = CASES[i].precision;
        const Tensor *y = CASES[i].build(tape);
        CHECK_OK(y, tape->error);
        const TapeNode *node = &tape->nodes[tape->count - 1];
        assert_string_equal(node->op, CASES[i].op);
        if (node->reads != CASES[i].reads)
            fail_msg("%s (case %zu): %d, not %d", node->op, i, node->reads, CASES[i].reads);
    }
    tape_close(tape);
    device_close(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_backwards_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
