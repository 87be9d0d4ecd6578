/* test_tape.c: the rules of the tape, by example. Read it beside common/nn/tape.h.
 *
 * A parameter is ready when its last use in a backward has contributed; that event is what
 * DistributedDataParallel hangs on. The examples are small enough to follow with a pencil:
 *
 *     y = second (first x)        loss = (y - 0)^2        all of them 1x1 matrices
 */
#include "tests/rigs/check.h"

#include "common/base/rng.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"
#include "common/nn/tuple.h"

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

static const size_t ONE[] = {1, 1};

static Tensor *number(float value) {
    return tape_input(tape, DTYPE_F32, 2, ONE, &value);
}

static Tensor *random_tensor(int ndim, const size_t *shape, uint64_t stream) {
    Tensor *tensor = tape_tensor(tape, DTYPE_F32, ndim, shape);
    for (size_t i = 0; i < tensor_count(tensor); i++)
        tensor_f32(tensor)[i] = rng_normal(7, stream, i);
    return tensor;
}

// ---- ready events -------------------------------------------------------------------------------

typedef struct Calls { // of on_ready
    int count;
    const Tensor *last;
    float value;
} Calls;

static int note_ready(void *context, Tensor *tensor, Error *err) {
    (void)err;
    Calls *calls = context;
    calls->count++;
    calls->last = tensor;
    calls->value = tensor->grad[0];
    return 0;
}

typedef struct Parameter { // a weight of 1x1 and its calls of on_ready
    float value, gradient;
    Tensor tensor;
    Calls calls;
} Parameter;

static void parameter_open(Parameter *parameter, float value) {
    *parameter = (Parameter){.value = value};
    parameter->tensor = tensor_make(device, DTYPE_F32, 2, ONE, &parameter->value);
    parameter->tensor.requires_grad = true;
    parameter->tensor.grad = &parameter->gradient;
    parameter->tensor.on_ready = note_ready;
    parameter->tensor.on_ready_context = &parameter->calls;
}

typedef struct Order {
    const Tensor *first;
    int count;
} Order;

static int note_order(void *context, Tensor *tensor, Error *err) {
    (void)err;
    Order *order = context;
    if (order->count++ == 0) order->first = tensor;
    return 0;
}

// Backward runs from the loss to the input: the parameter used last in forward is ready first.
static void the_last_used_is_ready_first(void **state) {
    (void)state;
    Parameter first, second;
    Order order = {0};
    Error err = {0};
    parameter_open(&first, 3);
    parameter_open(&second, 5);
    first.tensor.on_ready = second.tensor.on_ready = note_order;
    first.tensor.on_ready_context = second.tensor.on_ready_context = &order;
    Tensor *y =
        op_linear(tape, op_linear(tape, number(2), &first.tensor, NULL), &second.tensor, NULL);
    CHECK_OK(tape_backward(tape, op_squared_error(tape, y, number(0), 1), &err) == 0, err);
    assert_int_equal(order.count, 2);
    assert_ptr_equal(order.first, &second.tensor);
    check_close((double)second.gradient, 2 * 30 * 6, 1e-6, "d (second 6)^2");
    check_close((double)first.gradient, 2 * 30 * 10, 1e-6, "d (10 first)^2");
}

// A parameter on which the loss does not depend is never ready, and its gradient stays None. DDP
// would wait for it forever without find_unused_parameters.
static void an_unused_parameter_is_never_ready(void **state) {
    (void)state;
    Parameter used, unused;
    Error err = {0};
    parameter_open(&used, 3);
    parameter_open(&unused, 5);
    Tensor *x = number(2);
    assert_non_null(op_linear(tape, x, &unused.tensor, NULL)); // recorded, not in the loss
    Tensor *y = op_linear(tape, x, &used.tensor, NULL);
    CHECK_OK(tape_backward(tape, op_squared_error(tape, y, number(0), 1), &err) == 0, err);
    assert_int_equal(used.calls.count, 1);
    assert_int_equal(unused.calls.count, 0);
    assert_true(used.tensor.has_grad && !unused.tensor.has_grad);
    assert_int_equal(unused.tensor.pending_uses, 0);
}

