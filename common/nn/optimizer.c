/* optimizer.c: the host computes a step's scalars in double; kernels update lists of parameters. */
#include "common/nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/object.h"
#include "common/nn/half_copy.h"

enum { STATES = 2 };

static bool is_sgd(const Optimizer *optimizer) {
    return optimizer->config.kind == OPTIMIZER_SGD;
}

const char *optimizer_name(const Optimizer *optimizer) {
    static const char *const NAMES[] = {"sgd", "adam", "adamw"};
    return NAMES[optimizer->config.kind];
}

const char *optimizer_state_name(const Optimizer *optimizer, int which) {
    if (!is_sgd(optimizer)) return which == 0 ? "exp_avg" : "exp_avg_sq";
    return which == 0 && optimizer->config.momentum > 0 ? "momentum_buffer" : NULL;
}

static void check_index(const Optimizer *optimizer, size_t i) {
    CHECK(i < optimizer->parameters.count, "parameter %zu of %zu", i, optimizer->parameters.count);
}

static Tensor *parameter_of(const Optimizer *optimizer, size_t i) {
    check_index(optimizer, i);
    Tensor *parameter = optimizer->parameters.items[i].tensor;
    CHECK(parameter->device, "%s is gone: the optimizer's module was closed before it",
          optimizer->parameters.items[i].name);
    return parameter;
}

OptimizerPart optimizer_part(const Optimizer *optimizer, size_t i) {
    const OptimizerSharding *sharding = optimizer->config.sharding;
    check_index(optimizer, i);
    return sharding ? sharding->parts[i] : (OptimizerPart){0, optimizer->counts[i]};
}

static size_t state_bytes(const Optimizer *optimizer, size_t i) {
    return optimizer_part(optimizer, i).count * sizeof(float);
}

// ---- creation -----------------------------------------------------------------------------------

static size_t scalar_bytes(const OptimizerRun *run) {
    return run->count * SCALARS * sizeof(float);
}

static void create_slots(OptimizerRun *run) {
    Device *device = run->device;
    const size_t bytes = scalar_bytes(run);
    run->slot_count = device_is_synchronous(device) ? 1 : OPTIMIZER_SLOTS;
    for (int s = 0; s < run->slot_count; s++) {
        OptimizerSlot *slot = &run->slots[s];
        *slot = (OptimizerSlot){.memory = device_alloc(device, bytes),
                                .host = device_host_alloc(device, bytes),
                                .used = device_event_create(device),
                                .sent = device_event_create(device)};
        memset(slot->host, 0xff, bytes); // NaN: not set
    }
}

static void close_slots(const OptimizerRun *run) {
    for (int s = 0; s < run->slot_count; s++) {
        const OptimizerSlot *slot = &run->slots[s];
        device_event_wait(slot->sent);
        device_event_close(slot->used);
        device_event_close(slot->sent);
        device_host_free(run->device, slot->host);
        device_free(run->device, slot->memory, scalar_bytes(run));
    }
}

static void create_runs(Optimizer *optimizer) {
    size_t count = optimizer->parameters.count;
    optimizer->runs = memory_zalloc(count * sizeof *optimizer->runs);
    for (size_t i = 0; i < count; i++) {
        Device *device = parameter_of(optimizer, i)->device;
        OptimizerRun *run =
            optimizer->run_count ? &optimizer->runs[optimizer->run_count - 1] : NULL;
        if (!run || run->device != device) {
            run = &optimizer->runs[optimizer->run_count++];
            // One entry per parameter: NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
            *run = (OptimizerRun){.device = device, .first = i};
        }
        run->count++;
    }
    for (size_t r = 0; r < optimizer->run_count; r++) create_slots(&optimizer->runs[r]);
    optimizer->scalars = memory_zalloc(count * SCALARS * sizeof *optimizer->scalars);
    size_t item = is_sgd(optimizer) ? sizeof(SgdTensor) : sizeof(AdamTensor);
    optimizer->list = memory_zalloc(count * item);
}

