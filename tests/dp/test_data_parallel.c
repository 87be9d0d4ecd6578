/* test_data_parallel.c: DataParallel against serial shards, bit by bit: outputs, losses, gradients
 * and buffers, for whole models and parts, shared, unused and frozen parameters.
 */
#include "tests/rigs/data_parallel_steps.h"

// a is used twice, b only by replicas with more than one row, never by none.
static Tensor *odd_forward(Module *self, Tape *tape, Tensor *x) {
    Module *a = module_child(self, "a"), *b = module_child(self, "b");
    Tensor *y = module_forward(a, tape, op_relu(tape, module_forward(a, tape, x)));
    if (x->shape[0] > 1) y = op_add(tape, y, module_forward(b, tape, x));
    return module_forward(module_child(self, "head"), tape, y);
}

static Module *build_odd(Device *device) {
    Module *model = module_create("Odd", odd_forward);
    module_add(model, "a", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "b", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "never", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "head", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

static Tensor *own_loss_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = module_forward(self->children[0], tape, x);
    Tensor *zeros = tape_tensor(tape, DTYPE_F32, 2, y->shape);
    memset(zeros->data, 0, tensor_bytes(zeros));
    return op_squared_error(tape, y, zeros, (double)tensor_count(y));
}

static Module *build_own_loss(Device *device) {
    Module *model = module_create("OwnLoss", own_loss_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

// ---- equivalence -------------------------------------------------------------------------------

// Every batch twice: into gradients that are None, and on top of the first one's. (One device alone
// calls the module directly: scalars stay scalars, and a parameter that is used twice adds its two
// contributions to an old gradient one by one.)
static void compare_all_batches(BuildModule build, int fewest_devices) {
    for (int devices = fewest_devices; devices <= 5; devices++) {
        Rig rig = rig_open(build, devices);
        for (size_t rows = 1; rows <= LARGEST_BATCH; rows++) {
            module_zero_grad(rig.wrapper);
            module_zero_grad(rig.twin);
            compare_step(&rig, rows);
            compare_step(&rig, rows);
        }
        rig_close(&rig);
    }
}

static void test_mlp(void **state) {
    (void)state;
    compare_all_batches(build_mlp, 1);
}

static void test_convnet(void **state) {
    (void)state;
    compare_all_batches(build_convnet, 1);
}

// Rows are texts, whose tokens' logits are gathered in order; the weight of the table and of the
// head is one parameter.
static void test_gpt(void **state) {
    (void)state;
    compare_all_batches(build_gpt, 2);
}

static void test_shared_and_unused_parameters(void **state) {
    (void)state;
    compare_all_batches(build_odd, 2);
    Rig rig = rig_open(build_odd, 2);
    compare_step(&rig, 3); // chunks of 2 and 1
    assert_true(module_child(rig.model, "a")->parameters[0].tensor.has_grad);
    assert_true(module_child(rig.model, "b")->parameters[0].tensor.has_grad);
    assert_false(module_child(rig.model, "never")->parameters[0].tensor.has_grad);
    rig_close(&rig);
}

static void test_scalar_outputs(void **state) {
    (void)state;
    compare_all_batches(build_own_loss, 2);
}

static Module *build_half_frozen(Device *device) {
    Module *model = build_mlp(device);
    module_child(model, "fc2")->parameters[0].tensor.requires_grad = false;
    return model;
}

static void double_weights(Module *model) {
    const Tensor *weight = &module_child(model, "fc1")->parameters[0].tensor;
    for (size_t i = 0; i < tensor_count(weight); i++) tensor_f32(weight)[i] *= 2;
}

// Freezing and thawing after wrapping count, as in PyTorch.
static void test_frozen_parameter(void **state) {
    (void)state;
    Rig rig = rig_open(build_half_frozen, 3);
    Tensor *frozen = &module_child(rig.model, "fc1")->parameters[0].tensor;
    Tensor *thawed = &module_child(rig.model, "fc2")->parameters[0].tensor;
    frozen->requires_grad = false;
    thawed->requires_grad = true;
    double_weights(rig.model), double_weights(rig.twin); // not what lies in the replicas' memory
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 7));
    Shards shards;
    assert_same_values("the output", y, // every replica has the frozen weights, too
                       shards_forward(&shards, rig.build, rig.twin, 3,
                                      rig_batch(&rig, rig.reference_tape, 7), false,
                                      rig.reference_tape));
    shards_close(&shards);
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    assert_false(frozen->has_grad);
    assert_true(thawed->has_grad);
    assert_true(module_child(rig.model, "fc1")->parameters[1].tensor.has_grad);
    rig_close(&rig);
}

// A part of a model: its input wants a gradient, to which both uses contribute.
static void test_wrapped_part(void **state) {
    (void)state;
    for (size_t rows = 1; rows <= LARGEST_BATCH; rows++) {
        Rig rig = rig_open(build_mlp, 3);
        Tensor *x = rig_batch(&rig, rig.tape, rows);
        x->requires_grad = true;
        Tensor *y = module_forward(rig.wrapper, rig.tape, x);
        Tensor *again = module_forward(rig.wrapper, rig.tape, x);
        rig_backward(rig.tape, rig_loss(rig.tape, op_add(rig.tape, y, again)));

        Tape *tape = rig.reference_tape;
        Tensor *want_x = rig_batch(&rig, tape, rows);
        Shards first, second;
        Tensor *a = shards_forward(&first, rig.build, rig.twin, 3, want_x, true, tape);
        Tensor *b = shards_forward(&second, rig.build, rig.twin, 3, want_x, true, tape);
        rig_backward(tape, rig_loss(tape, op_add(tape, a, b)));
        float *dx = tape_memory(tape, tensor_bytes(want_x));
        float *more = tape_memory(tape, tensor_bytes(want_x));
        shards_backward(&second, rig.twin, b->grad, dx);
        shards_backward(&first, rig.twin, a->grad, more);
        for (size_t i = 0; i < tensor_count(x); i++) dx[i] += more[i];
        assert_memory_equal(x->grad, dx, tensor_bytes(x));
        assert_false(all_zero(dx, tensor_count(x)));
        assert_same_module(&rig);
        shards_close(&first);
        shards_close(&second);
        rig_close(&rig);
    }
}

// The wrapper on its own output: two sets of shards, one set of replicas.
static void test_applied_twice(void **state) {
    (void)state;
    Rig rig = rig_open(build_square, 4);
    Tensor *h = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 12));
    Tensor *y = module_forward(rig.wrapper, rig.tape, h);
    Tensor *target = rig_batch(&rig, rig.tape, 12);
    rig_backward(rig.tape, op_squared_error(rig.tape, y, target, 72));

    Tape *tape = rig.reference_tape;
    Shards first, second;
    Tensor *want_h =
        shards_forward(&first, rig.build, rig.twin, 4, rig_batch(&rig, tape, 12), false, tape);
    Tensor *want_y = shards_forward(&second, rig.build, rig.twin, 4, want_h, true, tape);
    rig_backward(tape, op_squared_error(tape, want_y, rig_batch(&rig, tape, 12), 72));
    float *dh = tape_memory(tape, tensor_bytes(want_h));
    shards_backward(&second, rig.twin, want_y->grad, dh);
    shards_backward(&first, rig.twin, dh, NULL);
    assert_same_values("the output", y, want_y);
    assert_same_module(&rig);
    shards_close(&first);
    shards_close(&second);
    rig_close(&rig);
}

