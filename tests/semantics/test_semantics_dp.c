/* test_semantics_dp.c: PyTorch's own tests of DataParallel; row_NN is a row of tests/semantics.md.
 * The reference is one device with a tape of its own. Rows 13, 14 and 16 are in
 * test_semantics_dp_parts.c, further properties of DataParallel in test_data_parallel*.c.
 */
#include "common/nn/tuple.h"
#include "dp/dp_options.h"
#include "tests/rigs/data_parallel_rig.h"

// ---- 1, 2, 5: a model -------------------------------------------------------------------------

// Compares a forward and backward of the wrapper with one device.
static void compare_with_one_device(BuildModule build, int devices, size_t rows, bool training) {
    Rig rig = rig_open(build, devices);
    rig.tape->training = rig.reference_tape->training = training;
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, rows));
    Tensor *want =
        module_forward(rig.twin, rig.reference_tape, rig_batch(&rig, rig.reference_tape, rows));
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    rig_backward(rig.reference_tape, rig_loss(rig.reference_tape, want));
    assert_ptr_equal(y->device, rig.devices[0]);
    assert_near_tensor("the output", y, want);
    assert_true(assert_near_gradients(&rig) >= 4);
    rig_close(&rig);
}

static void row_01_data_parallel(void **state) {
    (void)state;
    for (int devices = 1; devices <= 5; devices++)
        compare_with_one_device(build_mlp, devices, 10, true);
}

// int64 inputs and outputs keep their values; there are no half-precision tensors.
static Tensor *labels_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = module_forward(self->children[0], tape, x->items[0]);
    return tuple_create(tape, (Tensor *[]){y, x->items[1]}, 2);
}

static Module *build_labels(Device *device) {
    Module *model = module_create("Labels", labels_forward);
    module_add(model, "model", build_mlp(device));
    return model;
}

static void row_02_module_of_every_dtype(void **state) {
    (void)state;
    compare_with_one_device(build_convnet, 2, 8, false); // evaluation: running statistics
    Rig rig = rig_open(build_labels, 3);
    int64_t labels[7] = {1, INT64_MAX, -3, 4, INT64_MIN, 6, 7};
    Tensor *x[] = {rig_numbers(rig.tape, 7, INPUTS, 0),
                   tape_input(rig.tape, DTYPE_I64, 1, (size_t[]){7}, labels)};
    Tensor *y = module_forward(rig.wrapper, rig.tape, tuple_create(rig.tape, x, 2));
    assert_int_equal(y->items[1]->dtype, DTYPE_I64);
    assert_int_equal(y->items[1]->shape[0], 7);
    assert_memory_equal(y->items[1]->data, labels, sizeof labels);
    assert_false(y->items[1]->requires_grad);
    rig_close(&rig);
}

static void row_05_small_batch(void **state) {
    (void)state;
    for (size_t rows = 1; rows <= 4; rows++) compare_with_one_device(build_mlp, 5, rows, true);
}

// ---- 3, 4, 8, 9: inputs and outputs -----------------------------------------------------------

// (a, b, c or None) -> fc1(a) + fc2(b) + c
static Tensor *three_forward(Module *self, Tape *tape, Tensor *x) {
    CHECK(x->item_count >= 3, "%d inputs", x->item_count);
    Tensor *y = op_add(tape, module_forward(self->children[0], tape, x->items[0]),
                       module_forward(self->children[1], tape, x->items[1]));
    return x->items[2] ? op_add(tape, y, x->items[2]) : y;
}