static void create_halves(Optimizer *optimizer) {
    const OptimizerConfig *config = &optimizer->config;
    if (config->half_copies == PRECISION_F32 || config->sharding) return;
    optimizer->halves = memory_zalloc(optimizer->parameters.count * sizeof *optimizer->halves);
    for (size_t i = 0; i < optimizer->parameters.count; i++) {
        Tensor *parameter = parameter_of(optimizer, i);
        optimizer->halves[i].precision = config->half_copies;
        if (!parameter->half && !parameter->shard) parameter->half = &optimizer->halves[i];
    }
}

static bool owns_half(const Optimizer *optimizer, size_t i) {
    return optimizer->halves && parameter_of(optimizer, i)->half == &optimizer->halves[i];
}

static void close_halves(Optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        if (owns_half(optimizer, i)) half_copy_close(parameter_of(optimizer, i));
    free(optimizer->halves);
}

Optimizer *optimizer_create(Module *module, const OptimizerConfig *config) {
    CHECK(config->kind <= OPTIMIZER_ADAMW, "optimizer_create: config->kind is %d",
          (int)config->kind);
    CHECK(!config->nesterov || config->momentum > 0,
          "Nesterov momentum requires a momentum and zero dampening");
    CHECK(config->momentum >= 0, "Invalid momentum value: %g", config->momentum);
    CHECK(config->weight_decay >= 0, "Invalid weight_decay value: %g", config->weight_decay);
    CHECK(config->beta1 >= 0 && config->beta1 < 1, "Invalid beta parameter at index 0: %g",
          config->beta1);
    CHECK(config->beta2 >= 0 && config->beta2 < 1, "Invalid beta parameter at index 1: %g",
          config->beta2);
    CHECK(config->eps >= 0, "Invalid epsilon value: %g", config->eps);
    Optimizer *optimizer = object_open("optimizer", sizeof *optimizer);
    optimizer->config = *config;
    optimizer->parameters = module_tensors(module, MODULE_PARAMETERS);
    size_t count = optimizer->parameters.count;
    optimizer->steps = memory_zalloc(count * sizeof *optimizer->steps);
    optimizer->counts = memory_zalloc(count * sizeof *optimizer->counts);
    for (size_t i = 0; i < count; i++)
        optimizer->counts[i] = tensor_count(parameter_of(optimizer, i));
    for (int s = 0; s < STATES; s++) {
        optimizer->state[s] = memory_zalloc(count * sizeof *optimizer->state[s]);
        for (size_t i = 0; optimizer_state_name(optimizer, s) && i < count; i++) {
            const Tensor *parameter = parameter_of(optimizer, i);
            optimizer->state[s][i] = device_alloc(parameter->device, state_bytes(optimizer, i));
            device_kernels(parameter->device)
                ->elementwise->fill(optimizer->state[s][i], 0.0f,
                                    optimizer_part(optimizer, i).count);
        }
    }
    create_runs(optimizer);
    create_halves(optimizer);
    if (config->sharding) config->sharding->optimizer = optimizer;
    return optimizer;
}

void optimizer_close(Optimizer *optimizer) {
    if (!optimizer) return;
    object_check_open(optimizer, "optimizer_close");
    close_halves(optimizer);
    for (int s = 0; s < STATES; s++) {
        for (size_t i = 0; i < optimizer->parameters.count; i++) {
            const Tensor *parameter = parameter_of(optimizer, i);
            device_free(parameter->device, optimizer->state[s][i], state_bytes(optimizer, i));
        }
        free(optimizer->state[s]);
    }
    for (size_t r = 0; r < optimizer->run_count; r++) close_slots(&optimizer->runs[r]);
    free(optimizer->runs);
    free(optimizer->scalars);
    free(optimizer->list);
    free(optimizer->steps);
    free(optimizer->counts);
    named_tensors_free(&optimizer->parameters);
    object_close(optimizer);
}

// ---- the scalars of a step ----------------------------------------------------------------------

