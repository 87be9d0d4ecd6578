/* test_zero_optimizer.c: the sharded optimizer (ZeRO): its weights equal DistributedDataParallel's
 * bit for bit; it needs exactly 8 + 8/W bytes per parameter; no weight changes while any rank's
 * backward still reads it; combinations that it does not support are refused by name.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_models.h"
#include "tests/rigs/ddp_toy.h"

#include "common/nn/clip.h"
#include "ddp/features/comm_hooks.h"
#include "ddp/features/join_ddp.h"
#include "ddp/features/optimizer_hook.h"
#include "ddp/features/zero_optimizer.h"
#include "ddp/reducer.h"

enum { STEPS = 4 };

typedef struct Case {
    const char *model;
    OptimizerConfig optimizer;
    double cap;
    bool global, apart, whole, find_unused;
    bool clips, ignores; // clips gradients; DDP ignores one parameter
} Case;

static const OptimizerConfig ADAMW = {
    .kind = OPTIMIZER_ADAMW, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
static const OptimizerConfig MOMENTUM = {.kind = OPTIMIZER_SGD, .momentum = 0.9, .nesterov = true};

// ---- one rank's training ------------------------------------------------------------------------

typedef struct Trained {
    Optimizer *optimizer;
    GradClip *clip;
    double norms[STEPS]; // of gradients before clipping
} Trained;

static void open_training(Rig *rig, Trained *trained, const Case *how, bool zero) {
    RigConfig config = rig_config_default();
    config.ddp.bucket_cap_mb = how->cap;
    config.ddp.global_normalization = how->global;
    config.find_unused_parameters = how->find_unused;
    static const char *const own[] = {"fc2.bias", NULL};
    if (how->ignores) config.ddp.ignored = own;
    rig_wrap_with(rig, test_model(how->model, 3, rig->device), &config);
    OptimizerConfig optimizer = how->optimizer;
    if (zero) {
        const ZeroConfig settings = {.apart = how->apart};
        EXPECT(ddp_zero_optimizer(rig->wrapper, &settings, &rig->outcome->error) == 0);
        optimizer.sharding = zero_optimizer_sharding(rig->wrapper);
        optimizer.sharding->whole_gradients = how->whole;
        optimizer.sharding->own_gradients = how->clips;
    }
    trained->optimizer = optimizer_create(rig->model, &optimizer);
    trained->clip = grad_clip_open(&trained->optimizer->parameters, optimizer.sharding);
}

static void train_step(Rig *rig, Trained *trained, const Case *how, int step) {
    Error *err = &rig->outcome->error;
    double divisor = (double)(how->global ? test_global_rows(rig->world) : test_rows(rig->rank));
    module_zero_grad(rig->model);
    EXPECT(test_backward(rig->tape, rig->wrapper, rig->rank, step, test_rows(rig->rank), divisor,
                         err) == 0);
    EXPECT(ddp_finish_backward(rig->wrapper, NULL, err) == 0);
    if (how->clips) trained->norms[step] = grad_clip(trained->clip, 0.1);
    optimizer_step(trained->optimizer, 0.01);
    if (ddp_reducer(rig->wrapper)->error.status)
        problem(rig->outcome, "%s", ddp_reducer(rig->wrapper)->error.message);
}

// This rank's parts of the sharded state equal the same parts of the plain state; all weights are
// equal.
static void compare(Rig *rig, const Trained *plain, const Trained *zero, const Case *how) {
    const NamedTensors *ours = &zero->optimizer->parameters;
    float nonzero = 0;
    for (size_t i = 0; i < ours->count; i++) {
        const Tensor *a = plain->optimizer->parameters.items[i].tensor, *b = ours->items[i].tensor;
        const OptimizerPart part = optimizer_part(zero->optimizer, i);
        if (memcmp(a->data, b->data, tensor_bytes(a)) != 0)
            problem(rig->outcome, "%s cap %g global %d apart %d whole %d: %s differs", how->model,
                    how->cap, how->global, how->apart, how->whole, ours->items[i].name);
        for (int s = 0; s < 2 && plain->optimizer->state[s][i]; s++) {
            const float *whole = plain->optimizer->state[s][i] + part.first;
            nonzero += part.count ? whole[part.count / 2] : 1;
            if (memcmp(whole, zero->optimizer->state[s][i], part.count * sizeof *whole) != 0)
                problem(rig->outcome, "%s: the state of %s differs", how->model,
                        ours->items[i].name);
        }
    }
    EXPECT(nonzero != 0);
}

static void compare_norms(Rig *rig, const Trained *plain, const Trained *zero, const Case *how) {
    for (int step = 0; step < (how->ignores ? 1 : STEPS); step++)
        if (plain->norms[step] != zero->norms[step] || (how->clips && !(plain->norms[step] > 0.1)))
            problem(rig->outcome, "%s cap %g: the length in step %d is %.17g, DDP's %.17g",
                    how->model, how->cap, step, zero->norms[step], plain->norms[step]);
}

static void same_as_ddp(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    Rig rigs[2] = {rig_open(group, outcome), rig_open(group, outcome)};
    Trained trained[2] = {0};
    for (int z = 0; z < 2; z++) {
        open_training(&rigs[z], &trained[z], how, z == 1);
        for (int step = 0; step < STEPS; step++) train_step(&rigs[z], &trained[z], how, step);
    }
    compare_norms(&rigs[1], &trained[0], &trained[1], how);
    if (!how->ignores) compare(&rigs[1], &trained[0], &trained[1], how);
    for (int z = 0; z < 2; z++) {
        grad_clip_close(trained[z].clip);
        optimizer_close(trained[z].optimizer);
        rig_close(&rigs[z]);
    }
}

static void same_bits_as_ddp(void **state) {
    (void)state;
    static const char *const models[] = {"mlp", "wide", "convnet", "shared", "tied"};
    static const double caps[] = {-1, 0, 0.01};
    int count = 0;
    for (int world = 1; world <= 5; world++)
        for (int way = 0; way < 3; way++) // fused, scattered or whole gradients
            for (int apart = 0; apart < (way == 2 ? 2 : 1); apart++)
                for (int m = 0; m < 5; m++) {
                    const Case how = {.model = models[m],
                                      .optimizer = count % 3 ? ADAMW : MOMENTUM,
                                      .cap = caps[(count + m) % 3],
                                      .global = count % 2,
                                      .apart = way == 1 || apart,
                                      .whole = way == 2,
                                      .find_unused = count % 7 == 3,
                                      .clips = count / 2 % 2};
                    play_ranks(AS_THREADS, world, 60, same_as_ddp, &how, NULL);
                    if (m == 0 && !UNDER_TSAN)
                        play_ranks(AS_PROCESSES, world, 60, same_as_ddp, &how, NULL);
                    count++;
                }
}

// The norm covers the reduced gradients and this rank's ignored one. (So it differs between ranks,
// and DDP's weights differ from the second step on.)
static void same_length_with_an_own_parameter(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        const Case how = {.model = "mlp",
                          .optimizer = ADAMW,
                          .cap = 0,
                          .global = true,
                          .apart = apart,
                          .clips = true,
                          .ignores = true};
        play_ranks(AS_THREADS, 3, 60, same_as_ddp, &how, NULL);
    }
}

// ---- memory -------------------------------------------------------------------------------------

// A weight of 2048 floats, whose parts are whole cache lines for 2 and 4 ranks.
static void count_memory(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    size_t parameters = 2048, before = rig->device->bytes, world = (size_t)rig->world;
    rig_wrap(rig, matrix_model(rig->device, 64, 32, 1), &(DdpConfig){.bucket_cap_mb = -1});
    EXPECT(ddp_zero_optimizer(rig->wrapper, &(ZeroConfig){.apart = how->apart}, NULL) == 0);
    OptimizerConfig config = how->optimizer;
    config.sharding = zero_optimizer_sharding(rig->wrapper);
    Optimizer *optimizer = optimizer_create(rig->model, &config);
    size_t own = SCALARS * sizeof(float), states = how->optimizer.kind == OPTIMIZER_SGD ? 1 : 2;
    size_t want = parameters * 8 + states * parameters * 4 / world;
    size_t have = rig->device->bytes - before;
    if (have != want + own) problem(outcome, "%zu bytes, not %zu + %zu", have, want, own);
    optimizer_close(optimizer);
    // ddp_unwrap returns the module with memory of its own.
    rig->model = ddp_unwrap(rig->wrapper);
    rig->wrapper = NULL;
    EXPECT(all_equal(rig->model->parameters[0].tensor.data, parameters, 1));
    EXPECT(rig->device->bytes - before == parameters * 8);
    rig_close(rig);
}

static void memory_to_the_byte(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world *= 2)
        for (int variant = 0; variant < 4; variant++) {
            const Case how = {.optimizer = variant % 2 ? ADAMW : MOMENTUM, .apart = variant / 2};
            play_ranks(AS_THREADS, world, 60, count_memory, &how, NULL);
        }
}

// ---- bytes moved --------------------------------------------------------------------------------

// Returns the bytes that this rank moves in the third step, which has the rebuilt buckets.
static uint64_t moved_in_a_step(ProcessGroup *group, const Case *how, bool zero, Outcome *outcome) {
    enum { OUT = 32, IN = 64, WARM_UP = 2 };
    Rig self = rig_open(group, outcome), *rig = &self;
    rig_wrap(rig, matrix_model(rig->device, IN, OUT, 1), &(DdpConfig){.bucket_cap_mb = -1});
    OptimizerConfig config = how->optimizer;
    if (zero) {
        EXPECT(ddp_zero_optimizer(rig->wrapper, &(ZeroConfig){.apart = how->apart}, NULL) == 0);
        config.sharding = zero_optimizer_sharding(rig->wrapper);
        config.sharding->whole_gradients = how->whole;
    }
    Optimizer *optimizer = optimizer_create(rig->model, &config);
    uint64_t before = 0;
    for (int step = 0; step <= WARM_UP; step++) {
        if (step == WARM_UP) before = pg_moved_bytes(group);
        module_zero_grad(rig->model);
        EXPECT(matrix_backward(rig, rig->wrapper, 1, IN, 1, 1, &outcome->error) == 0);
        EXPECT(ddp_finish_backward(rig->wrapper, NULL, &outcome->error) == 0);
        optimizer_step(optimizer, 0.1);
    }
    const uint64_t moved = pg_moved_bytes(group) - before;
    optimizer_close(optimizer);
    rig_close(rig);
    return moved;
}

// A rank reads the other ranks' gradients of its part, and writes its part of the weights to them.
// With whole gradients it takes part in an all-reduce instead.
static void count_moved(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Case *how = argument;
    const uint64_t world = (uint64_t)pg_size(group);
    const uint64_t crossing = 2048 / world * sizeof(float) * (world - 1);
    const uint64_t plain = moved_in_a_step(group, how, false, outcome);
    const uint64_t moved = moved_in_a_step(group, how, true, outcome);
    const uint64_t expected = (how->whole ? plain : crossing) + crossing;
    if (moved != expected)
        problem(outcome, "apart %d, whole %d: %llu bytes, not %llu", how->apart, how->whole,
                (unsigned long long)moved, (unsigned long long)expected);
}

static void moved_bytes_of_a_step(void **state) {
    (void)state;
    for (int world = 1; world <= 4; world *= 2)
        for (int way = 0; way < 4; way++) {
            const Case how = {.optimizer = ADAMW, .apart = way & 1, .whole = way & 2};
            play_ranks(AS_THREADS, world, 60, count_moved, &how, NULL);
        }
}

// ---- weights that are read late -----------------------------------------------------------------

// The gradient becomes ready at once, but the weight is read later, as in a linear layer's
// backward. *saved counts the elements that have changed meanwhile.
static void late_backward(Tape *tape, TapeNode *node) {
    Tensor *weight = node->inputs[0];
    const struct timespec a_while = {.tv_nsec = 30 * 1000 * 1000};
    long *changed = *(long **)node->saved;
    size_t count = tensor_count(weight);
    bool accumulate;
    float *grad = tape_grad(tape, weight, &accumulate), before = tensor_f32(weight)[0];
    for (size_t i = 0; i < count; i++) grad[i] = 1;
    tape_grad_done(tape, weight);
    if (weight->device->name[4] == '0') nanosleep(&a_while, NULL); // on rank 0 (cpu:0)
    for (size_t i = 0; i < count; i++) *changed += tensor_f32(weight)[i] != before;
}

static Tensor *late_forward(Module *self, Tape *tape, Tensor *x) {
    (void)x;
    Tensor *loss = tape_tensor(tape, DTYPE_F32, 0, NULL);
    void **saved = tape_alloc(tape, sizeof *saved);
    tensor_f32(loss)[0] = 0;
    *saved = self->state;
    tape_record(tape, "late", late_backward, loss, 1, (Tensor *[]){&self->parameters[0].tensor},
                saved);
    return loss;
}

static void read_late(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    long changed = 0;
    Module *model = module_create("Late", late_forward);
    model->state = &changed;
    module_add_parameter(model, rig->device, "weight", 2, (size_t[]){64, 32});
    rig->device->kernels->elementwise->fill(model->parameters[0].tensor.data, 1, 64 * 32);
    rig_wrap(rig, model, &(DdpConfig){.bucket_cap_mb = -1, .overlap = true});
    EXPECT(ddp_zero_optimizer(rig->wrapper, argument, &outcome->error) == 0);
    OptimizerConfig config = MOMENTUM;
    config.sharding = zero_optimizer_sharding(rig->wrapper);
    Optimizer *optimizer = optimizer_create(model, &config);
    for (int step = 0; step < 3; step++) {
        toy_train(rig, (float[]){1});
        optimizer_step(optimizer, 0.125);
        EXPECT(!model->parameters[0].tensor.has_grad); // None: only parts were reduced
    }
    EXPECT(changed == 0);
    EXPECT(tensor_f32(&model->parameters[0].tensor)[77] < 1);
    optimizer_close(optimizer);
    rig_close(rig);
}

static void no_weight_changes_under_a_backward(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++)
        play_both(3, read_late, &(ZeroConfig){.apart = apart}, NULL);
}

// ---- unsupported combinations -------------------------------------------------------------------

static bool says(const Error *err, const char *text) {
    return err->status != STATUS_OK && strstr(err->message, text) != NULL;
}

static void refuse(ProcessGroup *group, const void *argument, Outcome *outcome) {
    (void)argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    const ZeroConfig zero = {0};
    const float ones[] = {1, 1};
    Error err = {0};
    // With a hook, and with the optimizer inside the hook.
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    EXPECT(ddp_zero_optimizer(rig->wrapper, &zero, &err) == 0);
    CommHook inside = optimizer_hook(comm_hook_all_reduce(group), NULL, NULL);
    EXPECT(ddp_register_comm_hook(rig->wrapper, inside, &err) != 0);
    EXPECT(says(&err, "has the hook zero_optimizer; hook_then_optimizer is refused"));
    // With Join.
    err = (Error){0};
    Joinable joinable = ddp_joinable(rig->wrapper);
    Join *join = join_open(&joinable, 1, &(JoinConfig){0}, &err);
    EXPECT(toy_step(rig, ones, &err) != 0);
    EXPECT(says(&err, "Join cannot be combined with zero_optimizer"));
    err = (Error){0};
    EXPECT(joinable.mirror(joinable.state, &err) != 0); // a joined rank fails, too
    EXPECT(says(&err, "Join cannot be combined with zero_optimizer"));
    join_abandon(join);
    module_close(rig->wrapper);
    // In the other order, and with gradients beside buckets.
    err = (Error){0};
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    EXPECT(ddp_register_comm_hook(rig->wrapper, comm_hook_all_reduce(group), &err) == 0);
    EXPECT(ddp_zero_optimizer(rig->wrapper, &zero, &err) != 0);
    EXPECT(says(&err, "has the hook allreduce; zero_optimizer is refused"));
    module_close(rig->wrapper);
    err = (Error){0};
    rig_wrap_with(rig, toy_model(rig->device, 2, 1), &(RigConfig){config, false, true, false});
    EXPECT(ddp_zero_optimizer(rig->wrapper, &zero, &err) != 0);
    EXPECT(says(&err, "needs buckets that stay, and static_graph rebuilds them"));
    rig_close(rig);
}

static void others_are_refused_by_name(void **state) {
    (void)state;
    play_ranks(AS_THREADS, 2, 60, refuse, NULL, NULL);
}

// ---- accumulation -------------------------------------------------------------------------------

// Two reduced backwards before one step: a backward cannot add to sums of which each rank has a
// part: an error that names the parameter. Whole sums accumulate.
static void accumulate(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const ZeroConfig *zero = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    const DdpConfig config = ddp_config_default();
    Error err = {0};
    rig_wrap(rig, toy_model(rig->device, 2, 1), &config);
    EXPECT(ddp_zero_optimizer(rig->wrapper, zero, &err) == 0);
    OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    sgd.sharding = zero_optimizer_sharding(rig->wrapper);
    Optimizer *optimizer = optimizer_create(rig->model, &sgd);
    const float mine = (float)(4 * (rig->rank + 1)), factors[] = {mine, mine};
    const float mean = (float)(rig->world + 1) / 2; // of local gradients
    // After a step, or after zero_grad without a step, the next backward starts from zero.
    module_zero_grad(rig->model);
    EXPECT(toy_step(rig, factors, &err) == 0);
    module_zero_grad(rig->model);
    EXPECT(toy_step(rig, factors, &err) == 0);
    optimizer_step(optimizer, 0.5);
    EXPECT(toy_step(rig, factors, &err) == 0);
    EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, 1 - 0.5f * mean));
    // A second backward with neither.
    const int status = toy_step(rig, factors, &err);
    if (zero->apart && rig->world > 1) {
        EXPECT(status != 0);
        EXPECT(says(&err, "the gradient of task0.p is divided over the ranks"));
    } else {
        EXPECT(status == 0);
        optimizer_step(optimizer, 0.5);
        EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, 1 - 1.5f * mean));
    }
    optimizer_close(optimizer);
    rig_close(rig);
}

static void nothing_adds_to_divided_gradients(void **state) {
    (void)state;
    for (int world = 1; world <= 2; world++)
        for (int apart = 0; apart < 2; apart++)
            play_ranks(AS_THREADS, world, 60, accumulate, &(ZeroConfig){.apart = apart}, NULL);
}

// ---- parameters outside of the sharding ---------------------------------------------------------

// An ignored parameter is stepped by each rank; a parameter without a gradient is not.
static void outside(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Rig self = rig_open(group, outcome), *rig = &self;
    const char *const ignored[] = {"task1.p", NULL};
    DdpConfig config = ddp_config_default();
    config.ignored = ignored;
    Module *model = toy_model(rig->device, 3, 1);
    model->children[2]->parameters[0].tensor.requires_grad = false;
    rig_wrap(rig, model, &config);
    EXPECT(ddp_zero_optimizer(rig->wrapper, argument, &outcome->error) == 0);
    OptimizerConfig sgd = {.kind = OPTIMIZER_SGD};
    sgd.sharding = zero_optimizer_sharding(rig->wrapper);
    Optimizer *optimizer = optimizer_create(model, &sgd);
    module_zero_grad(model);
    const float mine = (float)(4 * (rig->rank + 1));
    toy_train(rig, (float[]){mine, mine, mine});
    optimizer_step(optimizer, 0.5);
    // Gradients: the mean of 1 and 2; the local one; none.
    EXPECT(all_equal(rig_parameter(rig, 0)->data, 4, 1 - 0.5f * 1.5f));
    EXPECT(all_equal(rig_parameter(rig, 1)->data, 4, 1 - 0.5f * (float)(rig->rank + 1)));
    EXPECT(all_equal(rig_parameter(rig, 2)->data, 4, 1));
    optimizer_close(optimizer);
    rig_close(rig);
}

static void ignored_parameters_are_every_ranks_own(void **state) {
    (void)state;
    for (int apart = 0; apart < 2; apart++)
        play_ranks(AS_THREADS, 2, 60, outside, &(ZeroConfig){.apart = apart}, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_ddp),
        cmocka_unit_test(same_length_with_an_own_parameter),
        cmocka_unit_test(memory_to_the_byte),
        cmocka_unit_test(moved_bytes_of_a_step),
        cmocka_unit_test(no_weight_changes_under_a_backward),
        cmocka_unit_test(others_are_refused_by_name),
        cmocka_unit_test(nothing_adds_to_divided_gradients),
        cmocka_unit_test(ignored_parameters_are_every_ranks_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