// loss = (w x + w x' - 0)^2: w is used twice, and ready once, after both contributions.
static void a_shared_parameter_is_ready_once(void **state) {
    (void)state;
    size_t one[] = {1, 1};
    float weight_grad;
    Tensor weight = tensor_make(device, DTYPE_F32, 2, one, (float[]){3});
    Calls calls = {0};
    weight.requires_grad = true;
    weight.grad = &weight_grad;
    weight.on_ready = note_ready;
    weight.on_ready_context = &calls;
    Tensor *x = tape_input(tape, DTYPE_F32, 2, one, (float[]){2});
    Tensor *x2 = tape_input(tape, DTYPE_F32, 2, one, (float[]){5});
    Tensor *zero = tape_input(tape, DTYPE_F32, 2, one, (float[]){0});
    Tensor *unused = op_linear(tape, x, &weight, NULL); // not in the loss: not counted
    assert_non_null(unused);
    Tensor *y = op_add(tape, op_linear(tape, x, &weight, NULL), op_linear(tape, x2, &weight, NULL));
    Error err = {0};
    CHECK_OK(tape_backward(tape, op_squared_error(tape, y, zero, 1), &err) == 0, err);
    assert_int_equal(calls.count, 1);
    assert_ptr_equal(calls.last, &weight);
    check_close((double)calls.value, 2 * 21 * 7, 1e-6, "gradient when ready"); // 2 (3*7) (2+5)

    tape_reset(tape); // a second backward without zero_grad accumulates
    x = tape_input(tape, DTYPE_F32, 2, one, (float[]){2});
    zero = tape_input(tape, DTYPE_F32, 2, one, (float[]){0});
    y = op_linear(tape, x, &weight, NULL);
    CHECK_OK(tape_backward(tape, op_squared_error(tape, y, zero, 1), &err) == 0, err);
    assert_int_equal(calls.count, 2);
    check_close((double)weight_grad, 2 * 21 * 7 + 2 * 6 * 2, 1e-6, "accumulated gradient");
}

// All roots share the gradient 1: operations that compute in place in their output's gradient must
// not overwrite it. root = gelu(w x), or gelu(w x) + gelu(w x).
static void the_gradient_of_a_root_stays_1(void **state) {
    (void)state;
    float gradient, first[2];
    Tensor weight = tensor_make(device, DTYPE_F32, 2, ONE, (float[]){0.25f});
    weight.requires_grad = true;
    weight.grad = &gradient;
    for (int step = 0; step < 6; step++) {
        Error err = {0};
        int sum = step % 2;
        tape_reset(tape);
        weight.has_grad = false;
        Tensor *y =
            op_activation(tape, ACTIVATION_GELU, op_linear(tape, number(1.5f), &weight, NULL));
        if (sum)
            y = op_add(
                tape, y,
                op_activation(tape, ACTIVATION_GELU, op_linear(tape, number(1.5f), &weight, NULL)));
        CHECK_OK(tape_backward(tape, y, &err) == 0, err);
        if (step < 2) first[sum] = gradient;
        assert_true(gradient == first[sum] && gradient != 0);
    }
    assert_true(first[1] == 2 * first[0]);
}

// ---- a backward that fails ----------------------------------------------------------------------

static void fail_backward(Tape *t, TapeNode *node) {
    (void)node;
    tape_fail(t, "fragile", "out of luck");
}

// The weight is used twice; with `fails`, an operation whose backward fails is between the uses.
static int fragile_backward(Tensor *weight, bool fails, Error *err) {
    size_t one[] = {1, 1};
    tape_reset(tape);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, one, (float[]){2});
    Tensor *y = op_linear(tape, x, weight, NULL);
    if (fails) {
        Tensor *z = tape_input(tape, DTYPE_F32, 2, one, tensor_f32(y));
        tape_record(tape, "fragile", fail_backward, z, 1, &y, NULL);
        y = z;
    }
    y = op_linear(tape, y, weight, NULL);
    Tensor *zero = tape_input(tape, DTYPE_F32, 2, one, (float[]){0});
    return tape_backward(tape, op_squared_error(tape, y, zero, 1), err);
}

