/* test_data_parallel_parts.c: properties of DataParallel's parts besides values: the assignment of
 * rows to devices, bytes copied, memory allocated, error messages, records of a job.
 */
#include "common/base/profile.h"
#include "dp/shards.h"
#include "dp/strategy_dp.h"
#include "tests/rigs/data_parallel_rig.h"
#include "tests/rigs/heap_in_use.h"
#include "tests/rigs/temp_folder.h"

// ---- chunks, bytes, memory ---------------------------------------------------------------------

static Tensor *count_rows(Module *self, Tape *tape, Tensor *x) {
    (void)self;
    Tensor *rows = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){1, 1});
    tensor_f32(rows)[0] = (float)x->shape[0];
    return rows;
}

static Module *build_counter(Device *device) {
    (void)device;
    return module_create("Counter", count_rows);
}

static Tensor *double_in_place(Module *self, Tape *tape, Tensor *x) {
    (void)self;
    device_kernels(tape->device)->elementwise->scale(tensor_f32(x), 2, tensor_count(x));
    return x;
}

static Module *build_doubler(Device *device) {
    (void)device;
    return module_create("Doubler", double_in_place);
}

// The first device's rows are a view of the batch, the others' are copies; an in-place operation
// shows it.
static void test_first_piece_is_a_view(void **state) {
    (void)state;
    Rig rig = rig_open(build_doubler, 2);
    Tensor *x = rig_batch(&rig, rig.tape, 4), *same = rig_batch(&rig, rig.tape, 4);
    size_t half = tensor_count(x) / 2;
    Tensor *y = module_forward(rig.wrapper, rig.tape, x);
    assert_memory_equal(x->data, y->data, half * sizeof(float));
    assert_memory_equal(tensor_f32(x) + half, tensor_f32(same) + half, half * sizeof(float));
    assert_memory_not_equal(x->data, same->data, half * sizeof(float));
    rig_close(&rig);
}

// The table of chunk sizes agrees with PyTorch.
static void test_chunks(void **state) {
    (void)state;
    static const struct {
        size_t rows;
        int devices;
        size_t count;
        float shards[8];
    } TABLE[] = {{10, 8, 5, {2, 2, 2, 2, 2}},
                 {9, 8, 5, {2, 2, 2, 2, 1}},
                 {17, 8, 6, {3, 3, 3, 3, 3, 2}},
                 {25, 8, 7, {4, 4, 4, 4, 4, 4, 1}},
                 {7, 4, 4, {2, 2, 2, 1}},
                 {5, 4, 3, {2, 2, 1}},
                 {3, 4, 3, {1, 1, 1}},
                 {0, 4, 4, {0, 0, 0, 0}},
                 {8, 8, 8, {1, 1, 1, 1, 1, 1, 1, 1}}};
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++) {
        Rig rig = rig_open(build_counter, TABLE[i].devices);
        Tensor *x = tape_tensor(rig.tape, DTYPE_I64, 2, (size_t[]){TABLE[i].rows, 3});
        Tensor *y = module_forward(rig.wrapper, rig.tape, x);
        assert_non_null(y);
        assert_int_equal(y->shape[0], TABLE[i].count);
        assert_memory_equal(y->data, TABLE[i].shards, TABLE[i].count * sizeof(float));
        rig_close(&rig);
    }
}

static size_t bytes_of(Module *module, int which) {
    NamedTensors tensors = module_tensors(module, which);
    size_t bytes = 0;
    for (size_t k = 0; k < tensors.count; k++) bytes += tensor_bytes(tensors.items[k].tensor);
    named_tensors_free(&tensors);
    return bytes;
}

