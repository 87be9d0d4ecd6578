/* test_fully_shard.c: fully sharded data parallel: its bits equal DistributedDataParallel's for
 * every choice of units; shards have torch.chunk's rows; misuse is refused by name; units hold
 * their group. (Memory and gathers: test_fsdp_units.c.)
 */
#include "tests/rigs/check.h"
#include "tests/rigs/failed_check.h"
#include "tests/rigs/ranks.h"
#include "tests/rigs/sanitizers.h"

#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ddp_toy.h"

#include "common/tensor_files/safetensors.h"
#include "ddp/fsdp/fsdp_internal.h"

enum { STEPS = 4 };

static const OptimizerConfig ADAMW = {
    .kind = OPTIMIZER_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

typedef struct Case {
    const char *model;
    unsigned units; // bit i: child i is a unit, if it has parameters
    FsdpReshard reshard;
    bool blocking, global, held, evaluates, frozen, early;
    Precision precision;
} Case;

// ---- equal bits with DDP ------------------------------------------------------------------------

static bool may_be_unit(const Module *module) {
    if (!module->forward || module->parameter_count == 0) return false;
    for (int i = 0; i < module->parameter_count; i++)
        if (module->parameters[i].tied || module->parameters[i].ties) return false;
    return true;
}

static void shard_model(Rig *rig, Module *model, const Case *how) {
    FsdpConfig config = fsdp_config_default();
    config.overlap = !how->blocking;
    config.global_normalization = how->global;
    config.reshard_after_forward = how->reshard;
    config.unshard_in_step = how->early;
    config.precision = how->precision;
    for (int i = 0; i < model->child_count; i++)
        if (how->units >> i & 1 && may_be_unit(model->children[i]))
            EXPECT(fully_shard(model->children[i], rig->group, &config, &rig->outcome->error) == 0);
    EXPECT(fully_shard(model, rig->group, &config, &rig->outcome->error) == 0);
    rig->model = model;
}

// (W x + x) + x: three operations add to x's gradient, two of them within a unit; the sum must be
// rounded as without the unit.
static Tensor *twice_forward(Module *self, Tape *tape, Tensor *x) {
    return op_add(tape, op_linear(tape, x, module_parameter(self, 0), NULL), x);
}

static Tensor *residual_forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "stem"), tape, op_flatten(tape, x));
    x = op_add(tape, module_forward(module_child(self, "twice"), tape, x), x);
    return module_forward(module_child(self, "head"), tape, x);
}

static Module *residual_model(Device *device, uint64_t seed) {
    Module *model = module_create("Residual", residual_forward);
    module_add(model, "stem", layer_linear(device, IMAGE, IMAGE));
    module_add(model, "head", layer_linear(device, IMAGE, CLASSES));
    module_initialize(model, seed);
    Module *twice = module_add(model, "twice", module_create("Twice", twice_forward));
    Tensor *w = module_add_parameter(twice, device, "w", 2, (size_t[]){IMAGE, IMAGE});
    for (size_t i = 0; i < IMAGE * IMAGE; i++)
        tensor_f32(w)[i] = rng_uniform(seed, RNG_STREAM_TEST, i, -1, 1) / 8;
    return model;
}

static Module *new_model(const Rig *rig, const Case *how) {
    const bool residual = strcmp(how->model, "residual") == 0;
    Module *model =
        residual ? residual_model(rig->device, 3) : test_model(how->model, 3, rig->device);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    for (int i = 0; how->frozen && i < 3; i++) // parameters of the first unit, and more
        parameters.items[i].tensor->requires_grad = false;
    named_tensors_free(&parameters);
    return model;
}

// Runs one backward of a step on batch `part`. "branches" changes the order of its units in each,
// so that the prefetched unit is the wrong one.
static void backward(Rig *rig, Module *module, const Case *how, int step, int part) {
    Error *err = &rig->outcome->error;
    if (strcmp(how->model, "branches") == 0) rig->model->config[0] = (size_t)(step + part) % 2;
    const size_t rows = test_rows(rig->rank);
    const double divisor = (double)(how->global ? test_global_rows(rig->world) : rows);
    tape_reset(rig->tape);
    rig->tape->precision = how->precision;
    Tensor *loss = test_loss(rig->tape, module, rig->rank, 2 * step + part, rows, divisor);
    if (how->evaluates) { // on another tape: the first one's backward is still to come
        Tape *other = tape_create(rig->device, NULL);
        other->recording = other->training = false;
        EXPECT(test_loss(other, module, rig->rank, 99, rows, 1) != NULL);
        tape_close(other);
    }
    EXPECT(tape_error(rig->tape, err) == 0);
    EXPECT(loss && tape_backward(rig->tape, loss, err) == 0);
}

