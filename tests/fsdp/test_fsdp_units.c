/* test_fsdp_units.c: the units of fully_shard that are gathered, at every node of a step: at most
 * two besides the root. Further: the gathers in flight, also after a wrong prediction or a failed
 * forward; and the memory that units share.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ddp_toy.h"

#include "common/base/cache_line.h"
#include "common/base/profile.h"
#include "ddp/fsdp/fsdp_internal.h"
#include "ddp/fsdp/fully_shard.h"

static const OptimizerConfig ADAMW = {
    .kind = OPTIMIZER_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};

// ---- the units ----------------------------------------------------------------------------------

static void expect_whole(Rig *rig, const char *when, unsigned wanted) {
    const Fsdp *fsdp = fsdp_of(rig->model);
    for (size_t i = 0; i < fsdp->count; i++)
        if ((fsdp->units[i]->weights != NULL) != (wanted >> i & 1))
            problem(rig->outcome, "%s: unit %zu is %s", when, i,
                    fsdp->units[i]->weights ? "whole" : "sharded");
}

static void evaluate(Rig *rig) {
    Tape *tape = tape_create(rig->device, NULL);
    tape->recording = tape->training = false;
    EXPECT(test_loss(tape, rig->model, 0, 0, 2, 1) != NULL);
    tape_close(tape);
}

static size_t whole_lines(size_t floats) {
    const size_t line = CACHE_LINE / sizeof(float);
    return (floats + line - 1) / line * line;
}

// All units except the root share memory of the largest unit's size, the head's. A frozen head
// needs none for its reduction.
static void expect_rooms(Rig *rig, bool frozen) {
    const Fsdp *fsdp = fsdp_of(rig->model);
    const size_t world = (size_t)rig->world, rows = (CLASSES + world - 1) / world;
    const size_t weight = rows * IMAGE, bias = (IMAGE + world - 1) / world;
    EXPECT(fsdp->slot_floats == whole_lines(world * weight) + whole_lines(world * rows));
    EXPECT(fsdp->gather_room == whole_lines(weight + rows));
    EXPECT(fsdp->reduce_room == (frozen ? bias : weight + rows));
}

// A weight that two layers share belongs to the root, the encoder's bias to the encoder. After a
// recorded forward only the root remains gathered by default, also after a subsequent evaluation.
static void look_at_units(ProcessGroup *group, const void *argument, Outcome *outcome) {
    static const unsigned WHOLE[] = {4, 7, 0}; // by FsdpReshard: bit i: unit i, highest: the root
    const FsdpReshard reshard = *(const FsdpReshard *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    FsdpConfig config = fsdp_config_default();
    config.reshard_after_forward = reshard;
    const bool frozen = reshard == FSDP_RESHARD_NEVER;
    rig->model = tied_model(rig->device, 3);
    for (int i = 0; i < 2; i++)
        module_parameter(module_child(rig->model, "head"), i)->requires_grad = !frozen;
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
    EXPECT(fsdp->units[2]->shard_floats == c * IMAGE + c); // weight and decoder's bias
    EXPECT(fsdp_group(rig->model) == group);

    evaluate(rig);
    expect_whole(rig, "after an evaluation", 0);
    expect_rooms(rig, frozen);
    Tensor *loss = test_loss(rig->tape, rig->model, 0, 0, 2, 1);
    expect_whole(rig, "after a forward", WHOLE[reshard]);
    evaluate(rig);
    expect_whole(rig, "after an evaluation between forward and backward", WHOLE[reshard]);
    EXPECT(loss && tape_backward(rig->tape, loss, NULL) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, NULL) == 0);
    expect_whole(rig, "after a backward", 0);
    for (size_t i = 0; i < 3; i++) EXPECT(fsdp->units[i]->number == i); // number in traces

    SafeTensors content;
    EXPECT(fsdp_collect(rig->model, FSDP_GRADIENTS, NULL, &content, NULL) == 0);
    EXPECT(content.count == (rig->rank == 0 ? frozen ? 3 : 5 : 0));
    const SafeEntry *entry = safetensors_find(&content, "model/encoder.weight");
    EXPECT((entry != NULL) == (rig->rank == 0));
    EXPECT(!entry || (entry->shape[0] == IMAGE && entry->bytes == sizeof(float) * IMAGE * IMAGE));
    safetensors_free(&content);
    tape_reset(rig->tape); // a forward without a complete backward
    loss = test_loss(rig->tape, rig->model, 0, 0, 2, 1);
    EXPECT(loss != NULL);
    if (reshard == FSDP_RESHARD_ALWAYS) {
        EXPECT(tape_backward(rig->tape, loss, NULL) == 0);
        EXPECT(fsdp->reducing.unit == fsdp->units[1]);
    }
    rig_close(rig);
}

static void units_take_what_is_left(void **state) {
    (void)state;
    static const FsdpReshard how[] = {FSDP_RESHARD_DEFAULT, FSDP_RESHARD_NEVER,
                                      FSDP_RESHARD_ALWAYS};
    static const int worlds[] = {1, 2, 3, 6}; // with six ranks, the last has no row of the head
    for (int i = 0; i < 3; i++)
        for (int w = 0; w < 4; w++)
            play_ranks(AS_THREADS, worlds[w], 60, look_at_units, &how[i], NULL);
}

// ---- memory -------------------------------------------------------------------------------------

enum { LAYERS = 8, WIDTH = 128, UNIT = WIDTH * (WIDTH + 1) };

typedef struct Watch { // samples the device's memory at every node
    Rig *rig;
    const Fsdp *fsdp;
    size_t most;            // bytes
    size_t ahead, reducing; // samples with a gather, with a reduction in flight
    void (*original[64])(Tape *, TapeNode *);
    size_t nodes;
} Watch;

static _Thread_local Watch *watching; // TapeNode.backward has no context argument

static void look(void) {
    const Rig *rig = watching->rig;
    if (rig->device->bytes > watching->most) watching->most = rig->device->bytes;
    watching->ahead += watching->fsdp->gathering.unit != NULL;
    watching->reducing += watching->fsdp->reducing.unit != NULL;
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

// A step starts the gathers of the root and then of the first unit.
static void expect_first_gathers(Rig *rig, const Fsdp *fsdp, const FsdpConfig *config) {
    const bool starts = config->overlap && config->unshard_in_step;
    EXPECT(fsdp->gathering.unit == (starts ? fsdp->root : NULL));
    EXPECT(fsdp->second.unit == (starts ? fsdp->units[0] : NULL));
    EXPECT(!starts || fsdp->gathering.memory != fsdp->second.memory);
}

// Besides its shards the device has the root's whole weights and gradients, and the weights and
// gradients of two units; each of the eight units is gathered while another one computes.
static void read_account(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const bool overlaps = *(const bool *)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    Watch watch = {.rig = rig};
    watching = &watch;
    FsdpConfig config = fsdp_config_default();
    if (!overlaps) config.overlap = false;
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
        watch.ahead = watch.reducing = 0;
        watched_step(rig, &watch);
        EXPECT(!watch.fsdp->second.unit);
        optimizer_step(optimizer, 0.01);
        expect_first_gathers(rig, watch.fsdp, &config);
    }
    const size_t units = 4 * UNIT, arena = (1 << 14) + UNIT / 8; // activations
    const size_t limit = (2 * root + units + arena) * sizeof(float);
    if (watch.most - shards > limit || watch.most - shards < limit / 2)
        problem(outcome, "%zu bytes besides the shards, not %zu", watch.most - shards, limit);
    // Samples with a gather in flight. Forward: 2 probes of each unit but the last. Backward: 7
    // from the loss to the last unit, whose gather the end of forward starts, and 6 for each unit
    // that is gathered during another unit's 3 nodes.
    const size_t ahead = overlaps ? 2 * (LAYERS - 1) + 7 + 6 * (LAYERS - 1) : 0;
    if (watch.ahead != ahead)
        problem(outcome, "a gather was pending at %zu looks, not %zu", watch.ahead, ahead);
    // Samples with a reduction in flight, from the last unit's reduce_scatter to the end of
    // backward: 1 at its end, 6 for each earlier unit, and 2 around the first layer, which belongs
    // to the root.
    const size_t reducing = overlaps ? 1 + 6 * (LAYERS - 1) + 2 : 0;
    if (watch.reducing != reducing)
        problem(outcome, "a reduction was pending at %zu looks, not %zu", watch.reducing, reducing);
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

// The first `units` tasks are units, which a step gathers.
static Optimizer *shard_toy(Rig *rig, int units) {
    FsdpConfig config = fsdp_config_default();
    config.unshard_in_step = true;
    rig->model = toy_model(rig->device, 3, 1);
    for (int i = 0; i < units; i++)
        EXPECT(fully_shard(rig->model->children[i], rig->group, &config, NULL) == 0);
    EXPECT(fully_shard(rig->model, rig->group, &config, NULL) == 0);
    OptimizerConfig sharded = ADAMW;
    sharded.sharding = fsdp_sharding(rig->model);
    return optimizer_create(rig->model, &sharded);
}

// Output for these factors of the model, or of its child 1 for the second factor; without
// gradients.
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

// A step has started to gather the first unit, and the next forward uses only the second unit, or
// enters it without the root, or uses no unit.
static void mispredict(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    Error *err = &outcome->error;
    (void)argument;
    static const float all[] = {4, -8, 12}, second[] = {0, -8, 12}, none[] = {0, 0, 12};
    Optimizer *optimizer = shard_toy(rig, 2);
    const Fsdp *fsdp = fsdp_of(rig->model);
    for (int turn = 0; turn < 2; turn++) {
        Module *module = turn == 0 ? rig->model : rig->model->children[1];
        EXPECT(toy_backward(rig, rig->model, all, err) == 0);
        EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
        optimizer_step(optimizer, 0.01);
        EXPECT(fsdp->second.unit && fsdp->second.unit->module == rig->model->children[0]);
        const float ahead = output_of(rig, module, second);
        for (int i = 0; i < 70; i++) EXPECT(ahead == output_of(rig, module, second));
    }
    EXPECT(toy_backward(rig, rig->model, all, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    optimizer_step(optimizer, 0.01);
    EXPECT(toy_backward(rig, rig->model, none, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(!fsdp->gathering.unit || fsdp->gathering.memory != fsdp->leaving);
    // Held gradients are reduced after a step whose second gather uses the memory of reductions.
    module_zero_grad(rig->model);
    fsdp_set_requires_gradient_sync(rig->model, false);
    EXPECT(toy_backward(rig, rig->model, all, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    optimizer_step(optimizer, 0.01);
    EXPECT(fsdp->second.unit);
    fsdp_set_requires_gradient_sync(rig->model, true);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    EXPECT(!fsdp->second.unit);
    for (int k = 0; k < 3; k++) {
        const Tensor *task = rig_parameter(rig, k);
        EXPECT(task->has_grad && all_equal(task->grad, tensor_count(task), all[k] / 4));
    }
    optimizer_close(optimizer);
    rig_close(rig);
}

static void unused_gathers_are_dropped(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        play_ranks(AS_THREADS, world, 60, mispredict, NULL, NULL);
}

typedef struct Phases {
    Profile profile;
    size_t exposed; // ended phases of exposed communication
} Phases;

static void count_exposed(void *context) {
    Phases *phases = context;
    phases->exposed += phases->profile.current == PHASE_EXPOSED;
}

// A step gathers the root and the unit that the last forward entered after it, if they have
// parameters; before the first forward it gathers nothing. The end of a forward gathers the last
// unit. Exposed phases (as a trace's player assumes): the begin of each unit's forward and
// backward, and the end of the backward pass.
static void step_first(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const int units = *(const int *)argument; // units among the 3 tasks; the rest is the root's
    static const float all[] = {4, -8, 12}, third[] = {0, 0, 12};
    Rig self = rig_open(group, outcome), *rig = &self;
    Error *err = &outcome->error;
    Optimizer *optimizer = shard_toy(rig, units);
    const Fsdp *fsdp = fsdp_of(rig->model);
    Phases phases = {{.wait_for_device = count_exposed, .wait_context = &phases}, 0};
    Profile *profile = rig->tape->profile = &phases.profile;
    profile_begin_step(profile);
    (void)profile_enter(profile, PHASE_BACKWARD);
    optimizer_step(optimizer, 0.01);
    EXPECT(!fsdp->gathering.unit);
    EXPECT(fsdp_sharding(rig->model)->optimizer == optimizer); // registered by its creation
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, (size_t[]){3}, all);
    Tensor *loss = module_forward(rig->model, rig->tape, x);
    EXPECT(fsdp->gathering.unit == (units > 0 ? fsdp->units[units - 1] : NULL));
    EXPECT(loss && tape_backward(rig->tape, loss, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, profile, err) == 0);
    EXPECT(profile->current == PHASE_BACKWARD);
    EXPECT(phases.exposed == 2 * fsdp->count + 1);
    EXPECT(fsdp->left.count == 0);
    optimizer_step(optimizer, 0.01);
    const bool own = fsdp->root->count > 0;
    EXPECT(fsdp->gathering.unit == fsdp->units[own ? units : 0]);
    EXPECT(fsdp->second.unit == (own && units > 0 ? fsdp->units[0] : NULL));
    (void)output_of(rig, rig->model, all);
    (void)output_of(rig, rig->model, third);
    EXPECT(units < 3 || !fsdp->gathering.unit); // after two different orders no prediction
    optimizer_close(optimizer);
    rig_close(rig);
}

static void a_step_gathers_the_first_units(void **state) {
    (void)state;
    for (int units = 0; units <= 3; units++)
        play_ranks(AS_THREADS, 2, 60, step_first, &units, NULL);
}

static Tensor *broken_forward(Module *self, Tape *tape, Tensor *x) {
    x = op_flatten(tape, x);
    (void)module_forward(self->children[0], tape, x);
    (void)tape_fail(tape, "broken", "as told");
    return module_forward(self->children[1], tape, x);
}

// After an error of the tape nothing is gathered, in the rest of forward or in backward.
static void fail_forward(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = test_model("branches", 3, rig->device);
    rig->model->forward = broken_forward;
    for (int i = 0; i < 2; i++)
        EXPECT(fully_shard(rig->model->children[i], group, &config, NULL) == 0);
    EXPECT(fully_shard(rig->model, group, &config, NULL) == 0);
    uint64_t before = 0;
    for (int i = 0; i < 2; i++) { // the first forward also allocates
        before = pg_sequence(group);
        tape_reset(rig->tape);
        EXPECT(test_loss(rig->tape, rig->model, 0, 0, 2, 1) == NULL);
        EXPECT(tape_error(rig->tape, &outcome->error) != 0);
        EXPECT(strstr(outcome->error.message, "as told"));
        expect_whole(rig, "after a forward that failed", 0);
        EXPECT(!fsdp_of(rig->model)->gathering.unit);
    }
    EXPECT(pg_sequence(group) == before + 1); // unit 0's gather; the root has no parameters
    rig_close(rig);
}

static void a_failed_forward_gathers_no_further(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 60, fail_forward, NULL, NULL);
}

// ---- devices and buffers ------------------------------------------------------------------------

static void note_closed(Module *self) {
    ++*(int *)self->state;
}

// Shards and buffers are copied to config.device; the module keeps no memory elsewhere. Closing it
// calls the modules' own destroy.
static void move_to(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    (void)argument;
    Device *other = device_open("cpu:6", NULL);
    FsdpConfig config = fsdp_config_default();
    config.device = other;
    Module *plain = test_model("convnet", 3, rig->device);
    const size_t bytes = rig->device->bytes;
    Module *model = test_model("convnet", 3, rig->device), *child = model->children[0];
    int closed = 0;
    model->state = child->state = &closed;
    model->destroy = child->destroy = note_closed;
    EXPECT(fully_shard(child, group, &config, NULL) == 0);
    EXPECT(fully_shard(model, group, &config, NULL) == 0);
    EXPECT(rig->device->bytes == bytes);
    NamedTensors wanted = module_tensors(plain, MODULE_STATE);
    NamedTensors moved = module_tensors(model, MODULE_STATE);
    for (size_t i = 0; i < moved.count; i++) {
        const Tensor *from = wanted.items[i].tensor, *to = moved.items[i].tensor;
        const size_t skipped = to->shard ? tensor_first(to) * sizeof(float) : 0;
        EXPECT(to->device == other);
        EXPECT(memcmp((const char *)from->data + skipped, to->data, tensor_bytes(to)) == 0);
    }
    named_tensors_free(&wanted);
    named_tensors_free(&moved);
    module_close(model);
    EXPECT(closed == 2);
    device_close(other); // checks that all memory was freed
    NamedTensors buffers = module_tensors(plain, MODULE_BUFFERS); // not moved again
    const void *data = buffers.items[0].tensor->data;
    config.device = rig->device;
    EXPECT(fully_shard(plain, group, &config, NULL) == 0);
    EXPECT(buffers.items[0].tensor->data == data);
    named_tensors_free(&buffers);
    rig->model = plain;
    rig_close(rig);
}

static void shards_are_on_the_device_of_the_config(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) play_ranks(AS_THREADS, world, 60, move_to, NULL, NULL);
}

static Tensor *toy_of(Device *device, Module *model, size_t rows) {
    char name[MODULE_NAME];
    snprintf(name, sizeof name, "task%d", model->child_count);
    Module *task = module_add(model, name, module_create("Task", task_forward));
    return module_add_parameter(task, device, "p", 2, (size_t[]){rows, 2});
}

// A step gathers the first unit in the memory of reductions: in parts, if the unit is frozen and
// larger than all reductions.
static void gather_frozen(ProcessGroup *group, const void *argument, Outcome *outcome) {
    enum { ROWS = 64 };
    Rig self = rig_open(group, outcome), *rig = &self;
    Error *err = &outcome->error;
    static const float all[] = {4, -8, 12}, first[] = {4, 0, 0};
    FsdpConfig config = fsdp_config_default();
    (void)argument;
    config.unshard_in_step = true;
    rig->model = module_create("Toy", toy_forward);
    for (int k = 0; k < 3; k++) {
        Tensor *p = toy_of(rig->device, rig->model, k == 0 ? ROWS : 2);
        p->requires_grad = k > 0;
        for (size_t i = 0; i < tensor_count(p); i++) tensor_f32(p)[i] = (float)i;
    }
    for (int k = 0; k < 2; k++)
        EXPECT(fully_shard(rig->model->children[k], group, &config, err) == 0);
    EXPECT(fully_shard(rig->model, group, &config, err) == 0);
    const Fsdp *fsdp = fsdp_of(rig->model);
    OptimizerConfig sharded = ADAMW;
    sharded.sharding = fsdp_sharding(rig->model);
    Optimizer *optimizer = optimizer_create(rig->model, &sharded);
    EXPECT(toy_backward(rig, rig->model, all, err) == 0);
    EXPECT(fsdp_finish_backward(rig->model, NULL, err) == 0);
    optimizer_step(optimizer, 0.01);
    EXPECT(fsdp->second.unit == fsdp->units[0]);
    EXPECT(fsdp->second.count == fsdp->reduce_room);
    EXPECT(fsdp->reduce_room < fsdp->units[0]->piece_words);
    EXPECT(output_of(rig, rig->model, first) == 4 * (ROWS * 2 - 1) / 2.0f);
    optimizer_close(optimizer);
    rig_close(rig);
}

static void a_frozen_unit_is_gathered_in_parts(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++)
        play_ranks(AS_THREADS, world, 60, gather_frozen, NULL, NULL);
}

// With 16-bit copies, weights of linear and convolution layers are gathered in half the words, each
// rounded up; biases, other layers and weights with several users are gathered in float32.
static void count_words(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    FsdpConfig config = fsdp_config_default();
    (void)argument;
    config.precision = PRECISION_BF16;
    rig->model = tied_model(rig->device, 3);
    module_add(rig->model, "conv", layer_conv2d(rig->device, 1, 3, 3, 1, 1, true));
    module_add(rig->model, "bn", layer_batch_norm(rig->device, 4));
    module_add(rig->model, "table", matrix_model(rig->device, 3, 6, 1));
    const struct {
        const char *module;
        size_t words[2]; // for 1 rank, for 2 ranks
    } wanted[] = {{"conv", {14 + 3, 9 + 2}},
                  {"bn", {8, 4}},
                  {"table", {18, 9}},
                  {"head", {CLASSES * IMAGE / 2 + CLASSES, (CLASSES * IMAGE / 2 + CLASSES) / 2}}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        Module *module = module_child(rig->model, wanted[i].module);
        EXPECT(fully_shard(module, group, &config, NULL) == 0);
        const size_t words = fsdp_of(module)->root->piece_words;
        if (words != wanted[i].words[rig->world - 1])
            problem(outcome, "%s: %zu words", wanted[i].module, words);
    }
    EXPECT(fully_shard(rig->model, group, &config, NULL) == 0);
    const size_t root = IMAGE * IMAGE + 2 * IMAGE; // the tied weight, both layers' biases
    EXPECT(fsdp_of(rig->model)->root->piece_words == root / (size_t)rig->world);
    rig_close(rig);
}

static void products_are_gathered_in_16_bits(void **state) {
    (void)state;
    for (int world = 1; world <= 2; world++)
        play_ranks(AS_THREADS, world, 60, count_words, NULL, NULL);
}

// A root without units, with more than 1 MiB per rank, is gathered and reduced in two parts.
static void move_in_parts(ProcessGroup *group, const void *argument, Outcome *outcome) {
    enum { ROOM = 1 << 18, IN = 600, OUT = 1024 };
    Rig self = rig_open(group, outcome), *rig = &self;
    const FsdpConfig config = fsdp_config_default();
    (void)argument;
    rig->model = matrix_model(rig->device, IN, OUT, 1);
    EXPECT(fully_shard(rig->model, group, &config, NULL) == 0);
    const Fsdp *fsdp = fsdp_of(rig->model);
    const Tensor *weight = &rig->model->parameters[0].tensor;
    for (int i = 1; i < 3; i++) { // the first step allocates, the second accumulates
        const uint64_t before = pg_sequence(group);
        EXPECT(matrix_backward(rig, rig->model, 1, IN, (float)(1 + rig->rank), 1, NULL) == 0);
        EXPECT(fsdp->gather_room == ROOM && fsdp->reduce_room == ROOM);
        EXPECT(fsdp_finish_backward(rig->model, NULL, NULL) == 0);
        EXPECT(i == 1 || pg_sequence(group) == before + 4);
        EXPECT(all_equal(weight->grad, tensor_count(weight), 1.5f * (float)i));
    }
    rig_close(rig);
}

static void a_large_root_moves_in_parts(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 60, move_in_parts, NULL, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_take_what_is_left),
        cmocka_unit_test(two_units_are_whole),
        cmocka_unit_test(unused_gathers_are_dropped),
        cmocka_unit_test(a_step_gathers_the_first_units),
        cmocka_unit_test(a_failed_forward_gathers_no_further),
        cmocka_unit_test(shards_are_on_the_device_of_the_config),
        cmocka_unit_test(a_frozen_unit_is_gathered_in_parts),
        cmocka_unit_test(products_are_gathered_in_16_bits),
        cmocka_unit_test(a_large_root_moves_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