// Devices other than the first receive the weights, their rows and their rows' gradient; the first
// receives the others' outputs and gradients. Nothing else is copied.
static void test_bytes_moved(void **state) {
    (void)state;
    for (int devices = 1; devices <= 5; devices++) {
        for (size_t rows = 1; rows <= LARGEST_BATCH; rows += 4) {
            Rig rig = rig_open(build_convnet, devices);
            size_t row = CHANNELS * IMAGE * IMAGE * sizeof(float), out = CLASSES * sizeof(float);
            size_t back_to_first = 0;
            Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, rows));
            rig_backward(rig.tape, rig_loss(rig.tape, y));
            for (int i = 1; i < devices; i++) {
                size_t begin, end;
                chunk_bounds(rows, (size_t)devices, (size_t)i, &begin, &end);
                size_t mine = end - begin, state_bytes = bytes_of(rig.model, MODULE_STATE);
                assert_int_equal(rig.devices[i]->copied_bytes,
                                 mine ? state_bytes + mine * (row + out) : 0);
                if (mine) back_to_first += mine * out + bytes_of(rig.model, MODULE_PARAMETERS);
            }
            assert_int_equal(rig.devices[0]->copied_bytes, back_to_first);
            rig_close(&rig);
        }
    }
}

// ---- copies ------------------------------------------------------------------------------------

static int copies; // between devices

void __wrap_device_copy(Device *to, void *target, Device *from, const void *source, size_t bytes);
void __real_device_copy(Device *to, void *target, Device *from, const void *source, size_t bytes);

void __wrap_device_copy(Device *to, void *target, Device *from, const void *source, size_t bytes) {
    if (to && from && to != from) copies++;
    __real_device_copy(to, target, from, source, bytes);
}

void __wrap_device_copy_to_all(const DeviceCopy *list, size_t count, Device *from,
                               const void *source, size_t bytes);
void __real_device_copy_to_all(const DeviceCopy *list, size_t count, Device *from,
                               const void *source, size_t bytes);

void __wrap_device_copy_to_all(const DeviceCopy *list, size_t count, Device *from,
                               const void *source, size_t bytes) {
    copies += (int)count;
    __real_device_copy_to_all(list, count, from, source, bytes);
}

void __wrap_device_accumulate(Device *to, const DeviceTerm *terms, size_t count, float *staging,
                              size_t staging_count);
void __real_device_accumulate(Device *to, const DeviceTerm *terms, size_t count, float *staging,
                              size_t staging_count);

// Each term fits into a CPU's staging memory: one copy.
void __wrap_device_accumulate(Device *to, const DeviceTerm *terms, size_t count, float *staging,
                              size_t staging_count) {
    for (size_t t = 0; t < count; t++) copies += terms[t].from != to;
    __real_device_accumulate(to, terms, count, staging, staging_count);
}

enum { PACKED = 5 }; // matrices of at most a page, which share a copy

// fc0 to fc4 of 32 x 32 floats (one page), and one of 33 x 32.
static Module *build_pages(Device *device) {
    Module *model = layer_sequential("Pages");
    for (int k = 0; k <= PACKED; k++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", k);
        module_add(model, name, layer_linear(device, 32, k < PACKED ? 32 : 33));
    }
    module_initialize(model, SEED);
    return model;
}

// To and from each device but the first, small tensors share one copy and a large tensor has its
// own.
static void test_small_tensors_travel_together(void **state) {
    (void)state;
    for (int devices = 1; devices <= 4; devices++) {
        Rig rig = rig_open(build_pages, devices);
        Tensor *x = rig_numbers(rig.tape, 8, 32, 0);
        int others = devices - 1, before = copies;
        Tensor *y = module_forward(rig.wrapper, rig.tape, x);
        assert_int_equal(copies - before, 4 * others); // rows, packed and large weights, outputs
        before = copies;
        rig_backward(rig.tape, rig_loss(rig.tape, y));
        assert_int_equal(copies - before, 3 * others); // output gradients, packed and large ones
        rig_close(&rig);
    }
}