static Module *build_three(Device *device) {
    Module *model = module_create("Three", three_forward);
    module_add(model, "fc1", layer_linear(device, INPUTS, CLASSES));
    module_add(model, "fc2", layer_linear(device, 2 * INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

// The three inputs of `three_forward`, then an empty tuple and a None.
static Tensor *three_inputs(Tape *tape, bool with_third) {
    Tensor *third = with_third ? rig_numbers(tape, 10, CLASSES, 2) : NULL;
    if (third) third->requires_grad = true;
    Tensor *x[] = {rig_numbers(tape, 10, INPUTS, 0), rig_numbers(tape, 10, 2 * INPUTS, 1), third,
                   tuple_create(tape, NULL, 0), NULL};
    return tuple_create(tape, x, 5);
}

static void compare_three(Rig *rig, bool with_third) {
    Tensor *x = three_inputs(rig->tape, with_third);
    Tensor *want_x = three_inputs(rig->reference_tape, with_third);
    Tensor *y = module_forward(rig->wrapper, rig->tape, x);
    Tensor *want = module_forward(rig->twin, rig->reference_tape, want_x);
    rig_backward(rig->tape, rig_loss(rig->tape, y));
    rig_backward(rig->reference_tape, rig_loss(rig->reference_tape, want));
    assert_near_tensor("the output", y, want);
    assert_int_equal(assert_near_gradients(rig), 4);
    if (with_third)
        assert_near("the third input's gradient", x->items[2]->grad, want_x->items[2]->grad,
                    tensor_count(want_x->items[2]));
}

// Tests PyTorch's keyword arguments: C has none, so they are further items of the tuple.
static void row_03_empty_containers_and_none(void **state) {
    (void)state;
    Rig rig = rig_open(build_three, 3);
    compare_three(&rig, false);
    rig_close(&rig);
}

// Returns one row for any input.
static Tensor *ones_forward(Module *self, Tape *tape, Tensor *x) {
    (void)self;
    CHECK(x->item_count == 1 && !x->items[0], "%d inputs", x->item_count);
    Tensor *y = tape_tensor(tape, DTYPE_F32, 1, (size_t[]){1});
    tensor_f32(y)[0] = 1;
    return y;
}

static Module *build_ones(Device *device) {
    (void)device;
    return module_create("Ones", ones_forward);
}

// An input that has items but no tensor is passed to every device.
static void row_03_nothing_but_none(void **state) {
    (void)state;
    Rig rig = rig_open(build_ones, 3);
    Tensor *none = NULL;
    Tensor *y = module_forward(rig.wrapper, rig.tape, tuple_create(rig.tape, &none, 1));
    assert_non_null(y);
    assert_int_equal(y->shape[0], 3);
    rig_close(&rig);
}

// One device, several devices, and devices that are not in ascending order.
static void row_04_several_inputs(void **state) {
    (void)state;
    for (int devices = 1; devices <= 4; devices++) {
        Rig rig = rig_open(build_three, devices);
        compare_three(&rig, true);
        rig_close(&rig);
    }
    Rig rig = rig_open(build_three, 3);
    Device *order[] = {rig.devices[1], rig.devices[2], rig.devices[0]};
    Error err = {0};
    module_close(rig.wrapper);
    tape_close(rig.tape);
    rig.wrapper = data_parallel(build_three(order[0]), order, 3, &err);
    rig.tape = tape_create(order[0], NULL);
    compare_three(&rig, true);
    rig_close(&rig);
}

// ((a, None), (b)) -> ((fc1(a), (fc2(b), None)), fc1(a) + fc2(b))
static Tensor *nest_forward(Module *self, Tape *tape, Tensor *x) {
    assert_null(x->items[0]->items[1]);
    Tensor *a = module_forward(self->children[0], tape, x->items[0]->items[0]);
    Tensor *b = module_forward(self->children[1], tape, x->items[1]->items[0]);
    Tensor *inner = tuple_create(tape, (Tensor *[]){b, NULL}, 2);
    Tensor *left = tuple_create(tape, (Tensor *[]){a, inner}, 2);
    return tuple_create(tape, (Tensor *[]){left, op_add(tape, a, b)}, 2);
}

static Module *build_nest(Device *device) {
    Module *model = build_three(device);
    model->forward = nest_forward;
    return model;
}

static Tensor *nested_input(Tape *tape) {
    Tensor *a = rig_numbers(tape, 7, INPUTS, 0), *b = rig_numbers(tape, 7, 2 * INPUTS, 1);
    Tensor *left = tuple_create(tape, (Tensor *[]){a, NULL}, 2);
    return tuple_create(tape, (Tensor *[]){left, tuple_create(tape, &b, 1)}, 2);
}

// The loss uses `a`, with or without the sum; gradients of unused outputs are None.
static void nested(Rig *rig, bool with_sum) {
    module_zero_grad(rig->wrapper);
    module_zero_grad(rig->twin);
    Tape *tapes[] = {rig->tape, rig->reference_tape};
    Module *modules[] = {rig->wrapper, rig->twin};
    Tensor *y[2];
    for (int side = 0; side < 2; side++) {
        Tape *tape = tapes[side];
        tape_reset(tape);
        y[side] = module_forward(modules[side], tape, nested_input(tape));
        Tensor *used = y[side]->items[0]->items[0];
        if (with_sum) used = op_add(tape, used, y[side]->items[1]);
        rig_backward(tape, rig_loss(tape, used));
    }
    assert_true(tuple_same_tree(y[0], y[1]));
    assert_null(y[0]->items[0]->items[1]->items[1]);
    assert_near_tensor("a", y[0]->items[0]->items[0], y[1]->items[0]->items[0]);
    assert_near_tensor("b", y[0]->items[0]->items[1]->items[0], y[1]->items[0]->items[1]->items[0]);
    assert_near_tensor("a + b", y[0]->items[1], y[1]->items[1]);
    assert_int_equal(assert_near_gradients(rig), with_sum ? 4 : 2); // fc2 alone: None
}

static void row_08_nested_inputs_and_outputs(void **state) {
    (void)state;
    for (int devices = 1; devices <= 4; devices++) {
        Rig rig = rig_open(build_nest, devices);
        nested(&rig, true);
        nested(&rig, false);
        rig_close(&rig);
    }
}

// A forward without inputs: returns the module's weight.
static Tensor *own_weight(Module *self, Tape *tape, Tensor *x) {
    (void)tape;
    (void)x;
    return module_parameter(self, 0);
}

static Module *build_own_weight(Device *device) {
    Module *model = layer_linear(device, 3, 2);
    model->forward = own_weight;
    module_initialize(model, SEED);
    return model;
}

static void row_09_no_inputs(void **state) {
    (void)state;
    Rig rig = rig_open(build_own_weight, 3);
    Tensor *weight = module_parameter(rig.model, 0);
    Tensor *y = module_forward(rig.wrapper, rig.tape, tuple_create(rig.tape, NULL, 0));
    assert_near_tensor("the weight", y, weight);
    for (int i = 1; i < 3; i++) assert_int_equal(rig.devices[i]->copied_bytes, 0);
    rig_backward(rig.tape, op_mean(rig.tape, y));
    for (size_t i = 0; i < 6; i++) assert_true(weight->grad[i] == 1.0f / 6);
    rig_close(&rig);
}

// ---- 6, 10: devices ---------------------------------------------------------------------------

static void row_06_model_on_another_device(void **state) {
    (void)state;
    const char *text = "module must have its parameters and buffers on device cpu:0 "
                       "(device_ids[0]) but found one of them on device: cpu:1";
    for (int buffer = 0; buffer < 2; buffer++) {
        Rig rig = rig_open(build_square, 2);
        Module *bn = module_child(rig.model, "bn");
        Tensor *moved = buffer ? &bn->buffers[1].tensor : module_parameter(bn, 1);
        moved->device = rig.devices[1];
        assert_null(module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 4)));
        assert_error(rig.tape, text);
        moved->device = rig.devices[0];
        Error err = {0};
        Module *elsewhere = build_square(rig.devices[1]);
        assert_null(data_parallel(elsewhere, rig.devices, 2, &err));
        assert_string_equal(err.message, text);
        module_close(elsewhere);
        rig_close(&rig);
    }
}

static void row_10_device_lists(void **state) {
    (void)state;
    int ids[DP_MAX_DEVICES];
    Error err = {0};
    assert_int_equal(dp_options_ids(2, NULL, ids, &err), 2);
    assert_memory_equal(ids, ((int[]){0, 1}), sizeof(int[2]));
    assert_int_equal(dp_options_ids(2, "3,1", ids, &err), 2);
    assert_memory_equal(ids, ((int[]){3, 1}), sizeof(int[2]));
    assert_int_equal(dp_options_ids(2, "cuda:0", ids, &err), -1);
    assert_string_equal(err.message, "--device-ids cuda:0: expected up to 64 numbers, like 0,1");

    Device *device = device_open("cpu:0", &err), *devices[] = {device, device};
    Module *model = build_mlp(device);
    err.status = STATUS_OK;
    assert_null(data_parallel(model, devices, 0, &err));
    assert_string_equal(err.message, "DataParallel needs a device");
    err.status = STATUS_OK;
    assert_null(data_parallel(model, devices, 2, &err));
    assert_string_equal(err.message, "device cpu:0 is given twice");
    module_close(model);
    device_close(device);
}

// ---- 7, 11, 12: replicas ----------------------------------------------------------------------

// Returns the replica's modes: (recording, the weight's requires_grad, the output is
// differentiable).
static Tensor *modes_forward(Module *self, Tape *tape, Tensor *x) {
    const Tensor *weight = module_parameter(self->children[0], 0);
    Tensor *y = module_forward(self->children[0], tape, x);
    Tensor *seen = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){1, 3});
    tensor_f32(seen)[0] = tape->recording;
    tensor_f32(seen)[1] = weight->requires_grad;
    tensor_f32(seen)[2] = tape->count > 0 || y->requires_grad;
    return seen;
}