static void train_ddp_step(Rig *rig, Optimizer *optimizer, const Case *how, int step) {
    module_zero_grad(rig->model);
    if (how->held) {
        bool before = ddp_no_sync_begin(rig->wrapper);
        backward(rig, rig->wrapper, how, step, 1);
        ddp_no_sync_end(rig->wrapper, before);
    }
    backward(rig, rig->wrapper, how, step, 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, &rig->outcome->error) == 0);
    optimizer_step(optimizer, 0.01);
}

static void train_fsdp_step(Rig *rig, Optimizer *optimizer, const Case *how, int step) {
    module_zero_grad(rig->model);
    if (how->held) {
        EXPECT(fsdp_set_requires_gradient_sync(rig->model, false));
        backward(rig, rig->model, how, step, 1);
        EXPECT(!fsdp_set_requires_gradient_sync(rig->model, true));
    }
    backward(rig, rig->model, how, step, 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, &rig->outcome->error) == 0);
    optimizer_step(optimizer, 0.01);
}

// Each rank's shards of weights, gradients and optimizer state equal DDP's.
static void compare(Rig *rig, const Optimizer *whole, const Optimizer *shards, const Case *how) {
    float nonzero = 0;
    for (size_t i = 0; i < shards->parameters.count; i++) {
        const NamedTensor *named = &shards->parameters.items[i];
        const Tensor *a = whole->parameters.items[i].tensor, *b = named->tensor;
        const size_t first = tensor_first(b), bytes = tensor_bytes(b);
        if (memcmp(tensor_f32(a) + first, b->data, bytes) != 0)
            problem(rig->outcome, "%s %x: %s differs", how->model, how->units, named->name);
        EXPECT(a->has_grad == b->has_grad);
        if (a->has_grad && memcmp(a->grad + first, b->grad, bytes) != 0)
            problem(rig->outcome, "%s %x: the gradient of %s differs", how->model, how->units,
                    named->name);
        for (int s = 0; s < 2; s++)
            if (memcmp(whole->state[s][i] + first, shards->state[s][i], bytes) != 0)
                problem(rig->outcome, "%s %x: the state of %s differs", how->model, how->units,
                        named->name);
        if (a->has_grad && bytes > 0) nonzero += fabsf(b->grad[0]);
    }
    EXPECT(nonzero != 0 || rig->world > 4);
}

// Rank 0 collects the whole weights and states; they equal DDP's.
static void compare_collected(Rig *rig, const Optimizer *whole, const Optimizer *shards) {
    SafeTensors content;
    EXPECT(fsdp_collect(rig->model, FSDP_STATE, shards, &content, &rig->outcome->error) == 0);
    EXPECT(content.count == (rig->rank == 0 ? 3 * whole->parameters.count : 0));
    for (size_t i = 0; i < content.count / 3; i++) {
        const NamedTensor *named = &whole->parameters.items[i];
        const void *wanted[] = {named->tensor->data, whole->state[0][i], whole->state[1][i]};
        for (int k = 0; k < 3; k++) {
            char name[2 * MODULE_PATH];
            snprintf(name, sizeof name, "%s/%s%s%s", k > 0 ? "optimizer" : "model", named->name,
                     k > 0 ? "." : "", k > 0 ? optimizer_state_name(whole, k - 1) : "");
            const SafeEntry *entry = safetensors_find(&content, name);
            if (!entry || memcmp(entry->data, wanted[k], tensor_bytes(named->tensor)) != 0)
                problem(rig->outcome, "%s is not collected", name);
        }
    }
    safetensors_free(&content);
}

static void compare_buffers(Rig *rig, Module *a, Module *b) {
    NamedTensors ours = module_tensors(a, MODULE_BUFFERS),
                 theirs = module_tensors(b, MODULE_BUFFERS);
    for (size_t i = 0; i < ours.count; i++)
        EXPECT(memcmp(ours.items[i].tensor->data, theirs.items[i].tensor->data,
                      tensor_bytes(ours.items[i].tensor)) == 0);
    named_tensors_free(&ours);
    named_tensors_free(&theirs);
}