// One row: a single replica runs, and no tensor is packed.
static void test_one_replica_packs_nothing(void **state) {
    (void)state;
    Rig rig = rig_open(build_pages, 3);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_numbers(rig.tape, 1, 32, 0));
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    for (int i = 0; i < 3; i++) assert_int_equal(rig.tape->forks[i]->scratch_bytes, 0);
    assert_int_equal(rig.tape->scratch_bytes, 0);
    rig_close(&rig);
}

// Larger than the staging buffer: reduce copies the gradient in several parts.
static void test_large_parameter(void **state) {
    (void)state;
    enum { WIDE = 1700 }; // 1700 * 1700 * 4 bytes = 11.6 MB
    Device *devices[2];
    Error err = {0};
    for (int i = 0; i < 2; i++) devices[i] = device_open(i ? "cpu:1" : "cpu:0", &err);
    Module *linear = layer_linear(devices[0], WIDE, WIDE);
    Module *wrapper = data_parallel(linear, devices, 2, &err);
    Tape *tape = tape_create(devices[0], NULL);
    Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){2, WIDE});
    Tensor *target = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){2, WIDE});
    for (size_t i = 0; i < WIDE; i++) { // rows: 1 and 2 everywhere; targets: -column
        tensor_f32(x)[i] = 1;
        tensor_f32(x)[WIDE + i] = 2;
        tensor_f32(target)[i] = tensor_f32(target)[WIDE + i] = -(float)i;
    }
    rig_backward(tape, op_squared_error(tape, module_forward(wrapper, tape, x), target, 2));
    const float *grad = linear->parameters[0].tensor.grad; // y = 0: dy = column, dw = 3 column
    for (size_t i = 0; i < WIDE; i++)
        for (size_t j = 0; j < WIDE; j++)
            if (grad[i * WIDE + j] != 3 * (float)i) fail_msg("element %zu, %zu", i, j);
    tape_close(tape);
    module_close(wrapper);
    for (int i = 0; i < 2; i++) device_close(devices[i]);
}

// More small parameters than one packed copy holds: y = sum over k of W_k x, where W_k has a single
// element k.
static Tensor *many_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = module_forward(self->children[0], tape, x);
    for (int k = 1; k < self->child_count; k++)
        y = op_add(tape, y, module_forward(self->children[k], tape, x));
    return y;
}

static void test_many_parameters(void **state) {
    (void)state;
    enum { SIZE = 31, BYTES = (SIZE + 1) * SIZE * sizeof(float) }; // a weight and a bias
    enum { FIT = SHARDS_STAGING_BYTES / BYTES, COUNT = FIT + 50 };
    Device *devices[2];
    Error err = {0};
    for (int i = 0; i < 2; i++) devices[i] = device_open(i ? "cpu:1" : "cpu:0", &err);
    Module *many = module_create("Many", many_forward);
    for (int k = 0; k < COUNT; k++) {
        char name[16];
        snprintf(name, sizeof name, "%d", k);
        Module *linear = module_add(many, name, layer_linear(devices[0], SIZE, SIZE));
        tensor_f32(module_parameter(linear, 0))[0] = (float)k;
    }
    Module *wrapper = data_parallel(many, devices, 2, &err);
    Tape *tape = tape_create(devices[0], NULL);
    Tensor *x = rig_numbers(tape, 2, SIZE, 0), *target = rig_numbers(tape, 2, SIZE, 1);
    tensor_f32(x)[0] = 1;
    tensor_f32(x)[SIZE] = 2;
    Tensor *y = module_forward(wrapper, tape, x);
    float sum = COUNT * (COUNT - 1) / 2; // all of them below 2^24
    assert_true(tensor_f32(y)[0] == sum && tensor_f32(y)[SIZE] == 2 * sum);
    rig_backward(tape, op_squared_error(tape, y, target, 2)); // dy = y - target
    for (int k = 0; k < COUNT; k++) {
        const Tensor *weight = module_parameter(many->children[k], 0);
        const Tensor *first = module_parameter(many->children[0], 0);
        assert_memory_equal(weight->grad, first->grad, tensor_bytes(weight));
        assert_true(weight->grad[0] ==
                    (sum - tensor_f32(target)[0]) + 2 * (2 * sum - tensor_f32(target)[SIZE]));
        for (size_t i = 1; i < SIZE; i++) {
            const float *t = tensor_f32(target) + i;
            assert_true(weight->grad[i * SIZE] == -t[0] + 2 * -t[SIZE]);
        }
    }
    assert_int_equal(tape->forks[1]->scratch_bytes, FIT * BYTES); // one full packed copy
    assert_int_equal(tape->scratch_bytes, 2 * memory_whole_lines(FIT * BYTES)); // sum, received
    tape_close(tape);
    module_close(wrapper);
    for (int i = 0; i < 2; i++) device_close(devices[i]);
}

