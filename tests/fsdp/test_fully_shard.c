/* test_fully_shard.c: fully sharded data parallel: DistributedDataParallel's bits for every set of
 * units; torch.chunk's rows; at most two units whole besides the root, at every node of a step; and
 * refusals by name.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ddp_toy.h"

#include "ddp/fsdp/fsdp_internal.h"
#include "ddp/fsdp/fully_shard.h"

enum { STEPS = 4 };

static const OptimizerConfig ADAMW = {
    .kind = OPTIMIZER_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

typedef struct Case {
    const char *model;
    unsigned units; // bit i: child i is a unit, if it can be
    FsdpReshard reshard;
    bool blocking, global, held, evaluates, frozen, early;
} Case;

// ---- DDP's bits ---------------------------------------------------------------------------------

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
    for (int i = 0; i < model->child_count; i++)
        if (how->units >> i & 1 && may_be_unit(model->children[i]))
            EXPECT(fully_shard(model->children[i], rig->group, &config, &rig->outcome->error) == 0);
    EXPECT(fully_shard(model, rig->group, &config, &rig->outcome->error) == 0);
    rig->model = model;
}

// conv x + x: both add to x's gradient, the convolution in place.
static Tensor *residual_forward(Module *self, Tape *tape, Tensor *x) {
    x = module_forward(module_child(self, "stem"), tape, x);
    x = op_add(tape, module_forward(module_child(self, "conv"), tape, x), x);
    return module_forward(module_child(self, "head"), tape, op_flatten(tape, x));
}

static Module *residual_model(Device *device, uint64_t seed) {
    enum { CHANNELS = 4 };
    Module *model = module_create("Residual", residual_forward);
    module_add(model, "stem", layer_conv2d(device, 1, CHANNELS, 3, 1, 1, true));
    module_add(model, "conv", layer_conv2d(device, CHANNELS, CHANNELS, 3, 1, 1, true));
    module_add(model, "head", layer_linear(device, CHANNELS * IMAGE, CLASSES));
    module_initialize(model, seed);
    return model;
}

static Module *new_model(const Rig *rig, const Case *how) {
    const bool residual = strcmp(how->model, "residual") == 0;
    Module *model =
        residual ? residual_model(rig->device, 3) : test_model(how->model, 3, rig->device);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    if (how->frozen) parameters.items[2].tensor->requires_grad = false;
    named_tensors_free(&parameters);
    return model;
}

// One backward of this step; `part` numbers the batches of a step. "branches" runs its units in
// another order in each: what was gathered ahead is then the wrong one.
static void backward(Rig *rig, Module *module, const Case *how, int step, int part) {
    Error *err = &rig->outcome->error;
    if (strcmp(how->model, "branches") == 0) rig->model->config[0] = (size_t)(step + part) % 2;
    const size_t rows = test_rows(rig->rank);
    const double divisor = (double)(how->global ? test_global_rows(rig->world) : rows);
    tape_reset(rig->tape);
    Tensor *loss = test_loss(rig->tape, module, rig->rank, 2 * step + part, rows, divisor);
    if (how->evaluates) { // with a tape of its own: the first one's graph is still to run backward
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

// The shard of every weight, gradient and state is DDP's.
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
    if (!how->evaluates) { // rank 0's, on all ranks
        EXPECT(ddp_sync_module_states(a.wrapper, 0, NULL) == 0);
        EXPECT(fsdp_sync_buffers(rig->model, NULL) == 0);
        compare_buffers(rig, a.model, rig->model);
    }
    optimizer_close(whole);
    optimizer_close(shards);
    rig_close(rig); // first: a step's gathers may be in flight
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
                                  .early = count % 3 != 1};
                play_ranks(AS_THREADS, world, 60, same_as_ddp, &how, NULL);
                if (layout == 1 && !UNDER_TSAN)
                    play_ranks(AS_PROCESSES, world, 60, same_as_ddp, &how, NULL);
            }
}

// ---- rows ---------------------------------------------------------------------------------------

// [5, 3] on W ranks: torch.chunk's rows; the last ranks may have fewer, or none.
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
    // Each rank's gradient is 2 rows of 1 + rank; the mean over the ranks.
    EXPECT(all_equal(weight->grad, tensor_count(weight), (float)(rig->world + 1)));
    rig_close(rig);
}

static void rows_are_those_of_chunk(void **state) {
    (void)state;
    for (int world = 1; world <= 5; world++)
        play_ranks(AS_THREADS, world, 60, count_rows, NULL, NULL);
}

// ---- the units ----------------------------------------------------------------------------------

static void expect_whole(Rig *rig, const char *when, unsigned wanted) {
    const Fsdp *fsdp = fsdp_of(rig->model);
    for (size_t i = 0; i < fsdp->count; i++)
        if ((fsdp->units[i]->weights != NULL) != (wanted >> i & 1))
            problem(rig->outcome, "%s: unit %zu is %s", when, i,
                    fsdp->units[i]->weights ? "whole" : "sharded");
}

// The weight that two layers share belongs to the root, the encoder's bias to the encoder. After a
// recorded forward only the root is whole, by default.
static void look_at_units(ProcessGroup *group, const void *argument, Outcome *outcome) {
    static const unsigned WHOLE[] = {4, 7, 0}; // by FsdpReshard: bit i is unit i, the last the root
    const FsdpReshard reshard = *(const FsdpReshard *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    FsdpConfig config = fsdp_config_default();
    config.reshard_after_forward = reshard;
    rig->model = tied_model(rig->device, 3);
    const char *const units[] = {"encoder", "head"};
    for (int i = 0; i < 2; i++)
        EXPECT(fully_shard(module_child(rig->model, units[i]), group, &config, NULL) == 0);
    EXPECT(fully_shard(rig->model, group, &config, NULL) == 0);
    const Fsdp *fsdp = fsdp_of(rig->model);
    EXPECT(fsdp->count == 3);
    EXPECT(fsdp->units[0]->count == 1);
    EXPECT(fsdp->units[0]->parameters[0].tensor ==
           module_parameter(module_child(rig->model, "encoder"), 1));
    EXPECT(fsdp->units[2] == fsdp->root && fsdp->root->count == 2);
    const size_t c = (IMAGE + (size_t)rig->world - 1) / (size_t)rig->world;
    EXPECT(fsdp->units[2]->shard_floats == c * IMAGE + c); // the weight, decoder's bias
    EXPECT(fsdp_group(rig->model) == group);

    rig->tape->recording = false;
    EXPECT(test_loss(rig->tape, rig->model, 0, 0, 2, 1) != NULL);
    expect_whole(rig, "after an evaluation", 0);
    rig->tape->recording = true;
    tape_reset(rig->tape);
    Tensor *loss = test_loss(rig->tape, rig->model, 0, 0, 2, 1);
    expect_whole(rig, "after a forward", WHOLE[reshard]);
    EXPECT(loss && tape_backward(rig->tape, loss, NULL) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, NULL) == 0);
    expect_whole(rig, "after a backward", 0);
    for (size_t i = 0; i < 3; i++) EXPECT(fsdp->units[i]->number == i); // in traces

    SafeTensors content;
    EXPECT(fsdp_collect(rig->model, FSDP_GRADIENTS, NULL, &content, NULL) == 0);
    EXPECT(content.count == (rig->rank == 0 ? 5 : 0));
    const SafeEntry *entry = safetensors_find(&content, "model/encoder.weight");
    EXPECT((entry != NULL) == (rig->rank == 0));
    EXPECT(!entry || (entry->shape[0] == IMAGE && entry->bytes == sizeof(float) * IMAGE * IMAGE));
    safetensors_free(&content);
    tape_reset(rig->tape); // of this forward no backward follows
    EXPECT(test_loss(rig->tape, rig->model, 0, 0, 2, 1) != NULL);
    rig_close(rig);
}

static void units_take_what_is_left(void **state) {
    (void)state;
    static const FsdpReshard how[] = {FSDP_RESHARD_DEFAULT, FSDP_RESHARD_NEVER,
                                      FSDP_RESHARD_ALWAYS};
    for (int i = 0; i < 3; i++)
        for (int world = 1; world <= 3; world++)
            play_ranks(AS_THREADS, world, 60, look_at_units, &how[i], NULL);
}

// ---- memory -------------------------------------------------------------------------------------

enum { LAYERS = 8, WIDTH = 128, UNIT = WIDTH * (WIDTH + 1) };

typedef struct Watch { // of the device's account, at every node
    Rig *rig;
    const Fsdp *fsdp;
    size_t most;  // bytes
    size_t ahead; // looks at which a gather was pending
    void (*original[64])(Tape *, TapeNode *);
    size_t nodes;
} Watch;

static _Thread_local Watch *watching; // TapeNode.backward has no context

static void look(void) {
    const Rig *rig = watching->rig;
    if (rig->device->bytes > watching->most) watching->most = rig->device->bytes;
    watching->ahead += watching->fsdp->gathering.unit != NULL;
}

static void watched_backward(Tape *tape, TapeNode *node) {
    look();
    watching->original[node - tape->nodes](tape, node);
    look();
}

static Tensor *probe_forward(Module *self, Tape *tape, Tensor *x) {
    (void)self, (void)tape;
    look();
    return x;
}

static Module *deep_model(Device *device) {
    Module *model = layer_sequential("Deep");
    char name[MODULE_NAME];
    module_add(model, "in", layer_linear(device, IMAGE, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "fc%d", i);
        Module *block = module_add(model, name, layer_sequential("Probed"));
        module_add(block, "probe", module_create("Probe", probe_forward));
        module_add(block, "fc", layer_linear(device, WIDTH, WIDTH));
        module_add(block, "probe2", module_create("Probe", probe_forward));
    }
    module_add(model, "out", layer_linear(device, WIDTH, CLASSES));
    module_initialize(model, 5);
    return model;
}

static void watched_step(Rig *rig, Watch *watch) {
    Error *err = &rig->outcome->error;
    Tape *tape = rig->tape;
    const float ones[IMAGE] = {1};
    const int64_t label = 3;
    tape_reset(tape);
    module_zero_grad(rig->model);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, IMAGE}, ones);
    Tensor *y = module_forward(rig->model, tape, x);
    Tensor *target = tape_input(tape, DTYPE_I64, 1, (size_t[]){1}, &label);
    Tensor *loss = op_cross_entropy(tape, y, target, 1);
    CHECK(tape->count < 64, "%zu nodes", tape->count);
    for (size_t i = 0; i < tape->count; i++) {
        watch->original[i] = tape->nodes[i].backward;
        tape->nodes[i].backward = watched_backward;
    }
    EXPECT(loss && tape_backward(tape, loss, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
}

// A step starts the gathers of the root and of the first unit, in that order.
static void expect_first_gathers(Rig *rig, const Fsdp *fsdp, const FsdpConfig *config) {
    const bool starts = config->overlap && config->unshard_in_step;
    EXPECT(fsdp->gathering.unit == (starts ? fsdp->root : NULL));
    EXPECT(fsdp->second.unit == (starts ? fsdp->units[0] : NULL));
    EXPECT(!starts || fsdp->gathering.memory != fsdp->second.memory);
}

// Besides its shards the device has the root's whole weights and gradients, and of two units the
// weights and of two the gradients; each of the eight units is gathered while another computes.
static void read_account(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const bool overlaps = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Watch watch = {.rig = rig};
    watching = &watch;
    FsdpConfig config = fsdp_config_default();
    config.overlap = overlaps;
    config.unshard_in_step = pg_size(group) == 3;
    rig->model = deep_model(rig->device);
    for (int i = 1; i <= LAYERS; i++)
        EXPECT(fully_shard(rig->model->children[i], group, &config, &outcome->error) == 0);
    EXPECT(fully_shard(rig->model, group, &config, &outcome->error) == 0);
    watch.fsdp = fsdp_of(rig->model);
    OptimizerConfig sharded = ADAMW;
    sharded.sharding = fsdp_sharding(rig->model);
    Optimizer *optimizer = optimizer_create(rig->model, &sharded);
    const size_t shards = rig->device->bytes, root = IMAGE * WIDTH + WIDTH + WIDTH * CLASSES + 10;
    for (int step = 0; step < 3; step++) {
        watch.ahead = 0;
        watched_step(rig, &watch);
        EXPECT(!watch.fsdp->second.unit);
        optimizer_step(optimizer, 0.01);
        expect_first_gathers(rig, watch.fsdp, &config);
    }
    const size_t units = 4 * UNIT, arena = (1 << 14) + UNIT / 8; // one block of activations
    const size_t limit = (2 * root + units + arena) * sizeof(float);
    if (watch.most - shards > limit || watch.most - shards < limit / 2)
        problem(outcome, "%zu bytes besides the shards, not %zu", watch.most - shards, limit);
    // Forward: the 2 probes of each unit but the last. Backward: 7 looks from the loss to the last
    // unit, whose gather the end of forward starts, then 6 for each unit whose weights arrive
    // during another's 3 nodes.
    const size_t ahead = overlaps ? 2 * (LAYERS - 1) + 7 + 6 * (LAYERS - 1) : 0;
    if (watch.ahead != ahead)
        problem(outcome, "a gather was pending at %zu looks, not %zu", watch.ahead, ahead);
    EXPECT(rig->device->bytes <= watch.most);
    optimizer_close(optimizer);
    rig_close(rig);
}

static void two_units_are_whole(void **state) {
    (void)state;
    const bool overlaps[] = {true, false};
    for (int i = 0; i < 2; i++)
        for (int world = 2; world <= 3; world++)
            play_ranks(AS_THREADS, world, 60, read_account, &overlaps[i], NULL);
}

// The output of the model for these factors, or of its child 1 for the second; no gradients.
static float output_of(Rig *rig, Module *module, const float *factors) {
    rig->tape->recording = false;
    tape_reset(rig->tape);
    const bool whole = module == rig->model;
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){whole ? 3 : 1},
                           whole ? factors : &factors[1]);
    const Tensor *y = module_forward(module, rig->tape, x);
    EXPECT(tape_error(rig->tape, &rig->outcome->error) == 0);
    rig->tape->recording = true;
    return y ? tensor_f32(y)[0] : NAN;
}

// Gathers that a step has started and the next forward does not use: of the first unit, where
// forward uses the second unit only, enters it without the root, or uses no unit.
static void mispredict(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    Error *err = &outcome->error;
    (void)argument;
    const Case how = {.units = 3, .early = true};
    static const float all[] = {4, -8, 12}, second[] = {0, -8, 12}, none[] = {0, 0, 12};
    shard_model(rig, toy_model(rig->device, 3, 1), &how);
    const Fsdp *fsdp = fsdp_of(rig->model);
    OptimizerConfig sharded = ADAMW;
    sharded.sharding = fsdp_sharding(rig->model);
    Optimizer *optimizer = optimizer_create(rig->model, &sharded);
    for (int turn = 0; turn < 2; turn++) {
        Module *module = turn == 0 ? rig->model : rig->model->children[1];
        EXPECT(toy_backward(rig, rig->model, all, err) == 0);
        EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
        optimizer_step(optimizer, 0.01);
        EXPECT(fsdp->second.unit && fsdp->second.unit->module == rig->model->children[0]);
        const float ahead = output_of(rig, module, second);
        EXPECT(ahead == output_of(rig, module, second));
    }
    EXPECT(toy_backward(rig, rig->model, all, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    optimizer_step(optimizer, 0.01);
    EXPECT(toy_backward(rig, rig->model, none, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(!fsdp->gathering.unit || fsdp->gathering.memory != fsdp->leaving);
    optimizer_close(optimizer);
    rig_close(rig);
}

static void unused_gathers_are_dropped(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        play_ranks(AS_THREADS, world, 60, mispredict, NULL, NULL);
}

// ---- semantics ----------------------------------------------------------------------------------

// zero_grad between forward and backward clears the shards' gradients; without it they add up; a
// unit that a forward does not use keeps its gradient as it is.
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
    // Now with zero_grad after the forward.
    tape_reset(rig->tape);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){3}, first);
    Tensor *loss = module_forward(rig->model, rig->tape, x);
    module_zero_grad(rig->model);
    EXPECT(tape_backward(rig->tape, loss, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(task[0]->has_grad && all_equal(task[0]->grad, mine, 1) && !task[1]->has_grad);
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
    // The outer module before the inner one.
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

// Rank 1 makes another layer a unit.
static void differ(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = test_model("mlp", 3, rig->device);
    const char *name = rig->rank == 1 ? "fc2" : "fc1";
    EXPECT(fully_shard(module_child(rig->model, name), group, &config, &outcome->error) != 0);
    rig_close(rig);
}

// Rank 1 makes another layer of the same shape a unit: the root's call finds it.
static void differ_in_place(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = deep_model(rig->device);
    Module *block = rig->model->children[rig->rank == 1 ? 2 : 1];
    EXPECT(fully_shard(block, group, &config, &outcome->error) == 0);
    EXPECT(fully_shard(rig->model, group, &config, &outcome->error) != 0);
    rig_close(rig);
}

static void differing_units_are_named(void **state) {
    (void)state;
    Outcome outcomes[RANKS_MAX];
    play_ranks(AS_THREADS, 3, 60, differ_in_place, NULL, outcomes);
    for (int r = 0; r < 3; r++)
        check_message(&outcomes[r].error, "fully_shard of Deep: DDP expects same model across all "
                                          "ranks: rank 1 has fc0.fc.weight [128, 128] where rank 0 "
                                          "has fc0.fc.weight (of an inner unit)");
    play_ranks(AS_THREADS, 3, 60, differ, NULL, outcomes);
    for (int r = 0; r < 3; r++)
        check_message(&outcomes[r].error, "rank 1 has weight [17, 33] where rank 0 has weight "
                                          "[33, 64]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_ddp),           cmocka_unit_test(rows_are_those_of_chunk),
        cmocka_unit_test(units_take_what_is_left),    cmocka_unit_test(two_units_are_whole),
        cmocka_unit_test(unused_gathers_are_dropped), cmocka_unit_test(gradients_accumulate),
        cmocka_unit_test(refusals_name_the_module),   cmocka_unit_test(differing_units_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