// The next backward after a failed one starts with no expected contributions: the parameter is
// ready after its own two.
static void a_failed_backward_leaves_nothing_expected(void **state) {
    (void)state;
    Tensor weight = tensor_make(device, DTYPE_F32, 2, (size_t[]){1, 1}, (float[]){3});
    Error err = {0};
    Calls calls = {0};
    weight.requires_grad = true;
    weight.grad = (float[1]){0};
    weight.on_ready = note_ready;
    weight.on_ready_context = &calls;
    for (int time = 0; time < 3; time++) {
        assert_int_equal(fragile_backward(&weight, true, &err), -1);
        check_message(&err, "fragile on cpu:0: out of luck");
        err = (Error){0};
        assert_int_equal(calls.count, time); // not ready: one of two contributions
        weight.has_grad = false;
        CHECK_OK(fragile_backward(&weight, false, &err) == 0, err);
        assert_int_equal(calls.count, time + 1);
        check_close((double)weight.grad[0], 2 * 18 * 12, 1e-6, "gradient"); // of (2 w w)^2
        weight.has_grad = false;
    }
}

static int refuse_silently(void *context, Tensor *tensor, Error *err) {
    (void)tensor;
    (*(int *)context)++;
    (void)err;
    return -1;
}

static int refuse(void *context, Tensor *tensor, Error *err) {
    (void)refuse_silently(context, tensor, err);
    return error_set(err, STATUS_USAGE, "no bucket has room");
}

// An on_ready that fails ends backward: parameters used earlier in forward are never ready.
static void a_hook_that_fails_ends_backward(void **state) {
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        Parameter first, second;
        Error err = {0};
        int refusals = 0;
        tape_reset(tape);
        parameter_open(&first, 3);
        parameter_open(&second, 5);
        second.tensor.on_ready = silent ? refuse_silently : refuse;
        second.tensor.on_ready_context = &refusals;
        Tensor *y =
            op_linear(tape, op_linear(tape, number(2), &first.tensor, NULL), &second.tensor, NULL);
        y = op_squared_error(tape, y, number(0), 1);
        assert_int_equal(tape_backward(tape, y, &err), -1);
        check_message(&err, silent ? "on_ready of a parameter [1, 1] failed without a reason"
                                   : "no bucket has room");
        assert_int_equal(err.status, silent ? STATUS_FAILED : STATUS_USAGE);
        assert_int_equal(refusals, 1);
        assert_int_equal(first.calls.count, 0);
    }
}

// ---- memory, modes, errors ----------------------------------------------------------------------

static void a_step_repeats_without_new_memory(void **state) {
    (void)state;
    size_t bytes = 0;
    for (int step = 0; step < 5; step++) {
        tape_reset(tape);
        Tensor *x = random_tensor(4, (size_t[]){8, 3, 16, 16}, 1);
        Tensor *w = random_tensor(4, (size_t[]){8, 3, 3, 3}, 2);
        x->requires_grad = w->requires_grad = true;
        Tensor *y = op_relu(tape, op_conv2d(tape, x, w, NULL, 1, 1));
        y = op_max_pool(tape, y, 2, 2, 0);
        Tensor *t = random_tensor(y->ndim, y->shape, 3);
        Error err = {0};
        CHECK_OK(tape_backward(tape, op_squared_error(tape, y, t, 1), &err) == 0, err);
        if (step > 1) assert_int_equal(device->bytes, bytes); // 1: the reset merged the blocks
        bytes = device->bytes;
    }
}