static Module *build_modes(Device *device) {
    Module *model = module_create("Modes", modes_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, INPUTS));
    return model;
}

static void row_07_no_grad(void **state) {
    (void)state;
    for (int recording = 0; recording < 2; recording++) {
        Rig rig = rig_open(build_modes, 3);
        rig.tape->recording = recording;
        Tensor *seen = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 6));
        assert_int_equal(seen->shape[0], 3);
        for (size_t i = 0; i < 9; i++) assert_true(tensor_f32(seen)[i] == (float)recording);
        for (size_t i = 0; i < rig.tape->fork_count; i++) {
            assert_int_equal(rig.tape->forks[i]->count, recording);   // the node of linear
            assert_int_equal(rig.tape->forks[i]->buffer_capacity, 0); // no gradient memory
        }
        assert_int_equal(rig.tape->count, recording ? 2 : 0); // nodes replicate, parallel_apply
        rig_close(&rig);
    }
}

// x * t + s, with t and s buffers of one element per column.
static void scale_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *t = node->inputs[1];
    bool accumulate;
    float *dt = tape_grad(tape, t, &accumulate);
    for (size_t j = 0; dt && j < x->shape[1]; j++) {
        float sum = accumulate ? dt[j] : 0;
        for (size_t i = 0; i < x->shape[0]; i++)
            sum += tensor_f32(x)[i * x->shape[1] + j] * node->output->grad[i * x->shape[1] + j];
        dt[j] = sum;
    }
    tape_grad_done(tape, t);
}