// Integer buffers of replicas equal the module's, bit for bit.
static void test_integer_buffer(void **state) {
    (void)state;
    Rig rig = rig_open(build_integer, 3);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 3));
    for (int i = 0; i < 3; i++) assert_true(((int64_t *)y->data)[i] == ODD_BITS);
    rig_close(&rig);
}

static void test_no_memory_after_first_step(void **state) {
    (void)state;
    size_t bytes[4], peak[4];
    Rig rig = rig_open(build_convnet, 4);
    for (int step = 0; step < 5; step++) {
        module_zero_grad(rig.wrapper);
        tape_reset(rig.tape);
        size_t rows = step == 3 ? 3 : 16; // step 3 is a short batch
        Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, rows));
        rig_backward(rig.tape, rig_loss(rig.tape, y));
        for (int i = 0; i < 4; i++) {
            if (step < 2) { // the second reset merges the first step's memory blocks
                bytes[i] = rig.devices[i]->bytes;
                peak[i] = rig.devices[i]->peak_bytes;
            }
            assert_int_equal(rig.devices[i]->bytes, bytes[i]);
            assert_int_equal(rig.devices[i]->peak_bytes, peak[i]);
        }
    }
    rig_close(&rig);
}

static void test_no_memory_after_close(void **state) {
    (void)state;
    for (int count = 1; count <= 4; count++) {
        HeapRuns runs = {0};
        while (heap_run(&runs)) {
            Rig rig = rig_open(build_convnet, count);
            Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 9));
            rig_backward(rig.tape, rig_loss(rig.tape, y));
            rig_close(&rig);
        }
        if (runs.left > 0) fail_msg("%d devices left %zu bytes allocated", count, runs.left);
    }
}

static void test_one_device_is_direct(void **state) {
    (void)state;
    Rig rig = rig_open(build_mlp, 1);
    module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 8));
    assert_int_equal(rig.tape->fork_count, 0);
    assert_int_equal(rig.tape->count, 3); // the model's own operations
    rig_close(&rig);
}

// One row with one element per device, and a gradient to which another use contributes.
static void test_one_element_each(void **state) {
    (void)state;
    Rig rig = rig_open(build_mlp, 2);
    Error err = {0};
    Module *wrapper = data_parallel(layer_relu(), rig.devices, 2, &err);
    const float values[] = {3, -4};
    Tensor *x = tape_input(rig.tape, DTYPE_F32, 2, (size_t[]){2, 1}, values);
    x->requires_grad = true;
    Tensor *y = op_add(rig.tape, module_forward(wrapper, rig.tape, x), x);
    rig_backward(rig.tape, op_mean(rig.tape, y));
    assert_true(x->grad[0] == 1 && x->grad[1] == 0.5f);
    module_close(wrapper);
    rig_close(&rig);
}

// ---- errors ------------------------------------------------------------------------------------