// Sets the scalars of update number `count` of the parameter: computed in double, rounded once, as
// in PyTorch.
static void set_scalars(const Optimizer *optimizer, size_t i, int64_t count, double lr) {
    const OptimizerConfig *config = &optimizer->config;
    float *scalars = optimizer->scalars + i * SCALARS;
    double step = (double)count;
    scalars[SCALAR_LR] = (float)lr;
    if (config->kind == OPTIMIZER_SGD) return;
    bool adamw = config->kind == OPTIMIZER_ADAMW &&
                 (!config->decay_matrices_only || parameter_of(optimizer, i)->ndim > 1);
    double decay = adamw ? config->weight_decay : 0;
    scalars[SCALAR_KEEP] = (float)(1 - lr * decay);
    scalars[SCALAR_STEP_SIZE] = (float)(lr / (1 - pow(config->beta1, step)));
    scalars[SCALAR_BIAS_CORRECTION] = (float)sqrt(1 - pow(config->beta2, step));
}

static const OptimizerSlot *slot_of(const Optimizer *optimizer, const OptimizerRun *run) {
    return &run->slots[optimizer->slot % run->slot_count];
}

// Uploads the step's scalars to each device, beside its kernels, if they have changed. (With a
// constant learning rate SGD's have not.)
static void upload(const Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++) {
        const OptimizerRun *run = &optimizer->runs[r];
        const float *scalars = optimizer->scalars + run->first * SCALARS;
        const OptimizerSlot *slot = slot_of(optimizer, run);
        const size_t bytes = scalar_bytes(run);
        if (memcmp(slot->host, scalars, bytes) == 0) continue;
        device_event_wait(slot->sent); // the upload of two steps ago
        memcpy(slot->host, scalars, bytes);
        device_upload(run->device, slot->memory, slot->host, bytes, slot->used, slot->sent);
    }
}

void optimizer_choose_slot(Optimizer *optimizer, int slot) {
    optimizer->slot = slot;
}

// A wrapper's gradients are in flight until its finish_backward; a fully sharded parameter is whole
// from its unit's forward until then.
static void check_finished(const Optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->parameters.count; i++) {
        CHECK(!parameter_of(optimizer, i)->has_grad || !parameter_of(optimizer, i)->reducing,
              "optimizer_step: the gradient of %s is not reduced yet: call ddp_finish_backward "
              "before the step",
              optimizer->parameters.items[i].name);
        CHECK(tensor_count(parameter_of(optimizer, i)) == optimizer->counts[i],
              "optimizer_step: %s is %s now and had %zu elements: is its backward finished?",
              optimizer->parameters.items[i].name, tensor_describe(parameter_of(optimizer, i)).text,
              optimizer->counts[i]);
    }
}

static void refresh_halves(const Optimizer *optimizer) {
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        if (owns_half(optimizer, i)) half_copy_refresh(parameter_of(optimizer, i));
}

void optimizer_begin_step(Optimizer *optimizer, double lr) {
    check_finished(optimizer);
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        if (parameter_of(optimizer, i)->has_grad)
            set_scalars(optimizer, i, ++optimizer->steps[i], lr);
    refresh_halves(optimizer);
    upload(optimizer);
}

void optimizer_end_step(Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++)
        device_event_record(slot_of(optimizer, &optimizer->runs[r])->used);
}

// ---- kernel calls -------------------------------------------------------------------------------

// Returns the address of state s of these elements; NULL: the optimizer has no such state.
static float *state_of(const Optimizer *optimizer, int s, size_t i, OptimizerPart elements) {
    float *state = optimizer->state[s][i];
    return state ? state + (elements.first - optimizer_part(optimizer, i).first) : NULL;
}

// Returns where the step's kernel writes these elements in 16 bits, too; NULL: nowhere. A copy of
// another optimizer is outdated.
static uint16_t *copy_of(const Optimizer *optimizer, size_t i, OptimizerPart elements) {
    const Tensor *parameter = parameter_of(optimizer, i);
    if (!owns_half(optimizer, i)) tensor_changed(parameter);
    const bool writes = owns_half(optimizer, i) && parameter->half->data;
    return writes ? parameter->half->data + elements.first : NULL;
}