static Tensor *scale_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *t = &self->buffers[0].tensor, *s = &self->buffers[1].tensor;
    Tensor *y = tape_tensor(tape, DTYPE_F32, 2, x->shape);
    for (size_t i = 0; i < tensor_count(x); i++) {
        size_t j = i % x->shape[1];
        tensor_f32(y)[i] = tensor_f32(x)[i] * tensor_f32(t)[j] + tensor_f32(s)[j];
    }
    tape_record(tape, "scale", scale_backward, y, 2, (Tensor *[]){x, t}, NULL);
    return y;
}

// Buffer t requires a gradient; its memory is either its own or the tape's.
static Module *build_scale(Device *device) {
    Module *model = module_create("Scale", scale_forward);
    for (int i = 0; i < 2; i++) {
        Tensor *buffer =
            module_add_buffer(model, device, i ? "s" : "t", DTYPE_F32, 1, (size_t[]){INPUTS});
        device->kernels->elementwise->fill(buffer->data, 0.5f, INPUTS);
    }
    model->buffers[0].tensor.requires_grad = true;
    return model;
}

static void row_11_buffers_that_want_gradients(void **state) {
    (void)state;
    for (int own_memory = 0; own_memory < 2; own_memory++) {
        Rig rig = rig_open(build_scale, 3);
        ModuleTensor *entry = &rig.model->buffers[0];
        if (own_memory) {
            entry->tensor.grad = device_alloc(rig.devices[0], INPUTS * sizeof(float));
            entry->owns_grad = true;
        }
        Tensor *x = rig_batch(&rig, rig.tape, 7), *y = module_forward(rig.wrapper, rig.tape, x);
        rig_backward(rig.tape, op_mean(rig.tape, y));
        assert_true(entry->tensor.has_grad);
        assert_false(rig.model->buffers[1].tensor.has_grad);
        float want[INPUTS] = {0}; // d mean / d t[j] = sum over rows of x[i, j] / elements
        for (size_t i = 0; i < tensor_count(x); i++)
            want[i % INPUTS] += tensor_f32(x)[i] / (float)tensor_count(x);
        assert_near("the buffer's gradient", entry->tensor.grad, want, INPUTS);
        rig_close(&rig);
    }
}

