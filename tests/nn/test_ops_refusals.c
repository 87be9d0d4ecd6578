/* test_ops_refusals.c: each operation with one invalid operand, in each way that an operand can be
 * invalid, and with NULL, the result of a failed operation; on both kinds of devices that are CPUs.
 */
#include "tests/rigs/check.h"

#include <stdlib.h>

#include "common/nn/ops.h"

enum { MAX_OPERANDS = 4, MAX_REFUSALS = 6 };

static const char *kind; // "cpu" or "ref"
static Device *device;
static Tape *tape;

static Device *open_device(int index) {
    char name[16];
    Error err = {0};
    snprintf(name, sizeof name, "%s:%d", kind, index);
    Device *opened = device_open(name, &err);
    CHECK_OK(opened, err);
    return opened;
}

static int setup(void **state) {
    (void)state;
    device = open_device(0);
    tape = tape_create(device, NULL);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    tape_close(tape);
    device_close(device);
    return 0;
}

// Makes an operand of zeros: "f2,3" is float32 [2, 3], "i2" int64 [2], "f" a float32 scalar; NULL
// stays NULL.
static Tensor *operand(const char *text) {
    size_t shape[TENSOR_MAX_DIMS] = {0};
    int ndim = 0;
    if (!text) return NULL;
    for (const char *at = text + 1; *at; ndim++) {
        char *end;
        shape[ndim] = strtoul(at, &end, 10);
        at = *end == ',' ? end + 1 : end;
    }
    Tensor *x = tape_tensor(tape, text[0] == 'i' ? DTYPE_I64 : DTYPE_F32, ndim, shape);
    memset(x->data, 0, tensor_bytes(x));
    return x;
}

static Tensor *linear(Tensor **x) {
    return op_linear(tape, x[0], x[1], x[2]);
}
static Tensor *linear_relu(Tensor **x) {
    return op_linear_relu(tape, x[0], x[1], x[2]);
}
static Tensor *linear_add(Tensor **x) {
    return op_linear_add(tape, x[0], x[2], x[3], x[1]);
}
static Tensor *conv2d(Tensor **x) {
    return op_conv2d(tape, x[0], x[1], x[2], 1, 0);
}
static Tensor *conv2d_of_stride_0(Tensor **x) {
    return op_conv2d(tape, x[0], x[1], x[2], 0, 0);
}
static BatchNormState state_of(Tensor **x) {
    return (BatchNormState){x[1], x[1], x[1], x[1], operand("i"), 0.1f, 1e-5f};
}
static Tensor *batch_norm(Tensor **x) {
    const BatchNormState state = state_of(x);
    return op_batch_norm(tape, x[0], &state);
}
static Tensor *batch_norm_relu(Tensor **x) {
    const BatchNormState state = state_of(x);
    return op_batch_norm_relu(tape, x[0], &state, x[2]);
}
static Tensor *relu(Tensor **x) {
    return op_relu(tape, x[0]);
}
static Tensor *gelu(Tensor **x) {
    return op_activation(tape, ACTIVATION_GELU, x[0]);
}
static Tensor *add(Tensor **x) {
    return op_add(tape, x[0], x[1]);
}
static Tensor *flatten(Tensor **x) {
    return op_flatten(tape, x[0]);
}
static Tensor *max_pool(Tensor **x) {
    return op_max_pool(tape, x[0], 5, 1, 1);
}
static Tensor *max_pool_half_padding(Tensor **x) {
    return op_max_pool(tape, x[0], 4, 1, 2);
}
static Tensor *max_pool_more_padding(Tensor **x) {
    return op_max_pool(tape, x[0], 3, 1, 2);
}
static Tensor *avg_pool(Tensor **x) {
    return op_avg_pool(tape, x[0], 2, 2, 0);
}
static Tensor *upsample2x(Tensor **x) {
    return op_upsample2x(tape, x[0]);
}
static Tensor *shortcut(Tensor **x) {
    return op_shortcut(tape, x[0], 2, 1);
}
static Tensor *embedding(Tensor **x) {
    return op_embedding(tape, x[0], x[1], x[2]);
}
static Tensor *layer_norm(Tensor **x) {
    return op_layer_norm(tape, x[0], x[1], x[2]);
}
static Tensor *attention(Tensor **x) {
    return op_attention(tape, x[0], 2, 2);
}
static Tensor *attention_of_no_heads(Tensor **x) {
    return op_attention(tape, x[0], 2, 0);
}
static Tensor *attention_of_no_tokens(Tensor **x) {
    return op_attention(tape, x[0], 0, 2);
}
static Tensor *cross_entropy(Tensor **x) {
    return op_cross_entropy(tape, x[0], x[1], 2);
}
static Tensor *binary_cross_entropy(Tensor **x) {
    return op_binary_cross_entropy(tape, x[0], x[1], x[2], 6);
}
static Tensor *one_hot(Tensor **x) {
    return op_one_hot(tape, x[0], 3);
}
static Tensor *pixel_cross_entropy(Tensor **x) {
    size_t kept = 7;
    Tensor *loss = op_pixel_cross_entropy(tape, x[0], x[1], NULL, &kept);
    assert_int_equal(kept, loss ? tensor_count(x[1]) : 0);
    return loss;
}
static Tensor *squared_error(Tensor **x) {
    return op_squared_error(tape, x[0], x[1], 6);
}
static Tensor *divide(Tensor **x) {
    return op_divide(tape, x[0], 2);
}
static Tensor *mean(Tensor **x) {
    return op_mean(tape, x[0]);
}

