/* test_data_parallel_options.c: properties of DataParallel that users rely on and PyTorch's own
 * tests do not cover: the loss inside or outside the wrapper, dim, output_device, shared weights,
 * nested wrappers, inputs of different batch sizes.
 */
#include "common/nn/tuple.h"
#include "tests/rigs/data_parallel_rig.h"

// ---- the loss, inside and outside -------------------------------------------------------------

// (x, target) -> the mean or the sum of squared errors of fc(x), a scalar.
static Tensor *loss_forward(Module *self, Tape *tape, Tensor *x) {
    for (int i = 0; i < 2; i++) assert_ptr_equal(x->items[i]->device, tape->device);
    Tensor *y = module_forward(self->children[0], tape, x->items[0]);
    double divisor = self->config[0] ? 1 : (double)tensor_count(y);
    return op_squared_error(tape, y, x->items[1], divisor);
}

static Module *build_mean_loss(Device *device) {
    Module *model = module_create("MeanLoss", loss_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

static Module *build_sum_loss(Device *device) {
    Module *model = build_mean_loss(device);
    model->config[0] = 1;
    return model;
}

static Tensor *with_target(Tape *tape, size_t rows, size_t begin, size_t end) {
    Tensor *x = rig_numbers(tape, rows, INPUTS, 0), *t = rig_numbers(tape, rows, CLASSES, 1);
    x->data = tensor_f32(x) + begin * INPUTS;
    t->data = tensor_f32(t) + begin * CLASSES;
    x->shape[0] = t->shape[0] = end - begin;
    return tuple_create(tape, (Tensor *[]){x, t}, 2);
}

// The reference (1/C) sum over the C chunks of their means: one device divides each chunk's loss by
// C and accumulates the gradients.
static void mean_of_chunks_on_one_device(Rig *rig, size_t rows, float *loss) {
    size_t chunk = (rows + (size_t)rig->count - 1) / (size_t)rig->count;
    size_t chunks = (rows + chunk - 1) / chunk;
    *loss = 0;
    for (size_t begin = 0; begin < rows; begin += chunk) {
        size_t end = begin + chunk < rows ? begin + chunk : rows;
        Tape *tape = rig->reference_tape;
        Tensor *part = with_target(tape, rows, begin, end);
        Tensor *y = module_forward(rig->twin->children[0], tape, part->items[0]);
        Tensor *mine =
            op_squared_error(tape, y, part->items[1], (double)(tensor_count(y) * chunks));
        *loss += tensor_item(mine);
        rig_backward(tape, mine);
    }
}

static void mean_inside_is_the_mean_of_chunk_means(void **state) {
    (void)state;
    for (size_t rows = 2; rows <= LARGEST_BATCH; rows++) {
        Rig rig = rig_open(build_mean_loss, 4);
        Tensor *losses =
            module_forward(rig.wrapper, rig.tape, with_target(rig.tape, rows, 0, rows));
        Tensor *loss = op_mean(rig.tape, losses);
        rig_backward(rig.tape, loss);
        float want,
            whole = tensor_item(module_forward(rig.twin, rig.reference_tape,
                                               with_target(rig.reference_tape, rows, 0, rows)));
        mean_of_chunks_on_one_device(&rig, rows, &want);
        assert_near("the loss", tensor_f32(loss), &want, 1);
        assert_int_equal(assert_near_gradients(&rig), 2);
        // Equals the mean of the batch only if all chunks have the same length.
        bool equal = rows % losses->shape[0] == 0;
        assert_int_equal(fabsf(tensor_item(loss) - whole) < 1e-6f, equal);
        rig_close(&rig);
    }
}

static void sum_inside_is_the_sum_of_the_batch(void **state) {
    (void)state;
    Rig rig = rig_open(build_sum_loss, 4); // chunks of 2, 2, 2, 1 rows
    Tensor *losses = module_forward(rig.wrapper, rig.tape, with_target(rig.tape, 7, 0, 7));
    memcpy(tape_make_grad(rig.tape, losses), (float[]){1, 1, 1, 1}, sizeof(float[4]));
    Error err = {0};
    assert_int_equal(tape_backward(rig.tape, losses, &err), 0);
    Tape *tape = rig.reference_tape;
    rig_backward(tape, module_forward(rig.twin, tape, with_target(tape, 7, 0, 7)));
    assert_int_equal(assert_near_gradients(&rig), 2);
    rig_close(&rig);
}

static void mean_outside_is_the_mean_of_the_batch(void **state) {
    (void)state;
    for (size_t rows = 1; rows <= LARGEST_BATCH; rows++) {
        Rig rig = rig_open(build_mlp, 4);
        Tensor *loss = rig_loss(
            rig.tape, module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, rows)));
        Tape *tape = rig.reference_tape;
        Tensor *want = rig_loss(tape, module_forward(rig.twin, tape, rig_batch(&rig, tape, rows)));
        rig_backward(rig.tape, loss);
        rig_backward(tape, want);
        assert_near_tensor("the loss", loss, want);
        assert_int_equal(assert_near_gradients(&rig), 4);
        rig_close(&rig);
    }
}