static void without_recording_nothing_is_kept(void **state) {
    (void)state;
    tape->recording = false;
    Tensor *x = random_tensor(2, (size_t[]){2, 3}, 1);
    Tensor *w = random_tensor(2, (size_t[]){4, 3}, 2);
    w->requires_grad = true;
    Tensor *y = op_linear(tape, x, w, NULL);
    assert_int_equal(tape->count, 0);
    assert_false(y->requires_grad);
}

static void errors_stick_and_name_op_and_device(void **state) {
    (void)state;
    Error err = {0};
    Tensor *x = random_tensor(2, (size_t[]){2, 3}, 1);
    Tensor *w = random_tensor(2, (size_t[]){4, 5}, 2);
    Tensor *y = op_linear(tape, x, w, NULL);
    assert_null(y);
    assert_null(op_relu(tape, y));
    assert_null(op_conv2d(tape, x, w, NULL, 1, 1) ? x : NULL); // the first error is kept
    assert_int_equal(tape_error(tape, &err), -1);
    check_message(&err, "linear on cpu:0: input [2, 3] does not fit a weight of [4, 5]");
}

// A tensor from before tape_reset, after a first step with several memory blocks and after a later
// one, is named in an error.
static void an_activation_of_before_the_reset_is_named(void **state) {
    (void)state;
    Module *layer = layer_linear(device, 3, 3);
    for (int step = 0; step < 3; step++) {
        Error err = {0};
        Tensor *y = random_tensor(2, (size_t[]){1, 3}, 1);
        for (int i = 0; i < 200; i++) y = module_forward(layer, tape, y);
        assert_non_null(y);
        tape_reset(tape);
        assert_null(module_forward(layer, tape, y));
        assert_int_equal(tape_error(tape, &err), -1);
        check_message(&err, "Linear on cpu:0: input 0, [1, 3], is an activation of another tape, "
                            "or of before tape_reset: backward would not return to it. Record all "
                            "of a step on one tape");
        tape_reset(tape);
    }
    module_close(layer);
}

static Tensor *product_of(uint64_t stream) { // its backward does not read its output
    Tensor *x = random_tensor(2, (size_t[]){2, 3}, stream);
    Tensor *w = random_tensor(2, (size_t[]){4, 3}, stream + 1);
    w->requires_grad = true;
    return op_linear(tape, x, w, NULL);
}

static void nothing_is_recorded(Tape *t, TapeNode *node) {
    (void)t, (void)node;
    fail_msg("the backward of a refused operation ran");
}

// An operation that is refused for one of its inputs leaves no node; backward returns its error.
static void a_refused_operation_is_not_recorded(void **state) {
    (void)state;
    Error err = {0};
    Device *far = device_open("cpu:1", &err);
    Tape *other = tape_create(far, NULL), *same = tape_create(device, NULL);
    Tensor *here = product_of(1), *there, *elsewhere;
    const size_t nodes = tape->count, shape[] = {2, 4};
    there = tape_tensor(other, DTYPE_F32, 2, shape);    // on another device
    elsewhere = tape_tensor(same, DTYPE_F32, 2, shape); // an activation of another tape
    elsewhere->requires_grad = true;
    Tensor *const cases[][2] = {{here, there}, {there, here}, {here, elsewhere}, {elsewhere, here}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error why = {0};
        tape->error = (Error){0};
        assert_null(tape_record(tape, "some", nothing_is_recorded, here, 2, cases[i], NULL));
        assert_int_equal(tape->count, nodes);
        assert_int_equal(tape_backward(tape, NULL, &why), -1);
        check_message(&why, i < 2 ? "some on cpu:0: Expected all tensors to be on the same device"
                                  : "is an activation of another tape");
    }
    tape_close(same);
    tape_close(other);
    device_close(far);
}