static void same_as_ddp(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    Rig a = rig_open(group, outcome), b = rig_open(group, outcome), *rig = &b;
    DdpConfig config = ddp_config_default();
    config.global_normalization = how->global;
    rig_wrap(&a, new_model(&a, how), &config);
    shard_model(rig, new_model(rig, how), how);
    Optimizer *whole = optimizer_create(a.model, &ADAMW);
    OptimizerConfig sharded = ADAMW;
    if (how->early) sharded.sharding = fsdp_sharding(rig->model);
    Optimizer *shards = optimizer_create(rig->model, &sharded);
    for (int step = 0; step < STEPS; step++) {
        train_ddp_step(&a, whole, how, step);
        train_fsdp_step(rig, shards, how, step);
        compare(rig, whole, shards, how);
    }
    compare_collected(rig, whole, shards);
    if (!how->evaluates) { // broadcast from rank 0
        EXPECT(ddp_sync_module_states(a.wrapper, 0, NULL) == 0);
        EXPECT(fsdp_sync_buffers(rig->model, NULL) == 0);
        compare_buffers(rig, a.model, rig->model);
    }
    optimizer_close(whole);
    optimizer_close(shards);
    rig_close(rig); // gathers of the last step may be in flight
    rig_close(&a);
}

static void same_bits_as_ddp(void **state) {
    (void)state;
    static const char *const models[] = {"mlp",  "convnet",  "shared",
                                         "tied", "branches", "residual"};
    unsigned count = 0;
    for (int world = 1; world <= 5; world++)
        for (int m = 0; m < 6; m++)
            for (unsigned layout = 0; layout < 4; layout++, count++) {
                const Case how = {.model = models[m],
                                  .units = layout == 0   ? 0
                                           : layout == 1 ? ~0U
                                                         : 0x5aU << layout,
                                  .reshard = (FsdpReshard)(count % 3),
                                  .blocking = count % 5 == 1,
                                  .global = count % 2,
                                  .held = count % 7 == 2,
                                  .evaluates = count % 4 == 3,
                                  .frozen = count % 11 == 5 && m != 3,
                                  .early = count % 3 != 1,
                                  .precision = count % 5 == 3   ? PRECISION_BF16
                                               : count % 5 == 4 ? PRECISION_F16
                                                                : PRECISION_F32};
                play_ranks(AS_THREADS, world, 60, same_as_ddp, &how, NULL);
                if (layout == 1 && !UNDER_TSAN)
                    play_ranks(AS_PROCESSES, world, 60, same_as_ddp, &how, NULL);
            }
}

// ---- rows of shards -----------------------------------------------------------------------------

// [5, 3] on W ranks has torch.chunk's rows: the last ranks have fewer, or none.
static void count_rows(ProcessGroup *group, const void *argument, Outcome *outcome) {
    static const size_t ROWS[][5] = {{5}, {3, 2}, {2, 2, 1}, {2, 2, 1, 0}, {1, 1, 1, 1, 1}};
    Rig self = rig_open(group, outcome), *rig = &self;
    (void)argument;
    const Case how = {.model = ""};
    shard_model(rig, matrix_model(rig->device, 3, 5, 1), &how);
    const Tensor *weight = &rig->model->parameters[0].tensor;
    size_t first = 0;
    for (int r = 0; r < rig->rank; r++) first += ROWS[rig->world - 1][r];
    EXPECT(weight->shape[0] == ROWS[rig->world - 1][rig->rank] && weight->shape[1] == 3);
    EXPECT(tensor_first(weight) == 3 * first);
    EXPECT(module_count(rig->model, MODULE_PARAMETERS) == 15);
    EXPECT(all_equal(tensor_f32(weight), tensor_count(weight), 1));
    EXPECT(matrix_backward(rig, rig->model, 2, 3, (float)(1 + rig->rank), 1, &outcome->error) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, &outcome->error) == 0);
    // Each rank's gradient comes from 2 rows of value 1 + rank; then the mean over ranks.
    EXPECT(all_equal(weight->grad, tensor_count(weight), (float)(rig->world + 1)));
    rig_close(rig);
}

static void rows_are_those_of_chunk(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++)
        play_ranks(AS_THREADS, world, 60, count_rows, NULL, NULL);
}

// ---- semantics ----------------------------------------------------------------------------------