// An operation and valid operands; the first `results` of them may be results of failed operations
// (NULL). Each refusal replaces one operand.
typedef struct Case {
    Tensor *(*call)(Tensor **x);
    int results;
    const char *fitting[MAX_OPERANDS]; // valid operands; the first is NULL: none
    struct {
        int which;
        const char *operand, *message;
    } refusals[MAX_REFUSALS];
} Case;

static const Case CASES[] = {
    {linear,
     1,
     {"f2,3", "f4,3", "f4"},
     {{0, "f2,4", "input [2, 4] does not fit a weight of [4, 3]"},
      {0, "f2,3,1", "input [2, 3, 1] does not fit"},
      {1, "f4,3,1", "does not fit a weight of [4, 3, 1]"},
      {2, "f3", "a bias of [3] does not fit a weight of [4, 3]"}}},
    {linear_relu, 1, {"f2,3", "f4,3", "f4"}, {{0, "f2,4", "input [2, 4] does not fit"}}},
    {linear_add,
     2,
     {"f2,3", "f2,4", "f4,3", "f4"},
     {{0, "f2,4", "input [2, 4] does not fit"},
      {1, "f3,4", "a residual [3, 4] does not fit [2, 4]"},
      {1, "f2,4,1", "a residual [2, 4, 1] does not fit [2, 4]"}}},
    {conv2d,
     1,
     {"f1,2,3,3", "f4,2,3,3", "f4"},
     {{0, "f1,2,9", "expected an image [n, c, h, w], got [1, 2, 9]"},
      {0, "f1,3,3,3", "3 channels, the weight wants 2"},
      {0, "f1,2,2,3", "a window of 3 with padding 0 is larger than the input [1, 2, 2, 3]"},
      {0, "f1,2,3,2", "larger than the input [1, 2, 3, 2]"},
      {2, "f3", "a weight of [4, 2, 3, 3] with a bias of [3]: not [k, c, r, r], [k]"}}},
    {conv2d,
     1,
     {"f1,2,3,3", "f4,2,3,3"}, // without a bias
     {{1, "f4,2,9", "a weight of [4, 2, 9]"},
      {1, "f4,2,3,2", "a weight of [4, 2, 3, 2] with a bias of None"}}},
    {conv2d_of_stride_0, 1, {NULL, "f4,2,3,3"}, {{0, "f1,2,3,3", "the stride is 0"}}},
    {batch_norm,
     1,
     {"f2,3", "f3"},
     {{0, "f2,4", "expected [n, 3] or [n, 3, h, w], got [2, 4]"},
      {0, "f2,3,2", "expected [n, 3] or [n, 3, h, w], got [2, 3, 2]"},
      {0, "f2,4,1,2", "expected [n, 3] or [n, 3, h, w], got [2, 4, 1, 2]"},
      {0, "f1,3", "more than 1 value per channel when training, got input size [1, 3]"},
      {0, "f1,3,1,1", "more than 1 value per channel when training"}}},
    {batch_norm, 1, {"f1,3,1,2", "f3"}, {{0, "f2", "got [2]"}}},
    {batch_norm_relu,
     1,
     {"f2,3", "f3", "f2,3"},
     {{0, "f2,4", "expected [n, 3]"}, {2, "f3,3", "a residual [3, 3] does not fit [2, 3]"}}},
    {relu, 1, {"f2,3"}, {{0}}},
    {gelu, 1, {"f2,3"}, {{0}}},
    {add,
     2,
     {"f2,3", "f2,3"},
     {{1, "f3,2", "shapes [2, 3] and [3, 2] differ"},
      {1, "f2,3,1", "shapes [2, 3] and [2, 3, 1] differ"},
      {0, "f6", "shapes [6] and [2, 3] differ"}}},
    {flatten, 1, {"f2"}, {{0, "f", "a scalar has no rows"}}},
    {max_pool,
     1,
     {"f1,1,3,3"},
     {{0, "f1,1,2,3", "a window of 5 with padding 1 is larger than the input [1, 1, 2, 3]"},
      {0, "f1,1,3,2", "larger than the input [1, 1, 3, 2]"},
      {0, "f1,3,3", "expected an image"}}},
    {max_pool_half_padding, 1, {"f1,1,1,1"}, {{0}}},
    {max_pool_more_padding,
     1,
     {NULL},
     {{0, "f1,1,3,3", "padding 2 is more than half the kernel 3"},
      {0, "f1,3", "expected an image"}}},
    {avg_pool,
     1,
     {"f1,1,2,2"},
     {{0, "f1,1,1,2", "larger"}, {0, "f1,1,2,1", "larger"}, {0, "f2,2", "expected an image"}}},
    {upsample2x, 1, {"f1,1,1,1"}, {{0, "f2,3", "expected an image [n, c, h, w], got [2, 3]"}}},
    {shortcut,
     1,
     {"f1,2,3,3"},
     {{0, "f1,3,3,3", "cannot narrow 3 channels to 2"}, {0, "f1,2,3", "expected an image"}}},
    {embedding,
     1,
     {"i2,2", "f5,3", "f2,3"},
     {{0, "f2,2", "expected tokens [batch, length up to 2], got F32 [2, 2]"},
      {0, "i4", "got I64 [4]"},
      {0, "i2,2,1", "got I64 [2, 2, 1]"},
      {0, "i2,3", "got I64 [2, 3]"},
      {1, "f5,2", "wte [5, 2] and wpe [2, 3] differ in channels"},
      {1, "f15", "wte [15] and wpe [2, 3] differ"}}},
    {embedding, 1, {"i2,2", "f5,3", "f2,3"}, {{2, "f6", "wte [5, 3] and wpe [6] differ"}}},
    {layer_norm,
     1,
     {"f2,3", "f3", "f3"},
     {{0, "f2,4", "input [2, 4] does not fit 3 channels"},
      {0, "f2,3,1", "input [2, 3, 1] does not fit 3 channels"},
      {2, "f4", "a bias of [4] does not fit a weight of [3]"}}},
    {attention,
     1,
     {"f4,12"},
     {{0, "f3,12", "[3, 12] is no query, key and value of 2 heads for texts of 2 tokens"},
      {0, "f4,9", "[4, 9] is no query, key and value of 2 heads"},
      {0, "f4,13", "[4, 13] is no query"},
      {0, "f4,12,1", "[4, 12, 1] is no query"}}},
    {attention_of_no_heads, 1, {NULL}, {{0, "f4,12", "value of 0 heads"}}},
    {attention_of_no_tokens, 1, {"f0,12"}, {{0, "f4,12", "for texts of 0 tokens"}}},
    {cross_entropy,
     2,
     {"f2,3", "i2"},
     {{0, "f2,3,1", "logits [2, 3, 1] do not fit 2 targets"},
      {0, "f3,3", "logits [3, 3] do not fit 2 targets"},
      {1, "f2", "do not fit 2 targets"},
      {1, "i2,1", "do not fit 2 targets"},
      {1, "i3", "do not fit 3 targets"}}},
    {binary_cross_entropy,
     2,
     {"f2,3", "f2,3", "f3"},
     {{1, "f3,3", "logits [2, 3] do not fit targets [3, 3]"},
      {1, "i2,3", "do not fit targets [2, 3]"},
      {2, "f2", "pos_weight [2] does not fit 3 classes"},
      {2, "f3,1", "pos_weight [3, 1] does not fit 3 classes"}}},
    {binary_cross_entropy, 2, {NULL, "f2,3,1"}, {{0, "f2,3,1", "logits [2, 3, 1] do not fit"}}},
    {one_hot, 1, {"i2"}, {{0, "f2", "expected labels [n], got [2]"}, {0, "i2,1", "got [2, 1]"}}},
    {pixel_cross_entropy,
     2,
     {"f2,3,4,5", "i2,4,5"},
     {{0, "f2,3,4", "logits [2, 3, 4] do not fit targets [2, 4, 5]"},
      {1, "i2,4,5,1", "do not fit targets [2, 4, 5, 1]"},
      {1, "f2,4,5", "do not fit targets [2, 4, 5]"},
      {1, "i1,4,5", "do not fit targets [1, 4, 5]"},
      {1, "i2,3,5", "do not fit targets [2, 3, 5]"},
      {1, "i2,4,4", "do not fit targets [2, 4, 4]"}}},
    {squared_error,
     2,
     {"f2,3", "f2,3"},
     {{1, "f3,2", "output [2, 3] and target [3, 2] differ in shape"}}},
    {divide, 1, {"f"}, {{0}}},
    {mean, 1, {"f2,3"}, {{0}}},
};

