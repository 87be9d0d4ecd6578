/* test_data_parallel.c: DataParallel against shards computed in sequence on one device: outputs,
 * losses, gradients and buffers have equal bits, for whole models and parts, with shared, unused
 * and frozen parameters.
 */
#include "common/nn/tuple.h"
#include "tests/rigs/data_parallel_steps.h"

// Layer a is used twice, b only by replicas with more than one row, `never` not at all.
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

// Each batch twice: into undefined gradients, then accumulating. (With one device the wrapper calls
// the module directly: scalars stay scalars, and the two contributions of a parameter that is used
// twice are added to the old gradient one by one.)
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

// Rows are texts, whose tokens' logits are gathered in order; the embedding and the head share one
// weight.
static void test_gpt(void **state) {
    (void)state;
    compare_all_batches(build_gpt, 2);
}

static void test_shared_and_unused_parameters(void **state) {
    (void)state;
    compare_all_batches(build_odd, 2);
    Rig rig = rig_open(build_odd, 2);
    compare_step(&rig, 3); // chunks of 2 and 1 rows
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

// requires_grad may change after wrapping, as in PyTorch.
static void test_frozen_parameter(void **state) {
    (void)state;
    Rig rig = rig_open(build_half_frozen, 3);
    Tensor *frozen = &module_child(rig.model, "fc1")->parameters[0].tensor;
    Tensor *thawed = &module_child(rig.model, "fc2")->parameters[0].tensor;
    frozen->requires_grad = false;
    thawed->requires_grad = true;
    double_weights(rig.model), double_weights(rig.twin); // replicas must copy the new values
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 7));
    Shards shards;
    assert_same_values("the output", y, // frozen weights are copied to the replicas too
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

// A wrapped part of a model whose input requires a gradient; the wrapper and another use contribute
// to it.
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

// The wrapper applied to its own output: two sets of shards, one set of replicas.
static void test_applied_twice(void **state) {
    (void)state;
    Rig rig = rig_open(build_square, 4);
    Tensor *h = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 12));
    Tensor *y = module_forward(rig.wrapper, rig.tape, h);
    Tensor *target = rig_batch(&rig, rig.tape, 12);
    rig_backward(rig.tape, op_squared_error(rig.tape, y, target, 72));

    Tape *tape = rig.reference_tape;
    Shards first, second;
    assert_in_range(rig.tape->scratch_bytes, 1, 4096);
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

// An evaluation between a forward and its backward uses the same replicas and must not change the
// gradients.
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

// ---- several backwards and several forwards of one tape -----------------------------------------

// (a, b) -> (fc(a), b + b)
static Tensor *two_tasks_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y[] = {module_forward(self->children[0], tape, x->items[0]),
                   op_add(tape, x->items[1], x->items[1])};
    return tuple_create(tape, y, 2);
}

static Module *build_two_tasks(Device *device) {
    Module *model = module_create("TwoTasks", two_tasks_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

// Three losses of one forward, each with its own backward: of the first task, the second, the first
// again.
static void test_three_losses_of_one_forward(void **state) {
    (void)state;
    enum { ROWS = 7 };
    Rig rig = rig_open(build_two_tasks, 3);
    Tape *tapes[] = {rig.tape, rig.reference_tape};
    Module *modules[] = {rig.wrapper, rig.twin};
    Tensor *x[2][2];
    for (int side = 0; side < 2; side++) {
        Tape *tape = tapes[side];
        for (uint64_t k = 0; k < 2; k++) {
            x[side][k] = rig_numbers(tape, ROWS, k ? CLASSES : INPUTS, k);
            x[side][k]->requires_grad = true;
        }
        Tensor *y = module_forward(modules[side], tape, tuple_create(tape, x[side], 2));
        Tensor *losses[] = {rig_loss(tape, y->items[0]), rig_loss(tape, y->items[1]),
                            op_mean(tape, y->items[0])};
        for (int k = 0; k < 3; k++) rig_backward(tape, losses[k]);
    }
    for (int k = 0; k < 2; k++)
        assert_near("an input's gradient", x[0][k]->grad, x[1][k]->grad, tensor_count(x[1][k]));
    assert_int_equal(assert_near_gradients(&rig), 2);
    rig_close(&rig);
}

// Returns each tensor of a tuple doubled; None stays None.
static Tensor *twice_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y[LARGEST_BATCH + 3];
    (void)self;
    for (int k = 0; k < x->item_count; k++)
        y[k] = x->items[k] ? op_add(tape, x->items[k], x->items[k]) : NULL;
    return tuple_create(tape, y, x->item_count);
}

static Module *build_twice(Device *device) {
    (void)device;
    return module_create("Twice", twice_forward);
}

// The number of tensors and rows changes from step to step, and None replaces a tensor.
static void test_tuples_of_changing_lengths(void **state) {
    (void)state;
    enum { MOST = 20, STEPS = 5 };
    static const struct Step {
        int count, none;
        size_t rows;
    } STEPS_OF[STEPS] = {{MOST, -1, 9},
                         {3, 1, 6},
                         {MOST, 0, 2},
                         {MOST - 1, MOST - 2, 9},
                         {5, 4, 1}}; // one row: one replica runs
    for (int devices = 1; devices <= 3; devices++) {
        Rig rig = rig_open(build_twice, devices);
        for (int step = 0; step < STEPS; step++) {
            const struct Step *s = &STEPS_OF[step];
            tape_reset(rig.tape);
            Tensor *x[MOST];
            for (int k = 0; k < s->count; k++) {
                x[k] = k == s->none ? NULL : rig_numbers(rig.tape, s->rows, INPUTS, (uint64_t)k);
                if (x[k]) x[k]->requires_grad = k != 2;
            }
            Tensor *y = module_forward(rig.wrapper, rig.tape, tuple_create(rig.tape, x, s->count));
            assert_int_equal(y->item_count, s->count);
            assert_true(y->ndim == 1 && y->shape[0] == 0); // a tuple itself has no elements
            for (int k = 0; k < s->count; k++) {
                const Tensor *item = y->items[k];
                assert_int_equal(item == NULL, k == s->none);
                if (!item) continue;
                assert_true(tensor_same_shape(item, x[k]));
                assert_int_equal(item->requires_grad, k != 2);
                for (size_t i = 0; i < tensor_count(item); i++)
                    assert_true(tensor_f32(item)[i] == 2 * tensor_f32(x[k])[i]);
                if (k == 2) continue;
                float *grad = tape_make_grad(rig.tape, y->items[k]);
                for (size_t i = 0; i < tensor_count(item); i++) grad[i] = (float)((size_t)k + i);
            }
            rig_backward(rig.tape, y);
            for (int k = 0; k < s->count; k++) {
                if (!x[k]) continue;
                assert_int_equal(x[k]->has_grad, k != 2);
                for (size_t i = 0; k != 2 && i < tensor_count(x[k]); i++)
                    assert_true(x[k]->grad[i] == 2 * (float)((size_t)k + i));
            }
        }
        rig_close(&rig);
    }
}

typedef struct Ready {
    int calls;
    float *seen; // the gradient before the call
} Ready;

static int note_ready(void *context, Tensor *tensor, Error *err) {
    (void)err;
    Ready *ready = context;
    ready->calls++;
    memcpy(ready->seen, tensor->grad, tensor_bytes(tensor));
    return 0;
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
        cmocka_unit_test(test_three_losses_of_one_forward),
        cmocka_unit_test(test_tuples_of_changing_lengths),
        cmocka_unit_test(test_ready_once_and_reduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