// zero_grad between forward and backward clears the shards' gradients; without it gradients
// accumulate; a unit that a forward does not use keeps its gradient.
static void accumulate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    Error *err = &outcome->error;
    (void)argument;
    const Case how = {.model = "", .units = 1};
    shard_model(rig, toy_model(rig->device, 3, 1), &how);
    static const float both[] = {4, 8, 0}, first[] = {4, 0, 0};
    const Tensor *task[3];
    for (int k = 0; k < 3; k++) task[k] = rig_parameter(rig, k);
    const size_t mine = tensor_count(task[0]);
    EXPECT(toy_backward(rig, rig->model, both, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(all_equal(task[0]->grad, mine, 1) && all_equal(task[1]->grad, mine, 2));
    EXPECT(task[0]->has_grad && task[1]->has_grad && !task[2]->has_grad);
    EXPECT(toy_backward(rig, rig->model, first, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(all_equal(task[0]->grad, mine, 2) && all_equal(task[1]->grad, mine, 2));
    SafeTensors content; // the defined gradients
    EXPECT(fsdp_collect(rig->model, FSDP_GRADIENTS, NULL, &content, err) == 0);
    EXPECT(content.count == (rig->rank == 0 ? 2 : 0));
    safetensors_free(&content);
    // Now with zero_grad after the forward.
    tape_reset(rig->tape);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){3}, first);
    Tensor *loss = module_forward(rig->model, rig->tape, x);
    module_zero_grad(rig->model);
    EXPECT(tape_backward(rig->tape, loss, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(task[0]->has_grad && all_equal(task[0]->grad, mine, 1) && !task[1]->has_grad);
    // A parameter that is frozen while its gradient is held gets no gradient.
    module_zero_grad(rig->model);
    fsdp_set_requires_gradient_sync(rig->model, false);
    EXPECT(toy_backward(rig, rig->model, both, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    rig_parameter(rig, 0)->requires_grad = false;
    fsdp_set_requires_gradient_sync(rig->model, true);
    EXPECT(toy_backward(rig, rig->model, both, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(!task[0]->has_grad && task[1]->has_grad && all_equal(task[1]->grad, mine, 4));
    rig_close(rig);
}

static void gradients_accumulate(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        play_ranks(AS_THREADS, world, 60, accumulate, NULL, NULL);
}

// ---- refusals -----------------------------------------------------------------------------------

static void refuse(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    Error err = {0};
    (void)argument;
    rig->model = test_model("mlp", 3, rig->device);
    Module *fc1 = module_child(rig->model, "fc1"), *scalar = module_create("Scale", matrix_forward);
    EXPECT(fully_shard(fc1, group, &config, &err) == 0);
    EXPECT(fully_shard(fc1, group, &config, &err) != 0);
    EXPECT(strstr(err.message, "fully_shard has already been applied to fc1"));
    err = (Error){0};
    const DdpConfig ddp = ddp_config_default();
    EXPECT(!distributed_data_parallel(rig->model, group, &ddp, &err));
    EXPECT(strstr(err.message, "fc1.weight is in another wrapper already (fully_shard)"));
    err = (Error){0};
    EXPECT(fully_shard(module_add(rig->model, "list", module_create("List", NULL)), group, &config,
                       &err) != 0);
    EXPECT(strstr(err.message, "does not support list: a List has no forward of its own"));
    err = (Error){0};
    module_add_parameter(module_add(rig->model, "scale", scalar), rig->device, "s", 0, NULL);
    EXPECT(fully_shard(scalar, group, &config, &err) != 0);
    EXPECT(strstr(err.message, "fully_shard doesn't support scalar parameters. Change s to a 1D "
                               "tensor with numel equal to 1."));
    module_close(rig->model);
    // Units and shards inside the module are found at any depth.
    for (int outer_first = 0; outer_first < 2; outer_first++) {
        err = (Error){0};
        rig->model = layer_sequential("Outer");
        Module *middle = module_add(rig->model, "middle", layer_sequential("Middle"));
        Module *fc = module_add(middle, "fc", layer_linear(rig->device, 2, 2));
        if (!outer_first) EXPECT(fully_shard(fc, group, &config, &err) == 0);
        EXPECT(fully_shard(rig->model, group, &config, &err) == 0);
        if (!outer_first) EXPECT(fsdp_of(fc) == fsdp_of(rig->model));
        if (outer_first) EXPECT(fully_shard(middle, group, &config, &err) != 0);
        if (outer_first)
            EXPECT(strstr(err.message, "of middle: an outer unit has its weight already"));
        module_close(rig->model);
    }
    // The outer module is sharded before the inner one.
    err = (Error){0};
    rig->model = test_model("mlp", 3, rig->device);
    EXPECT(fully_shard(rig->model, group, &config, &err) == 0);
    EXPECT(fully_shard(module_child(rig->model, "fc1"), group, &config, &err) != 0);
    EXPECT(strstr(err.message, "fully_shard of fc1: an outer unit has its weight already"));
    module_close(rig->model);
    tape_close(rig->tape);
    device_close(rig->device);
}

static void refusals_name_the_module(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 1, 60, refuse, NULL, NULL);
}

// Rank 1 shards another layer.
static void differ(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = test_model("mlp", 3, rig->device);
    const char *name = rig->rank == 1 ? "fc2" : "fc1";
    EXPECT(fully_shard(module_child(rig->model, name), group, &config, &outcome->error) != 0);
    rig_close(rig);
}

// Rank 1 shards another layer of the same shape: detected by the root's call.
static void differ_in_place(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = test_model("branches", 3, rig->device);
    Module *block = rig->model->children[rig->rank == 1 ? 1 : 0];
    EXPECT(fully_shard(block, group, &config, &outcome->error) == 0);
    EXPECT(fully_shard(rig->model, group, &config, &outcome->error) != 0);
    rig_close(rig);
}

static void differing_units_are_named(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 3, 60, differ_in_place, NULL, outcomes);
    for (int r = 0; r < 3; r++)
        check_message(&outcomes[r].error, "fully_shard of Branches: DDP expects same model across "
                                          "all ranks: rank 1 has left.weight [10, 64] where rank 0 "
                                          "has left.weight (of an inner unit)");
    play_ranks(AS_THREADS, 3, 60, differ, NULL, outcomes);
    for (int r = 0; r < 3; r++)
        check_message(&outcomes[r].error, "rank 1 has weight [17, 33] where rank 0 has weight "
                                          "[33, 64]");
}

// The path of the inner unit's weight has no room for what the comparison appends to it.
static void share_long_names(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    const char *const names[] = {"a_name_of_31_characters_which_is",
                                 "another_name_that_is_as_long_as",
                                 "third_of_the_names_as_long_so_x", "the_inner_unit"};
    (void)argument;
    rig->model = layer_sequential("Long");
    Module *parent = rig->model, *unit = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++, parent = unit) {
        char name[MODULE_NAME];
        snprintf(name, sizeof name, "%s", names[i]);
        unit = module_add(parent, name,
                          i < 3 ? layer_sequential("Part") : layer_linear(rig->device, 3, 5));
    }
    EXPECT(fully_shard(unit, group, &config, &outcome->error) == 0);
    EXPECT(fully_shard(rig->model, group, &config, &outcome->error) == 0);
    rig_close(rig);
}

static void long_names_are_cut(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 3, 60, share_long_names, NULL, NULL);
}

// A relu as a unit: it has no parameters, and nothing to gather.
static void shard_relu(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = layer_sequential("Model");
    Module *relu = module_add(rig->model, "relu", layer_relu());
    module_add(rig->model, "fc", layer_linear(rig->device, 3, 5));
    EXPECT(fully_shard(relu, group, &config, &outcome->error) == 0);
    EXPECT(fully_shard(rig->model, group, &config, &outcome->error) == 0);
    rig_close(rig);
}

static void a_unit_may_have_no_parameters(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 60, shard_relu, NULL, NULL);
}

static void close_group_first(void *group) {
    pg_close(group);
}

// Each unit holds the group until it is closed, also an inner unit without a root.
static void a_group_outlives_its_units(void **state) {
    (void)state;
    if (UNDER_TSAN) skip(); // forks a process that has threads
    Outcome outcome = {.problem = ""};
    Error err = {0};
    ProcessGroup *alone;
    CHECK_OK(init_thread_groups(1, 30, &alone, &err) == 0, err);
    Rig rig = rig_open(alone, &outcome);
    const FsdpConfig config = fsdp_config_default();
    rig.model = toy_model(rig.device, 2, 1);
    Module *const units[] = {rig.model->children[0], rig.model->children[1], rig.model};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(fully_shard(units[i], alone, &config, &err) == 0, err);
        expect_failed_check(close_group_first, alone, "rank 0: pg_close: a wrapper uses the group");
    }
    rig_close(&rig);
    pg_close(alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_ddp),
        cmocka_unit_test(rows_are_those_of_chunk),
        cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(refusals_name_the_module),
        cmocka_unit_test(differing_units_are_named),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(a_group_outlives_its_units),
        cmocka_unit_test(a_unit_may_have_no_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