// Calls the operation with operand `which` replaced by `other` (-1: none).
static Tensor *call(const Case *c, int which, const char *other) {
    Tensor *x[MAX_OPERANDS] = {NULL};
    tape_reset(tape);
    for (int i = 0; i < MAX_OPERANDS; i++) {
        x[i] = operand(i == which ? other : c->fitting[i]);
        if (x[i]) x[i]->requires_grad = x[i]->dtype == DTYPE_F32;
    }
    return c->call(x);
}

static void check_failure(Tensor *result, const char *fragment) {
    Error err = {0};
    assert_null(result);
    assert_int_equal(tape->count, 0);
    assert_int_equal(tape_error(tape, &err), -1);
    check_message(&err, fragment);
    tape_reset(tape);
}

static void each_operand_must_fit(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        const Case *c = &CASES[k];
        if (c->fitting[0]) assert_non_null(call(c, -1, NULL));
        for (int i = 0; i < MAX_REFUSALS && c->refusals[i].operand; i++)
            check_failure(call(c, c->refusals[i].which, c->refusals[i].operand),
                          c->refusals[i].message);
    }
}

// The tensors of a batch norm's state, one of them too short.
static void a_batch_norm_has_tensors_of_one_size(void **state) {
    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        tape_reset(tape);
        Tensor *of[] = {operand("f3"), operand("f3"), operand("f3")};
        BatchNormState norm = {operand("f3"), of[0], of[1], of[2], operand("i"), 0.1f, 1e-5f};
        assert_non_null(op_batch_norm(tape, operand("f2,3"), &norm));
        of[wrong] = operand("f2");
        norm = (BatchNormState){norm.weight, of[0], of[1], of[2], operand("i"), 0.1f, 1e-5f};
        check_failure(op_batch_norm(tape, operand("f2,3"), &norm),
                      ":0: the layer's tensors of 3 channels differ in size");
    }
}