static void empty_batch(void **state) {
    (void)state;
    Rig rig = rig_open(build_mlp, 3);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 0));
    assert_int_equal(y->shape[0], 0);
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    const Tensor *weight = module_parameter(module_child(rig.model, "fc1"), 0);
    assert_true(weight->has_grad); // zero, not None: the parameter was used
    for (size_t i = 0; i < tensor_count(weight); i++) assert_true(weight->grad[i] == 0);
    rig_close(&rig);
}

// A shard whose first element is 100 ignores its rows: their gradient must be zero, whatever their
// memory held before.
static Tensor *picky_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *other = rig_numbers(tape, x->shape[0], INPUTS, 3);
    return module_forward(self->children[0], tape, tensor_f32(x)[0] == 100 ? other : x);
}

static Module *build_picky(Device *device) {
    Module *model = module_create("Picky", picky_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

static void unused_rows(void **state) {
    (void)state;
    Rig rig = rig_open(build_picky, 3);
    for (int step = 0; step < 2; step++) {
        tape_reset(rig.tape);
        Tensor *x = rig_batch(&rig, rig.tape, 6);
        x->requires_grad = true;
        if (step == 1) tensor_f32(x)[2 * INPUTS] = 100; // the second replica's shard
        rig_backward(rig.tape, rig_loss(rig.tape, module_forward(rig.wrapper, rig.tape, x)));
        for (size_t i = 0; i < tensor_count(x); i++)
            assert_int_equal(x->grad[i] == 0, step == 1 && i / (2 * INPUTS) == 1);
    }
    rig_close(&rig);
}

// ---- replicas that run different layers -------------------------------------------------------

// Column 0 of a shard's first row selects the layers that the replica runs: fc1 (1), fc2 (2), both
// (3) or neither (0). Neither: the output depends on no parameter.
static Tensor *mixed_forward(Module *self, Tape *tape, Tensor *x) {
    int which = x->shape[0] ? (int)tensor_f32(x)[0] : 0;
    Tensor *y = NULL;
    for (int i = 0; i < 2; i++) {
        if (!(which >> i & 1)) continue;
        Tensor *part = module_forward(self->children[i], tape, x);
        y = y ? op_add(tape, y, part) : part;
    }
    return y ? y : rig_numbers(tape, x->shape[0], CLASSES, 4);
}

static Module *build_mixed(Device *device) {
    Module *model = module_create("Mixed", mixed_forward);
    module_add(model, "fc1", layer_linear(device, INPUTS, CLASSES));
    module_add(model, "fc2", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

enum { REPLICAS = 3, REPLICA_ROWS = 2 };

static Tensor *mixed_batch(Tape *tape, const int *which, int first, int shards) {
    Tensor *all = rig_numbers(tape, REPLICAS * REPLICA_ROWS, INPUTS, 0);
    for (int i = 0; i < REPLICAS; i++) tensor_f32(all)[i * REPLICA_ROWS * INPUTS] = (float)which[i];
    float *rows = tensor_f32(all) + (size_t)first * REPLICA_ROWS * INPUTS;
    size_t shape[] = {(size_t)shards * REPLICA_ROWS, INPUTS};
    return tape_input(tape, DTYPE_F32, 2, shape, rows);
}

// The reference: one device runs the same shards in sequence and accumulates their gradients.
static void mixed_reference(Rig *rig, const int *which, const Tensor *dy) {
    for (int i = 0; i < REPLICAS; i++) {
        Error err = {0};
        Tape *tape = rig->reference_tape;
        tape_reset(tape);
        Tensor *y = module_forward(rig->twin, tape, mixed_batch(tape, which, i, 1));
        if (!y->requires_grad) continue;
        memcpy(tape_make_grad(tape, y), dy->grad + i * REPLICA_ROWS * CLASSES, tensor_bytes(y));
        assert_int_equal(tape_backward(tape, y, &err), 0);
    }
}

// All 64 combinations of layers in three replicas, each twice, so that stale gradient memory of the
// first run would show in the second; each third step accumulates.
static void replicas_that_use_different_parameters(void **state) {
    (void)state;
    Rig rig = rig_open(build_mixed, REPLICAS);
    for (int way = 0; way < 2 * 64; way++) {
        int code = way / 2 * 37 % 64, which[REPLICAS] = {code & 3, code >> 2 & 3, code >> 4 & 3};
        Error err = {0};
        tape_reset(rig.tape);
        if (way % 3 != 2) module_zero_grad(rig.wrapper), module_zero_grad(rig.twin);
        Tensor *y =
            module_forward(rig.wrapper, rig.tape, mixed_batch(rig.tape, which, 0, REPLICAS));
        assert_int_equal(y->requires_grad, code != 0); // if any replica's output does
        Tensor *dy = rig_numbers(rig.tape, REPLICAS * REPLICA_ROWS, CLASSES, 100 + (uint64_t)way);
        float *grad = tape_make_grad(rig.tape, y);
        memcpy(grad, dy->data, tensor_bytes(dy));
        dy->grad = dy->data;
        if (code) assert_int_equal(tape_backward(rig.tape, y, &err), 0);
        mixed_reference(&rig, which, dy);
        assert_near_gradients(&rig);
    }
    rig_close(&rig);
}

// The input has another use, whose gradient is added before the wrapper's backward: an unused shard
// must not overwrite it with zeros.
static void unused_rows_of_an_input_with_other_uses(void **state) {
    (void)state;
    for (int unused = -1; unused < 3; unused++) {
        Rig rig = rig_open(build_picky, 3);
        Tensor *x = rig_batch(&rig, rig.tape, 6);
        x->requires_grad = true;
        if (unused >= 0) tensor_f32(x)[unused * 2 * INPUTS] = 100;
        Tensor *through = module_forward(rig.wrapper, rig.tape, x); // its backward runs last
        Tensor *loss = op_add(rig.tape, op_mean(rig.tape, through), op_mean(rig.tape, x));
        rig_backward(rig.tape, loss);
        const float alone = 1.0f / (6 * INPUTS);
        for (size_t i = 0; i < tensor_count(x); i++) {
            bool left_out = unused >= 0 && i / (2 * INPUTS) == (size_t)unused;
            assert_int_equal(x->grad[i] == alone, left_out);
            assert_true(x->grad[i] != 0);
        }
        rig_close(&rig);
    }
}

// ---- after a failure --------------------------------------------------------------------------

static void fail_backward(Tape *tape, TapeNode *node) {
    (void)node;
    tape_fail(tape, "fragile", "out of luck");
}

// A shard whose first element is 100 fails in backward, between the two layers.
static Tensor *fragile_forward(Module *self, Tape *tape, Tensor *x) {
    bool fails = x->shape[0] > 0 && tensor_f32(x)[0] == 100;
    Tensor *y = module_forward(self->children[0], tape, x);
    if (fails) {
        Tensor *z = tape_tensor(tape, DTYPE_F32, y->ndim, y->shape);
        memcpy(z->data, y->data, tensor_bytes(y));
        tape_record(tape, "fragile", fail_backward, z, 1, &y, NULL);
        y = z;
    }
    return module_forward(self->children[1], tape, y);
}

static Module *build_fragile(Device *device) {
    Module *model = module_create("Fragile", fragile_forward);
    module_add(model, "fc1", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "fc2", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

// A backward that failed in one replica leaves no state that changes the next step.
static void a_step_after_one_that_failed(void **state) {
    (void)state;
    for (size_t replica = 0; replica < 3; replica++) {
        Rig rig = rig_open(build_fragile, 3);
        for (int step = 0; step < 4; step++) {
            Error err = {0};
            tape_reset(rig.tape);
            tape_reset(rig.reference_tape);
            module_zero_grad(rig.wrapper);
            module_zero_grad(rig.twin);
            Tensor *x = rig_batch(&rig, rig.tape, 6);
            if (step % 2 == 0) tensor_f32(x)[replica * 2 * INPUTS] = 100;
            Tensor *loss = rig_loss(rig.tape, module_forward(rig.wrapper, rig.tape, x));
            if (step % 2 == 0) {
                assert_int_equal(tape_backward(rig.tape, loss, &err), -1);
                assert_non_null(strstr(err.message, "out of luck"));
                continue;
            }
            rig_backward(rig.tape, loss);
            Tensor *same = rig_batch(&rig, rig.reference_tape, 6);
            rig_backward(
                rig.reference_tape,
                rig_loss(rig.reference_tape, module_forward(rig.twin, rig.reference_tape, same)));
            assert_int_equal(assert_near_gradients(&rig), 4);
        }
        rig_close(&rig);
    }
}

// ---- dim --------------------------------------------------------------------------------------

// relu of a tensor [c, n], split along dimension 1: outputs and input gradients equal one device's.
static Module *build_relu(Device *device) {
    (void)device;
    return layer_relu();
}

static void dimension_1(void **state) {
    (void)state;
    for (size_t rows = 0; rows <= 9; rows++) {
        Rig rig = rig_open(build_relu, 4);
        data_parallel_set_dim(rig.wrapper, 1);
        Tape *tapes[] = {rig.tape, rig.reference_tape};
        Module *modules[] = {rig.wrapper, rig.twin};
        Tensor *x[2], *y[2];
        for (int side = 0; side < 2; side++) {
            x[side] = rig_numbers(tapes[side], 5, rows, 0);
            x[side]->requires_grad = true;
            y[side] = module_forward(modules[side], tapes[side], x[side]);
            Tensor *target = rig_numbers(tapes[side], 5, rows, 1);
            rig_backward(tapes[side], op_squared_error(tapes[side], y[side], target, 1));
        }
        assert_true(tensor_same_shape(y[0], y[1]));
        assert_memory_equal(y[0]->data, y[1]->data, tensor_bytes(y[1]));
        assert_memory_equal(x[0]->grad, x[1]->grad, tensor_bytes(x[1]));
        // Bytes copied: the other devices' shards and output gradients to them, outputs and input
        // gradients back.
        size_t chunk = (rows + 3) / 4, others = rows > chunk ? rows - chunk : 0;
        uint64_t there = 0;
        for (int i = 1; i < 4; i++) there += rig.devices[i]->copied_bytes;
        assert_int_equal(there, 2 * 5 * others * sizeof(float));
        assert_int_equal(rig.devices[0]->copied_bytes, there);
        rig_close(&rig);
    }
}

// dim = 1 with inputs on a device outside the wrapper: one device copies the whole input, several
// copy their columns.
static void dimension_1_of_far_inputs(void **state) {
    (void)state;
    static const int COUNTS[] = {1, 2, 4};
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        Rig rig = rig_open(build_relu, COUNTS[i]);
        data_parallel_set_dim(rig.wrapper, 1);
        Tensor *far = rig_numbers(rig.reference_tape, 5, 7, 0);
        Tensor *y = module_forward(rig.wrapper, rig.tape, far);
        Tensor *wanted = module_forward(rig.twin, rig.reference_tape, far);
        assert_ptr_equal(y->device, rig.devices[0]);
        assert_true(tensor_same_shape(y, wanted));
        assert_memory_equal(y->data, wanted->data, tensor_bytes(wanted));
        rig_close(&rig);
    }
}

// ---- output_device ----------------------------------------------------------------------------

// The outputs, the loss and its graph are on another device: equal bits.
static void output_device(void **state) {
    (void)state;
    for (int device = 0; device < 3; device++) {
        Rig rig = rig_open(build_mlp, 3), plain = rig_open(build_mlp, 3);
        data_parallel_set_output_device(rig.wrapper, rig.devices[device]);
        for (int step = 0; step < 2; step++) {
            Error err = {0};
            tape_reset(rig.tape);
            tape_reset(plain.tape);
            Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 8));
            Tensor *want =
                module_forward(plain.wrapper, plain.tape, rig_batch(&plain, plain.tape, 8));
            assert_ptr_equal(y->device, rig.devices[device]);
            assert_memory_equal(y->data, want->data, tensor_bytes(want));
            Tape *after = tape_fork(rig.tape, rig.devices[device]);
            rig_backward(after, rig_loss(after, y));
            assert_int_equal(tape_backward(rig.tape, y, &err), 0);
            rig_backward(plain.tape, rig_loss(plain.tape, want));
        }
        NamedTensors a = module_tensors(rig.wrapper, MODULE_PARAMETERS);
        NamedTensors b = module_tensors(plain.wrapper, MODULE_PARAMETERS);
        // In each step the first device received the gradients of the two others, and either their
        // 5 rows of outputs or its own 3 rows of the outputs' gradient.
        size_t rows = device == 0 ? 5 : 3, weights = INPUTS * 8 + 8 + 8 * CLASSES + CLASSES;
        assert_int_equal(rig.devices[0]->copied_bytes,
                         2 * (2 * weights + rows * CLASSES) * sizeof(float));
        for (size_t k = 0; k < a.count; k++) { // gradients accumulated over two steps
            assert_true(a.items[k].tensor->has_grad);
            assert_memory_equal(a.items[k].tensor->grad, b.items[k].tensor->grad,
                                tensor_bytes(b.items[k].tensor));
        }
        named_tensors_free(&a);
        named_tensors_free(&b);
        rig_close(&rig);
        rig_close(&plain);
    }
}

// ---- shared weights ---------------------------------------------------------------------------

// An encoder and a decoder that share one square weight, each with its own bias.
static Module *build_tied(Device *device) {
    Module *model = layer_sequential("Tied");
    Module *encoder = module_add(model, "encoder", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "relu", layer_relu());
    Module *decoder = module_add(model, "decoder", layer_linear(device, INPUTS, INPUTS));
    module_add(model, "head", layer_linear(device, INPUTS, CLASSES));
    module_tie_parameter(decoder, "weight", encoder, "weight");
    module_initialize(model, SEED);
    return model;
}

static void shared_weights_are_copied_once(void **state) {
    (void)state;
    size_t square = INPUTS * INPUTS,
           bytes = (square + 2 * INPUTS + INPUTS * CLASSES + CLASSES) * sizeof(float);
    for (int devices = 1; devices <= 3; devices++) {
        Rig rig = rig_open(build_tied, devices);
        NamedTensors names = module_tensors(rig.wrapper, MODULE_STATE);
        assert_int_equal(names.count, 5);
        assert_string_equal(names.items[0].name, "encoder.weight");
        assert_string_equal(names.items[2].name, "decoder.bias");
        named_tensors_free(&names);
        Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 6));
        size_t rows = 6 / (size_t)devices * INPUTS * sizeof(float);
        for (int i = 1; i < devices; i++)
            assert_int_equal(rig.devices[i]->copied_bytes, bytes + rows);
        Tape *tape = rig.reference_tape;
        Tensor *want = module_forward(rig.twin, tape, rig_batch(&rig, tape, 6));
        rig_backward(rig.tape, rig_loss(rig.tape, y));
        rig_backward(tape, rig_loss(tape, want));
        assert_near_tensor("the output", y, want);
        assert_int_equal(assert_near_gradients(&rig), 5);
        // Both uses contribute to one gradient.
        Module *decoder = module_child(rig.model, "decoder");
        assert_ptr_equal(module_parameter(decoder, 0),
                         module_parameter(module_child(rig.model, "encoder"), 0));
        module_zero_grad(decoder);
        assert_false(module_parameter(module_child(rig.model, "encoder"), 0)->has_grad);
        rig_close(&rig);
    }
}

// The wrapped part's weight belongs to a module outside of it, which uses it too.
static void weight_of_another_part(void **state) {
    (void)state;
    Rig rig = rig_open(build_tied, 2);
    Error err = {0};
    Module *encoder = module_child(rig.model, "encoder");
    Module *part = layer_linear(rig.devices[0], INPUTS, INPUTS);
    module_tie_parameter(part, "weight", encoder, "weight");
    Module *wrapper = data_parallel(part, rig.devices, 2, &err);
    assert_non_null(wrapper);
    Tensor *x = rig_batch(&rig, rig.tape, 4);
    Tensor *y = module_forward(wrapper, rig.tape, module_forward(encoder, rig.tape, x));
    Tape *tape = rig.reference_tape; // the part's bias is zero
    Module *twin = module_child(rig.twin, "encoder");
    Tensor *bias = module_parameter(twin, 1), *weight = module_parameter(twin, 0);
    Tensor *h = op_linear(tape, rig_batch(&rig, tape, 4), weight, bias);
    Tensor *want = op_linear(tape, h, weight, NULL);
    rig_backward(rig.tape, op_mean(rig.tape, y));
    rig_backward(tape, op_mean(tape, want));
    assert_near_tensor("the output", y, want);
    assert_int_equal(assert_near_gradients(&rig), 2);
    module_close(wrapper);
    rig_close(&rig);
}

// ---- nested wrappers --------------------------------------------------------------------------

static void wrappers_inside_wrappers(void **state) {
    (void)state;
    Rig rig = rig_open(build_mlp, 2);
    Error err = {0};
    // Parts in their own wrappers, inside a wrapper over a single device: allowed.
    Module *model = layer_sequential("Parts");
    module_add(model, "a", data_parallel(build_square(rig.devices[0]), rig.devices, 2, &err));
    module_add(model, "b", data_parallel(build_mlp(rig.devices[0]), rig.devices, 2, &err));
    Module *outer = data_parallel(model, rig.devices, 1, &err);
    assert_non_null(outer);
    Tensor *y = module_forward(outer, rig.tape, rig_batch(&rig, rig.tape, 8));
    assert_int_equal(y->shape[0], 8);
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    NamedTensors named = module_tensors(outer, MODULE_PARAMETERS);
    assert_string_equal(named.items[0].name, "a.fc.weight"); // no wrapper's name in it
    for (size_t k = 0; k < named.count; k++) assert_true(named.items[k].tensor->has_grad);
    named_tensors_free(&named);
    // An outer wrapper over several devices would have to replicate the inner ones: an error.
    assert_null(data_parallel(model, rig.devices, 2, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(err.message,
                        "a DataParallel named a cannot be inside a DataParallel over 2 devices: it "
                        "has state that is not copied to each of them");
    module_close(outer);
    rig_close(&rig);
}

// PyTorch's `.module`: the wrapped module.
static void inner_module(void **state) {
    (void)state;
    Rig rig = rig_open(build_mlp, 3);
    assert_int_equal(rig.wrapper->child_count, 1);
    assert_ptr_equal(module_child(rig.wrapper, ""), rig.model);
    Tensor *weight = module_parameter(module_child(rig.model, "fc2"), 0);
    for (size_t i = 0; i < tensor_count(weight); i++) tensor_f32(weight)[i] *= 2;
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 6));
    Tensor *direct = module_forward(rig.model, rig.tape, rig_batch(&rig, rig.tape, 6));
    assert_near_tensor("the output", y, direct); // replicas copy the new weights
    rig_close(&rig);
}

// With one device the wrapper calls the module on the input itself; scalars stay scalars. The same
// checks apply.
static void one_device(void **state) {
    (void)state;
    Rig rig = rig_open(build_mean_loss, 1);
    Tensor *x = with_target(rig.tape, 4, 0, 4);
    Tensor *loss = module_forward(rig.wrapper, rig.tape, x);
    assert_int_equal(loss->ndim, 0);
    assert_int_equal(rig.tape->fork_count, 0);
    assert_int_equal(rig.devices[0]->copied_bytes, 0);
    // Inputs on another device are copied.
    Tensor *far = with_target(rig.reference_tape, 4, 0, 4);
    Tensor *again = module_forward(rig.wrapper, rig.tape, far);
    assert_true(tensor_item(loss) == tensor_item(again));
    assert_int_equal(rig.devices[0]->copied_bytes, 4 * (INPUTS + CLASSES) * sizeof(float));
    Tensor *scalar = tape_tensor(rig.tape, DTYPE_F32, 0, NULL);
    assert_null(module_forward(rig.wrapper, rig.tape, scalar));
    assert_error(rig.tape, "scatter on cpu:0: a scalar has no rows to scatter");
    rig_close(&rig);
}

// ---- inputs of different batch sizes ----------------------------------------------------------

static void refuse(int devices, size_t a_rows, size_t b_rows, bool b_wants_grad, int dim,
                   const char *text) {
    Rig rig = rig_open(build_mean_loss, devices);
    Tape *far = tape_create(rig.reference, NULL);
    Tensor *b = rig_numbers(b_wants_grad ? far : rig.tape, b_rows, CLASSES, 0);
    b->requires_grad = b_wants_grad;
    Tensor *x[] = {rig_numbers(rig.tape, a_rows, INPUTS, 0), NULL, tuple_create(rig.tape, &b, 1)};
    data_parallel_set_dim(rig.wrapper, dim);
    assert_null(module_forward(rig.wrapper, rig.tape, tuple_create(rig.tape, x, 3)));
    assert_error(rig.tape, text);
    tape_close(far);
    rig_close(&rig);
}

static void inputs_that_do_not_fit(void **state) {
    (void)state;
    for (int devices = 1; devices <= 3; devices++) {
        refuse(devices, 6, 5, false, 0,
               "scatter on cpu:0: the inputs ([6, 6], None, ([5, 3])) have 6 and 5 rows (dimension "
               "0): they must be cut alike");
        refuse(devices, 6, 6, false, 1,
               "scatter on cpu:0: the inputs ([6, 6], None, ([6, 3])) have 6 and 3 rows (dimension "
               "1): they must be cut alike");
        refuse(devices, 6, 6, false, 2, "scatter on cpu:0: [6, 6] has no dimension 2 to cut");
        refuse(devices, 6, 6, true, 0,
               "scatter on cpu:0: an input that wants a gradient is on cpu:99");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mean_inside_is_the_mean_of_chunk_means),
        cmocka_unit_test(sum_inside_is_the_sum_of_the_batch),
        cmocka_unit_test(mean_outside_is_the_mean_of_the_batch),
        cmocka_unit_test(empty_batch),
        cmocka_unit_test(unused_rows),
        cmocka_unit_test(replicas_that_use_different_parameters),
        cmocka_unit_test(unused_rows_of_an_input_with_other_uses),
        cmocka_unit_test(a_step_after_one_that_failed),
        cmocka_unit_test(dimension_1),
        cmocka_unit_test(dimension_1_of_far_inputs),
        cmocka_unit_test(output_device),
        cmocka_unit_test(shared_weights_are_copied_once),
        cmocka_unit_test(weight_of_another_part),
        cmocka_unit_test(wrappers_inside_wrappers),
        cmocka_unit_test(inner_module),
        cmocka_unit_test(one_device),
        cmocka_unit_test(inputs_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