// Sets entry `at` of optimizer->list to these elements of a parameter of the run.
static void list_tensor(const Optimizer *optimizer, const OptimizerRun *run, size_t i,
                        OptimizerPart elements, const float *gradient, size_t at) {
    float *weight = tensor_f32(parameter_of(optimizer, i)) + elements.first;
    const float *scalars = slot_of(optimizer, run)->memory + (i - run->first) * SCALARS;
    uint16_t *copy = copy_of(optimizer, i, elements);
    if (is_sgd(optimizer))
        ((SgdTensor *)optimizer->list)[at] =
            (SgdTensor){.weight = weight,
                        .gradient = gradient,
                        .velocity = state_of(optimizer, 0, i, elements),
                        .scalars = scalars,
                        .first = optimizer->steps[i] == 1,
                        .count = elements.count,
                        .copy = copy};
    else
        ((AdamTensor *)optimizer->list)[at] =
            (AdamTensor){.weight = weight,
                         .gradient = gradient,
                         .exp_avg = state_of(optimizer, 0, i, elements),
                         .exp_avg_sq = state_of(optimizer, 1, i, elements),
                         .scalars = scalars,
                         .count = elements.count,
                         .copy = copy};
}

// Runs the kernel on optimizer->list. peer: of its only entry, or NULL.
static void run_kernel(const Optimizer *optimizer, const OptimizerRun *run, size_t length,
                       const OptimizerPeer *peer) {
    const OptimizerConfig *config = &optimizer->config;
    const OptimizerKernels *kernels = device_kernels(run->device)->optimizer;
    const SgdConfig sgd = {.momentum = config->momentum,
                           .weight_decay = config->weight_decay,
                           .nesterov = config->nesterov,
                           .copies = config->half_copies};
    const AdamConfig adam = {.beta1 = config->beta1,
                             .beta2 = config->beta2,
                             .eps = config->eps,
                             .weight_decay =
                                 config->kind == OPTIMIZER_ADAM ? config->weight_decay : 0,
                             .copies = config->half_copies};
    if (is_sgd(optimizer))
        kernels->sgd(&sgd, optimizer->list, length, peer);
    else
        kernels->adam(&adam, optimizer->list, length, peer);
}

void optimizer_apply(Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++) {
        const OptimizerRun *run = &optimizer->runs[r];
        size_t length = 0;
        for (size_t i = run->first; i < run->first + run->count; i++) {
            const Tensor *parameter = parameter_of(optimizer, i);
            const OptimizerPart part = optimizer_part(optimizer, i);
            if (!parameter->has_grad || part.count == 0) continue;
            list_tensor(optimizer, run, i, part, parameter->grad + part.first, length++);
        }
        run_kernel(optimizer, run, length, NULL);
    }
}

void optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                        const float *gradient, const OptimizerPeer *peer) {
    const OptimizerRun *run = optimizer->runs;
    while (i >= run->first + run->count) run++;
    list_tensor(optimizer, run, i, elements, gradient, 0);
    run_kernel(optimizer, run, 1, peer);
}

void optimizer_step(Optimizer *optimizer, double lr) {
    const OptimizerSharding *sharding = optimizer->config.sharding;
    optimizer->slot = (optimizer->slot + 1) % OPTIMIZER_SLOTS;
    optimizer_begin_step(optimizer, lr);
    if (sharding)
        sharding->apply(sharding->state);
    else
        optimizer_apply(optimizer);
    optimizer_end_step(optimizer);
}

void optimizer_begin_parameters(Optimizer *optimizer, double lr) {
    optimizer->slot = (optimizer->slot + 1) % OPTIMIZER_SLOTS;
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        set_scalars(optimizer, i, optimizer->steps[i] + 1, lr);
    refresh_halves(optimizer);
    upload(optimizer);
}

void optimizer_step_parameter(Optimizer *optimizer, size_t i) {
    CHECK(!optimizer->config.sharding, "optimizer_step_parameter: the optimizer is sharded");
    const Tensor *parameter = parameter_of(optimizer, i);
    optimizer->steps[i]++;
    if (parameter->has_grad)
        optimizer_apply_to(optimizer, i, optimizer_part(optimizer, i), parameter->grad, NULL);
}