// Calls the operation with operand `which` on another device. Returns tape_error's status.
static int call_far(const Case *c, int which, Device *far, Error *err) {
    Tensor *x[MAX_OPERANDS] = {NULL};
    tape_reset(tape);
    for (int i = 0; i < MAX_OPERANDS; i++) x[i] = operand(c->fitting[i]);
    if (x[which]) x[which]->device = far;
    (void)c->call(x);
    assert_int_equal(tape->count, 0);
    *err = (Error){0};
    return tape_error(tape, err);
}

// PyTorch's message for an operand on another device. Two Devices may be the same physical device.
static void operands_are_on_the_tapes_device(void **state) {
    (void)state;
    Error err = {0};
    Device *other = open_device(1), *again = open_device(0);
    char says[160];
    snprintf(says, sizeof says,
             "Expected all tensors to be on the same device, but found at least two devices, %s:0 "
             "and %s:1: of the operands, ",
             kind, kind);
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++)
        for (int i = 0; CASES[k].fitting[0] && i < MAX_OPERANDS && CASES[k].fitting[i]; i++) {
            assert_int_equal(call_far(&CASES[k], i, again, &err), 0);
            assert_int_equal(call_far(&CASES[k], i, other, &err), -1);
            check_message(&err, says);
        }
    tape_reset(tape);
    device_close(other);
    device_close(again);
}