// Checks that the replica's tensors are on its device and returns them. It writes to a buffer: only
// the write of the first replica persists.
static Tensor *spy_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *buffer = &self->buffers[0].tensor, *weight = module_parameter(self, 0);
    CHECK(weight->device == tape->device && buffer->device == tape->device &&
              x->device == tape->device,
          "replica on %s", tape->device->name);
    Tensor *seen = tape_tensor(tape, DTYPE_F32, 1, (size_t[]){1});
    tensor_f32(seen)[0] = tensor_f32(buffer)[0];
    tensor_f32(buffer)[0] += 1 + (float)tape->device->index;
    return tuple_create(tape, (Tensor *[]){weight, seen, weight}, 3);
}

static Module *build_spy(Device *device) {
    Module *model = layer_linear(device, 3, 2);
    model->forward = spy_forward;
    module_add_buffer(model, device, "calls", DTYPE_F32, 0, NULL);
    module_initialize(model, SEED);
    return model;
}

static void row_12_replicas(void **state) {
    (void)state;
    Rig rig = rig_open(build_spy, 3);
    Tensor *weight = module_parameter(rig.model, 0);
    for (int step = 0; step < 3; step++) {
        module_zero_grad(rig.wrapper);
        tape_reset(rig.tape);
        Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 3));
        assert_int_equal(y->items[0]->shape[0], 6);
        for (size_t i = 0; i < 3; i++) {
            assert_memory_equal(tensor_f32(y->items[0]) + 6 * i, weight->data,
                                tensor_bytes(weight));
            assert_true(tensor_f32(y->items[1])[i] == (float)step); // only replica 0 persists
        }
        // A parameter may be an output, also twice.
        rig_backward(rig.tape, op_mean(rig.tape, op_add(rig.tape, y->items[0], y->items[2])));
        for (size_t i = 0; i < 6; i++) assert_true(fabsf(weight->grad[i] - 6 / 18.0f) < 1e-6f);
    }
    rig_close(&rig);
}

// ---- 15, 17, 20: errors and leaks -------------------------------------------------------------

typedef enum Fault {
    FAULT_FORWARD,
    FAULT_TREE,
    FAULT_NONE,
    FAULT_TYPE, // this and the following: of the last replica's output
    FAULT_SHAPE,
    FAULT_DIMENSIONS,
    FAULT_ITEM, // of one item of its tuple; the other item is valid
} Fault;

// Returns x; in the last replica a tensor that cannot be concatenated with it.
static Tensor *odd_one(Tape *tape, Fault fault, Tensor *x) {
    size_t rows = x->shape[0];
    if (tape->device->index < 2) return x;
    if (fault == FAULT_DIMENSIONS) return tape_tensor(tape, DTYPE_F32, 1, &rows);
    if (fault == FAULT_TYPE) return tape_tensor(tape, DTYPE_I64, 2, x->shape);
    return tape_tensor(tape, DTYPE_F32, 2, (size_t[]){rows, INPUTS + 1});
}