// An evaluation between a forward and its backward uses the same replicas: no harm.
static void test_evaluation_in_between(void **state) {
    (void)state;
    Rig rig = rig_open(build_convnet, 3);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 8));
    Tape *evaluation = tape_create(rig.devices[0], NULL);
    evaluation->recording = evaluation->training = false;
    Tensor *seen = module_forward(rig.wrapper, evaluation, rig_batch(&rig, evaluation, 11));

    Tape *tape = rig.reference_tape;
    Shards shards, evaluated;
    Tensor *want =
        shards_forward(&shards, rig.build, rig.twin, 3, rig_batch(&rig, tape, 8), false, tape);
    tape->recording = tape->training = false;
    assert_same_values(
        "the evaluation's output", seen,
        shards_forward(&evaluated, rig.build, rig.twin, 3, rig_batch(&rig, tape, 11), false, tape));
    assert_int_equal(evaluation->count, 0); // nothing was recorded
    assert_false(seen->requires_grad);
    tape_close(evaluation);
    tape->recording = tape->training = true;
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    rig_backward(tape, rig_loss(tape, want));
    shards_backward(&shards, rig.twin, want->grad, NULL);
    assert_same_module(&rig);
    shards_close(&shards);
    shards_close(&evaluated);
    rig_close(&rig);
}

typedef struct Ready {
    int calls;
    float *seen; // the gradient as it was
} Ready;

static void note_ready(void *context, Tensor *tensor) {
    Ready *ready = context;
    ready->calls++;
    memcpy(ready->seen, tensor->grad, tensor_bytes(tensor));
}

static void test_ready_once_and_reduced(void **state) {
    (void)state;
    Rig rig = rig_open(build_odd, 3);
    Tensor *weight = &module_child(rig.model, "a")->parameters[0].tensor;
    Ready ready = {.seen = memory_zalloc(tensor_bytes(weight))};
    weight->on_ready = note_ready;
    weight->on_ready_context = &ready;
    compare_step(&rig, 9);
    assert_int_equal(ready.calls, 1);
    assert_memory_equal(ready.seen, weight->grad, tensor_bytes(weight));
    free(ready.seen);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_convnet),
        cmocka_unit_test(test_gpt),
        cmocka_unit_test(test_shared_and_unused_parameters),
        cmocka_unit_test(test_scalar_outputs),
        cmocka_unit_test(test_frozen_parameter),
        cmocka_unit_test(test_wrapped_part),
        cmocka_unit_test(test_applied_twice),
        cmocka_unit_test(test_evaluation_in_between),
        cmocka_unit_test(test_ready_once_and_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