static void test_wrong_device(void **state) {
    (void)state;
    const char *text = "module must have its parameters and buffers on device cpu:0 "
                       "(device_ids[0]) but found one of them on device: cpu:1";
    Rig rig = rig_open(build_mlp, 2);
    Error err = {0};
    Module *elsewhere = build_mlp(rig.devices[1]);
    assert_null(data_parallel(elsewhere, rig.devices, 2, &err));
    assert_string_equal(err.message, text);
    module_close(elsewhere);

    Tensor *moved = &module_child(rig.model, "fc2")->parameters[1].tensor; // since wrapping
    moved->device = rig.devices[1];
    const uint64_t copied = rig.devices[1]->copied_bytes;
    assert_null(module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 4)));
    assert_error(rig.tape, text);
    assert_int_equal(rig.devices[1]->copied_bytes, copied); // no copy before the check
    moved->device = rig.devices[0];
    tape_reset(rig.tape);
    assert_non_null(module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 4)));

    err.status = STATUS_OK;
    Module *model = build_mlp(rig.devices[0]);
    Device *twice[] = {rig.devices[0], rig.devices[1], rig.devices[0]};
    assert_null(data_parallel(model, twice, 3, &err));
    assert_string_equal(err.message, "device cpu:0 is given twice");
    module_close(model);
    rig_close(&rig);
}

static void test_short_last_chunk(void **state) {
    (void)state;
    Rig rig = rig_open(build_square, 8);
    Tensor *x = rig_batch(&rig, rig.tape, 9); // chunks of 2, 2, 2, 2, 1
    assert_null(module_forward(rig.wrapper, rig.tape, x));
    assert_error(rig.tape,
                 "Caught error in replica 4 on device cpu:4: batch_norm on cpu:4: Expected "
                 "more than 1 value per channel when training, got input size [1, 6]");
    tape_reset(rig.tape);
    assert_non_null(module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 10)));
    rig_close(&rig);
}

static void fail_in_backward(Tape *tape, TapeNode *node) {
    if (tape->device->index >= 1) tape_fail(tape, "test", "backward is out of order");
    bool accumulate;
    float *grad = tape_grad(tape, node->inputs[0], &accumulate);
    memset(grad, 0, tensor_bytes(node->inputs[0]));
    tape_grad_done(tape, node->inputs[0]);
}

// The failure of a module on some replicas.
typedef enum Fault { FAULT_FORWARD, FAULT_BACKWARD, FAULT_NDIM, FAULT_SHAPE } Fault;

static Tensor *faulty_forward(Module *self, Tape *tape, Tensor *x) {
    int index = tape->device->index;
    x = module_forward(self->children[0], tape, x);
    size_t shape[] = {x->shape[0], 1, (size_t)index};
    switch ((Fault)self->config[0]) {
    case FAULT_FORWARD:
        return index >= 1 ? tape_fail(tape, "test", "forward is out of order") : x;
    case FAULT_BACKWARD: {
        Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
        memcpy(y->data, x->data, tensor_bytes(x));
        tape_record(tape, "test", fail_in_backward, y, 1, &x, NULL);
        return y;
    }
    case FAULT_NDIM:
        return tape_tensor(tape, DTYPE_F32, index >= 1 ? 2 : 3, shape);
    case FAULT_SHAPE:
        return tape_tensor(tape, DTYPE_F32, 3, shape);
    }
    return NULL;
}

static Module *build_faulty(Device *device) {
    Module *model = module_create("Faulty", faulty_forward);
    module_add(model, "fc", layer_linear(device, INPUTS, CLASSES));
    module_initialize(model, SEED);
    return model;
}