// Replica 0 never fails.
static Tensor *faulty_forward(Module *self, Tape *tape, Tensor *x) {
    bool first = tape->device->index == 0;
    if (self->config[0] == FAULT_ITEM)
        return tuple_create(tape, (Tensor *[]){odd_one(tape, FAULT_SHAPE, x), x}, 2);
    if (self->config[0] >= FAULT_TYPE) return odd_one(tape, (Fault)self->config[0], x);
    if (self->config[0] == FAULT_FORWARD)
        return first ? x : tape_fail(tape, "test", "no key \"%d\"", tape->device->index);
    Tensor *y[] = {x, first || self->config[0] == FAULT_TREE ? x : NULL};
    return tuple_create(tape, y, first || self->config[0] == FAULT_NONE ? 2 : 1);
}

static Module *build_faulty(Device *device) {
    (void)device;
    return module_create("Faulty", faulty_forward);
}

static void fail_with(Fault fault, const char *text) {
    Rig rig = rig_open(build_faulty, 3);
    Error err = {0};
    Module *model = build_faulty(rig.devices[0]);
    model->config[0] = fault;
    Module *wrapper = data_parallel(model, rig.devices, 3, &err);
    assert_null(module_forward(wrapper, rig.tape, rig_batch(&rig, rig.tape, 6)));
    assert_error(rig.tape, text);
    module_close(wrapper);
    rig_close(&rig);
}

static void row_15_outputs_of_different_lengths(void **state) {
    (void)state;
    fail_with(FAULT_TREE, "gather on cpu:0: All replicas must return the same number of tensors, "
                          "but replica 1 returned ([2, 6]), replica 0 ([2, 6], [2, 6])");
    fail_with(FAULT_NONE, "gather on cpu:0: All replicas must return the same number of tensors, "
                          "but replica 1 returned ([2, 6], None), replica 0 ([2, 6], [2, 6])");
}

static void row_15_outputs_of_different_types_and_shapes(void **state) {
    (void)state;
    fail_with(FAULT_TYPE, "gather on cpu:0: Input tensor at index 2 has dtype I64, but expected "
                          "F32");
    fail_with(FAULT_SHAPE, "gather on cpu:0: Input tensor at index 2 has invalid shape [2, 7], but "
                           "expected [2, 6]");
    fail_with(FAULT_ITEM, "gather on cpu:0: Input tensor at index 2 has invalid shape [2, 7], but "
                          "expected [2, 6]");
    fail_with(FAULT_DIMENSIONS,
              "gather on cpu:0: Expected all input tensors to have the same number of dimensions, "
              "but tensor at index 2 has 1 dimensions, (expected 2)");
}

static void row_17_error_in_a_replica(void **state) {
    (void)state;
    fail_with(FAULT_FORWARD,
              "Caught error in replica 1 on device cpu:1: test on cpu:1: no key \"1\"");
}

static void row_20_nothing_is_left_behind(void **state) {
    (void)state;
    Rig rig = rig_open(build_three, 3);
    compare_three(&rig, true);
    tape_close(rig.tape);
    tape_close(rig.reference_tape);
    rig.tape = rig.reference_tape = NULL;
    for (int i = 1; i < 3; i++) assert_int_equal(rig.devices[i]->bytes, 0); // nothing allocated
    assert_true(rig.devices[0]->bytes > 0);
    module_close(rig.wrapper);
    rig.wrapper = NULL;
    assert_int_equal(rig.devices[0]->bytes, 0);
    rig_close(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_01_data_parallel),
        cmocka_unit_test(row_02_module_of_every_dtype),
        cmocka_unit_test(row_03_empty_containers_and_none),
        cmocka_unit_test(row_03_nothing_but_none),
        cmocka_unit_test(row_04_several_inputs),
        cmocka_unit_test(row_05_small_batch),
        cmocka_unit_test(row_06_model_on_another_device),
        cmocka_unit_test(row_07_no_grad),
        cmocka_unit_test(row_08_nested_inputs_and_outputs),
        cmocka_unit_test(row_09_no_inputs),
        cmocka_unit_test(row_10_device_lists),
        cmocka_unit_test(row_11_buffers_that_want_gradients),
        cmocka_unit_test(row_12_replicas),
        cmocka_unit_test(row_15_outputs_of_different_lengths),
        cmocka_unit_test(row_15_outputs_of_different_types_and_shapes),
        cmocka_unit_test(row_17_error_in_a_replica),
        cmocka_unit_test(row_20_nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