// arena_holds: tape_backward uses it to refuse a loss from before tape_reset (arguments.c).
static void an_arena_knows_what_it_holds(void **state) {
    (void)state;
    Arena arena = arena_create(NULL);
    int elsewhere;
    for (size_t bytes = 64; bytes <= 1 << 20; bytes <<= 14) {
        char *first = arena_alloc(&arena, bytes), *second = arena_alloc(&arena, bytes);
        assert_true(arena_holds(&arena, first) && arena_holds(&arena, second + bytes - 1));
        assert_false(arena_holds(&arena, &elsewhere) || arena_holds(&arena, NULL));
        arena_reset(&arena);
        assert_false(arena_holds(&arena, first) || arena_holds(&arena, second));
    }
    arena_close(&arena);
}

// ---- operations in place ------------------------------------------------------------------------

// The output shares its input's memory if and only if nothing reads the input afterwards.
static void in_place_where_nothing_reads_the_input(void **state) {
    (void)state;
    for (int recording = 0; recording < 2; recording++) {
        tape_reset(tape);
        tape->recording = recording;
        Tensor *product = product_of(1), *relu = op_relu(tape, product);
        assert_ptr_equal(relu->data, product->data);
        Tensor *again = op_relu(tape, relu); // the first relu's backward reads `relu`
        assert_int_equal(again->data == relu->data, !recording);
        Tensor *sum = op_add(tape, product_of(3), again), *flat = op_flatten(tape, sum);
        assert_ptr_equal(op_relu(tape, flat)->data, sum->data);
        Tensor *input = number(-5);
        assert_float_equal(tensor_item(op_relu(tape, input)), 0, 0);
        assert_float_equal(tensor_item(input), -5, 0);
        Error err = {0};
        CHECK_OK(tape_error(tape, &err) == 0, err);
    }
}

// An operand that was overwritten in place is an error, which names the operation that overwrote
// it.
static void a_tensor_that_was_overwritten_is_refused(void **state) {
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        tape_reset(tape);
        tape->recording = kind != 1;
        Tensor *x = product_of(1), *flat = op_flatten(tape, x);
        Tensor *y = op_activation(tape, kind == 2 ? ACTIVATION_GELU : ACTIVATION_RELU, x);
        assert_non_null(op_add(tape, y, y)); // y has taken over x's memory
        Error err = {0};
        CHECK_OK(tape_error(tape, &err) == 0, err);
        if (kind == 3)
            assert_null(op_relu(tape, x));
        else if (kind == 4)
            assert_null(tuple_create(tape, (Tensor *[]){y, x}, 2));
        else if (kind == 5)
            (void)op_add(tape, y, flat); // an alias from before the overwrite
        else
            (void)op_add(tape, y, x);
        assert_int_equal(tape_error(tape, &err), -1);
        const char *op = kind == 3 ? "relu" : kind == 4 ? "tuple" : "add";
        char expected[200];
        snprintf(expected, sizeof expected,
                 "%s on cpu:0: input %d, [2, 4], has been modified by an inplace operation, %s: "
                 "give that one op_clone(tape, x) instead of x",
                 op, kind != 3, kind == 2 ? "gelu" : "relu");
        check_message(&err, expected);
    }
}

int main(void) {
#define WITH_TAPE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_TAPE(the_last_used_is_ready_first),
        WITH_TAPE(a_shared_parameter_is_ready_once),
        WITH_TAPE(the_gradient_of_a_root_stays_1),
        WITH_TAPE(an_unused_parameter_is_never_ready),
        WITH_TAPE(a_failed_backward_leaves_nothing_expected),
        WITH_TAPE(a_hook_that_fails_ends_backward),
        WITH_TAPE(a_step_repeats_without_new_memory),
        WITH_TAPE(without_recording_nothing_is_kept),
        WITH_TAPE(errors_stick_and_name_op_and_device),
        WITH_TAPE(an_activation_of_before_the_reset_is_named),
        WITH_TAPE(a_refused_operation_is_not_recorded),
        WITH_TAPE(an_arena_knows_what_it_holds),
        WITH_TAPE(in_place_where_nothing_reads_the_input),
        WITH_TAPE(a_tensor_that_was_overwritten_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