// Replicas 1, 2 and 3 fail; the others complete; the lowest replica's error is reported.
static void test_faults(void **state) {
    (void)state;
    static const char *const TEXTS[] = {
        [FAULT_FORWARD] =
            "Caught error in replica 1 on device cpu:1: test on cpu:1: forward is out of order",
        [FAULT_BACKWARD] =
            "Caught error in replica 1 on device cpu:1: test on cpu:1: backward is out of order",
        [FAULT_NDIM] = "gather on cpu:0: Expected all input tensors to have the same number of "
                       "dimensions, but tensor at index 1 has 2 dimensions, (expected 3)",
        [FAULT_SHAPE] = "gather on cpu:0: Input tensor at index 1 has invalid shape [2, 1, 1], but "
                        "expected [2, 1, 0]"};
    Rig rig = rig_open(build_faulty, 4);
    for (size_t fault = 0; fault < sizeof TEXTS / sizeof *TEXTS; fault++) {
        Error err = {0};
        tape_reset(rig.tape);
        Module *model = build_faulty(rig.devices[0]);
        model->config[0] = fault;
        Module *wrapper = data_parallel(model, rig.devices, 4, &err);
        Tensor *y = module_forward(wrapper, rig.tape, rig_batch(&rig, rig.tape, 8));
        if (fault == FAULT_BACKWARD)
            assert_int_equal(tape_backward(rig.tape, rig_loss(rig.tape, y), &err), -1);
        else
            assert_null(y);
        assert_error(rig.tape, TEXTS[fault]);
        module_close(wrapper);
    }
    tape_reset(rig.tape);
    Tensor *scalar = tape_tensor(rig.tape, DTYPE_F32, 0, NULL);
    assert_null(module_forward(rig.wrapper, rig.tape, scalar));
    assert_error(rig.tape, "scatter on cpu:0: a scalar has no rows to scatter");
    rig_close(&rig);
}

// ---- records -----------------------------------------------------------------------------------

static size_t occurrences(const char *text, const char *word) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) count++;
    return count;
}

enum { TRACE_TEXT = 8192 };

static void read_trace(void **state, const Trace *trace, char text[TRACE_TEXT]) {
    Error err = {0};
    char *path = temp_folder_path(state, "trace.json");
    assert_int_equal(trace_write(trace, path, &err), 0);
    FILE *file = fopen(path, "r");
    const size_t length = fread(text, 1, TRACE_TEXT - 1, file);
    assert_true(length > 0);
    text[length] = '\0';
    fclose(file);
    free(path);
}

static void test_profile_and_trace(void **state) {
    static const Phase PHASES[] = {PHASE_SCATTER, PHASE_REPLICATE, PHASE_FORWARD,
                                   PHASE_GATHER,  PHASE_BACKWARD,  PHASE_REDUCE};
    Rig rig = rig_open(build_mlp, 3);
    Trace *trace = trace_open(0, "dp");
    Profile profile = {0};
    data_parallel_set_trace(rig.wrapper, trace);
    rig.tape->profile = &profile;
    profile_begin_step(&profile);
    Tensor *y = module_forward(rig.wrapper, rig.tape, rig_batch(&rig, rig.tape, 6));
    assert_int_equal(profile.current, PHASE_OTHER); // each phase was left
    rig_backward(rig.tape, rig_loss(rig.tape, y));
    assert_int_equal(profile.current, PHASE_OTHER);
    profile_end_step(&profile);
    for (size_t i = 0; i < sizeof PHASES / sizeof *PHASES; i++)
        if (profile.step[PHASES[i]] == 0) fail_msg("no time in %s", phase_name(PHASES[i]));

    char text[TRACE_TEXT];
    read_trace(state, trace, text);
    assert_int_equal(occurrences(text, "\"forward\""), 3);
    assert_int_equal(occurrences(text, "\"backward\""), 3);
    for (int i = 0; i < 3; i++) assert_int_equal(occurrences(text, rig.devices[i]->name), 1);
    trace_close(trace);
    rig_close(&rig);
}