// A NULL operand gives a NULL result; the tape keeps the error of the first failed operation.
static void null_is_passed_on(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++)
        for (int i = 0; i < CASES[k].results; i++) {
            Error err = {0};
            assert_null(call(&CASES[k], i, NULL));
            assert_int_equal(tape->count, 0);
            assert_int_equal(tape_error(tape, &err), 0);
        }
}

static Tensor *integers(int ndim, const size_t *shape, const int64_t *values) {
    return tape_input(tape, DTYPE_I64, ndim, shape, values);
}

// The error names the first value out of range; the range's end values pass.
static void values_must_be_in_range(void **state) {
    (void)state;
    size_t kept;
    Tensor *logits = operand("f3,3");
    assert_non_null(
        op_cross_entropy(tape, logits, integers(1, (size_t[]){3}, (int64_t[]){0, 2, 1}), 2));
    check_failure(
        op_cross_entropy(tape, logits, integers(1, (size_t[]){3}, (int64_t[]){0, 3, 4}), 2),
        "target 3 of row 1 is out of range [0, 3)");
    logits = operand("f3,3");
    check_failure(
        op_cross_entropy(tape, logits, integers(1, (size_t[]){3}, (int64_t[]){0, 2, -1}), 2),
        "target -1 of row 2 is out of range [0, 3)");
    assert_non_null(op_one_hot(tape, integers(1, (size_t[]){2}, (int64_t[]){0, 2}), 3));
    check_failure(op_one_hot(tape, integers(1, (size_t[]){2}, (int64_t[]){0, 3}), 3),
                  "label 3 of row 1 is out of range [0, 3)");
    check_failure(op_one_hot(tape, integers(1, (size_t[]){2}, (int64_t[]){-1, 0}), 3),
                  "label -1 of row 0 is out of range [0, 3)");
    logits = operand("f2,2,1,2"); // negative targets are ignored
    Tensor *target = integers(3, (size_t[]){2, 1, 2}, (int64_t[]){0, -1, 1, 1});
    assert_non_null(op_pixel_cross_entropy(tape, logits, target, NULL, &kept));
    assert_int_equal(kept, 3);
    target = integers(3, (size_t[]){2, 1, 2}, (int64_t[]){0, -1, 1, 2});
    check_failure(op_pixel_cross_entropy(tape, logits, target, NULL, &kept),
                  "target 2 of pixel 1 of image 1 is out of range [0, 2)");
    Tensor *wte = operand("f5,3"), *wpe = operand("f2,3");
    assert_non_null(op_embedding(tape, integers(2, (size_t[]){1, 2}, (int64_t[]){4, 0}), wte, wpe));
    check_failure(op_embedding(tape, integers(2, (size_t[]){1, 2}, (int64_t[]){4, 5}), wte, wpe),
                  "token 5 is out of range [0, 5)");
    wte = operand("f5,3");
    wpe = operand("f2,3");
    check_failure(op_embedding(tape, integers(2, (size_t[]){1, 2}, (int64_t[]){-1, 0}), wte, wpe),
                  "token -1 is out of range [0, 5)");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operand_must_fit),
        cmocka_unit_test(a_batch_norm_has_tensors_of_one_size),
        cmocka_unit_test(operands_are_on_the_tapes_device),
        cmocka_unit_test(null_is_passed_on),
        cmocka_unit_test(values_must_be_in_range),
    };
    int failed = 0;
    static const char *const kinds[] = {"cpu", "ref"};
    for (int k = 0; k < 2; k++) {
        kind = kinds[k];
        failed += cmocka_run_group_tests_name(kind, tests, setup, teardown);
    }
    return failed;
}