static void test_strategy(void **state) {
    Error err = {0};
    Device *devices[] = {device_open("cpu:3", &err), device_open("cpu:1", &err)};
    Module *model = build_mlp(devices[0]);
    Module *wrapper = data_parallel(model, devices, 2, &err);
    Sampler *sampler = sampler_whole(10, 4, false, false, 0, &err);
    Strategy *strategy = strategy_dp(wrapper, devices[0], sampler);
    Job *job = job_dp(strategy, devices, 2);
    assert_string_equal(job->name, "dp");
    assert_string_equal(job->backend, "threads");
    assert_int_equal(job->devices, 2);
    assert_int_equal(job->all_count, 2);
    assert_ptr_equal(job->all[1], devices[1]);
    assert_ptr_equal(strategy->device, devices[0]);
    assert_ptr_equal(strategy->module, wrapper);
    assert_ptr_equal(strategy->evaluation_module, wrapper); // as in PyTorch
    assert_int_equal(strategy_processes(strategy), 1);
    assert_true(strategy_is_main(strategy));
    assert_ptr_equal(strategy->model, model);
    Tape *tape = tape_create(devices[0], NULL);
    Tensor *x = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){4, INPUTS});
    memset(x->data, 0, tensor_bytes(x));
    Trace *trace = trace_open(0, "job");
    char text[TRACE_TEXT];
    job->set_trace(job, trace);
    assert_non_null(module_forward(strategy->module, tape, x));
    read_trace(state, trace, text);
    assert_int_equal(occurrences(text, "\"forward\""), 2);
    trace_close(trace);
    size_t weights = bytes_of(model, MODULE_STATE), rows = 2 * (INPUTS + CLASSES) * sizeof(float);
    assert_int_equal(job->moved_bytes(job), weights + rows);
    assert_int_equal(strategy->sampler->batch_count, 3);
    tape_close(tape);
    job->close(job);
}

static void test_device_ids(void **state) {
    (void)state;
    int ids[DP_MAX_DEVICES] = {[3] = -7};
    Error err = {0};
    assert_int_equal(dp_options_ids(3, NULL, ids, &err), 3);
    assert_memory_equal(ids, ((int[]){0, 1, 2, -7}), 4 * sizeof *ids); // no write beyond 3 ids
    assert_int_equal(dp_options_ids(2, "5,0,12", ids, &err), 3);
    assert_memory_equal(ids, ((int[]){5, 0, 12}), 3 * sizeof *ids);
    assert_int_equal(dp_options_ids(2, "999", ids, &err), 1);
    char most[2 * DP_MAX_DEVICES + 3]; // "7,7,...": the maximum number, then one more
    for (size_t i = 0; i < sizeof most; i++) most[i] = i % 2 ? ',' : '7';
    most[2 * DP_MAX_DEVICES + 1] = '\0';
    assert_int_equal(dp_options_ids(2, most, ids, &err), -1);
    most[2 * DP_MAX_DEVICES - 1] = '\0';
    assert_int_equal(dp_options_ids(2, most, ids, &err), DP_MAX_DEVICES);
    assert_int_equal(ids[DP_MAX_DEVICES - 1], 7);
    static const char *const BAD[] = {"",    ",",  "0,",  ",1",   "0,,1",
                                      "0,x", "-1", "1 2", "1000", "0;1"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        err.status = STATUS_OK;
        assert_int_equal(dp_options_ids(2, BAD[i], ids, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        assert_non_null(strstr(err.message, "--device-ids"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_piece_is_a_view),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_bytes_moved),
        cmocka_unit_test(test_small_tensors_travel_together),
        cmocka_unit_test(test_one_replica_packs_nothing),
        cmocka_unit_test(test_large_parameter),
        cmocka_unit_test(test_many_parameters),
        cmocka_unit_test(test_integer_buffer),
        cmocka_unit_test(test_no_memory_after_first_step),
        cmocka_unit_test(test_no_memory_after_close),
        cmocka_unit_test(test_one_device_is_direct),
        cmocka_unit_test(test_one_element_each),
        cmocka_unit_test(test_wrong_device),
        cmocka_unit_test(test_short_last_chunk),
        cmocka_unit_test(test_faults),
        cmocka_unit_test_setup_teardown(test_profile_and_trace, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_strategy, temp_folder_make, temp_folder_remove),
        cmocka_unit_test(test_device_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
