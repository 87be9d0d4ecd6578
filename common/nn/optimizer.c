/* optimizer.c: the numbers of a step on the host, the work on lists of parameters by the kernels.
 */
#include "common/nn/optimizer.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"

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

static Tensor *parameter_of(const Optimizer *optimizer, size_t i) {
    return optimizer->parameters.items[i].tensor;
}

static bool decays(const Optimizer *optimizer, size_t i) {
    return !optimizer->config.decay_matrices_only || parameter_of(optimizer, i)->ndim > 1;
}

OptimizerPart optimizer_part(const Optimizer *optimizer, size_t i) {
    const OptimizerSharding *sharding = optimizer->config.sharding;
    return sharding ? sharding->parts[i]
                    : (OptimizerPart){0, tensor_count(parameter_of(optimizer, i))};
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
            // There is one for each parameter: NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
            *run = (OptimizerRun){.device = device, .first = i};
        }
        run->count++;
    }
    for (size_t r = 0; r < optimizer->run_count; r++) create_slots(&optimizer->runs[r]);
    optimizer->scalars = memory_zalloc(count * SCALARS * sizeof *optimizer->scalars);
    size_t item = is_sgd(optimizer) ? sizeof(SgdTensor) : sizeof(AdamTensor);
    optimizer->list = memory_zalloc(count * item);
}

Optimizer *optimizer_create(Module *module, const OptimizerConfig *config) {
    CHECK(config->kind <= OPTIMIZER_ADAMW, "optimizer_create: config->kind is %d",
          (int)config->kind);
    Optimizer *optimizer = memory_zalloc(sizeof *optimizer);
    optimizer->config = *config;
    optimizer->parameters = module_tensors(module, MODULE_PARAMETERS);
    size_t count = optimizer->parameters.count;
    optimizer->steps = memory_zalloc(count * sizeof *optimizer->steps);
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
    if (config->sharding) config->sharding->optimizer = optimizer;
    return optimizer;
}

void optimizer_close(Optimizer *optimizer) {
    if (!optimizer) return;
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
    named_tensors_free(&optimizer->parameters);
    free(optimizer);
}

// ---- the numbers of a step ----------------------------------------------------------------------

// Of the parameter's update number `count`. PyTorch computes these in double and rounds them once.
static void set_numbers(const Optimizer *optimizer, size_t i, int64_t count, double lr) {
    const OptimizerConfig *config = &optimizer->config;
    float *scalars = optimizer->scalars + i * SCALARS;
    double step = (double)count;
    scalars[SCALAR_LR] = (float)lr;
    if (config->kind == OPTIMIZER_SGD) return;
    bool adamw = config->kind == OPTIMIZER_ADAMW && decays(optimizer, i);
    double decay = adamw ? config->weight_decay : 0;
    scalars[SCALAR_KEEP] = (float)(1 - lr * decay);
    scalars[SCALAR_STEP_SIZE] = (float)(lr / (1 - pow(config->beta1, step)));
    scalars[SCALAR_BIAS_CORRECTION] = (float)sqrt(1 - pow(config->beta2, step));
}

static void begin_parameter(Optimizer *optimizer, size_t i, double lr) {
    set_numbers(optimizer, i, ++optimizer->steps[i], lr);
}

static const OptimizerSlot *slot_of(const Optimizer *optimizer, const OptimizerRun *run) {
    return &run->slots[optimizer->slot % run->slot_count];
}

// Sends the numbers of a step to the device, beside its work, if they have changed: a learning rate
// often has not.
static void upload(const Optimizer *optimizer, const OptimizerRun *run) {
    const float *scalars = optimizer->scalars + run->first * SCALARS;
    const OptimizerSlot *slot = slot_of(optimizer, run);
    if (memcmp(slot->host, scalars, scalar_bytes(run)) == 0) return;
    device_event_wait(slot->sent); // it was sent two steps ago
    memcpy(slot->host, scalars, scalar_bytes(run));
    device_upload(run->device, slot->memory, slot->host, scalar_bytes(run), slot->used, slot->sent);
}

static void upload_all(const Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++) upload(optimizer, &optimizer->runs[r]);
}

void optimizer_choose_slot(Optimizer *optimizer, int slot) {
    optimizer->slot = slot;
}

static void choose_next_slot(Optimizer *optimizer) {
    optimizer_choose_slot(optimizer, (optimizer->slot + 1) % OPTIMIZER_SLOTS);
}

void optimizer_begin_step(Optimizer *optimizer, double lr) {
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        if (parameter_of(optimizer, i)->has_grad) begin_parameter(optimizer, i, lr);
    upload_all(optimizer);
}

void optimizer_end_step(Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++)
        device_event_record(slot_of(optimizer, &optimizer->runs[r])->used);
}

// ---- the work -----------------------------------------------------------------------------------

static SgdConfig sgd_config(const Optimizer *optimizer) {
    return (SgdConfig){.momentum = optimizer->config.momentum,
                       .weight_decay = optimizer->config.weight_decay,
                       .nesterov = optimizer->config.nesterov};
}

static AdamConfig adam_config(const Optimizer *optimizer) {
    const OptimizerConfig *config = &optimizer->config;
    return (AdamConfig){.beta1 = config->beta1,
                        .beta2 = config->beta2,
                        .eps = config->eps,
                        .weight_decay = config->kind == OPTIMIZER_ADAM ? config->weight_decay : 0};
}

// Where these elements' state s begins; NULL: none.
static float *state_of(const Optimizer *optimizer, int s, size_t i, OptimizerPart elements) {
    float *state = optimizer->state[s][i];
    return state ? state + (elements.first - optimizer_part(optimizer, i).first) : NULL;
}

static SgdTensor sgd_tensor(const Optimizer *optimizer, const OptimizerRun *run, size_t i,
                            OptimizerPart elements, const float *gradient) {
    return (SgdTensor){.weight = tensor_f32(parameter_of(optimizer, i)) + elements.first,
                       .gradient = gradient,
                       .velocity = state_of(optimizer, 0, i, elements),
                       .scalars = slot_of(optimizer, run)->memory + (i - run->first) * SCALARS,
                       .first = optimizer->steps[i] == 1,
                       .count = elements.count};
}

static AdamTensor adam_tensor(const Optimizer *optimizer, const OptimizerRun *run, size_t i,
                              OptimizerPart elements, const float *gradient) {
    return (AdamTensor){.weight = tensor_f32(parameter_of(optimizer, i)) + elements.first,
                        .gradient = gradient,
                        .exp_avg = state_of(optimizer, 0, i, elements),
                        .exp_avg_sq = state_of(optimizer, 1, i, elements),
                        .scalars = slot_of(optimizer, run)->memory + (i - run->first) * SCALARS,
                        .count = elements.count};
}

// Steps the parameters first .. first + count - 1 of a run in one call of a kernel. Of each that
// has a gradient it steps this process's part.
static void apply(Optimizer *optimizer, const OptimizerRun *run, size_t first, size_t count) {
    SgdTensor *sgd = optimizer->list; // the list holds the one kind or the other
    AdamTensor *adam = optimizer->list;
    size_t length = 0;
    for (size_t i = first; i < first + count; i++) {
        const Tensor *parameter = parameter_of(optimizer, i);
        const OptimizerPart part = optimizer_part(optimizer, i);
        if (!parameter->has_grad || part.count == 0) continue;
        const float *gradient = parameter->grad + part.first;
        if (is_sgd(optimizer))
            sgd[length++] = sgd_tensor(optimizer, run, i, part, gradient);
        else
            adam[length++] = adam_tensor(optimizer, run, i, part, gradient);
    }
    const SgdConfig sgd_numbers = sgd_config(optimizer);
    const AdamConfig adam_numbers = adam_config(optimizer);
    if (is_sgd(optimizer))
        device_kernels(run->device)->optimizer->sgd(&sgd_numbers, sgd, length);
    else
        device_kernels(run->device)->optimizer->adam(&adam_numbers, adam, length);
}

void optimizer_apply(Optimizer *optimizer) {
    for (size_t r = 0; r < optimizer->run_count; r++)
        apply(optimizer, &optimizer->runs[r], optimizer->runs[r].first, optimizer->runs[r].count);
}

static const OptimizerRun *run_of(const Optimizer *optimizer, size_t i) {
    const OptimizerRun *run = optimizer->runs;
    while (i >= run->first + run->count) run++;
    return run;
}

void optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                        const float *gradient, const OptimizerPeer *peer) {
    const OptimizerRun *run = run_of(optimizer, i);
    const OptimizerKernels *kernels = device_kernels(run->device)->optimizer;
    if (is_sgd(optimizer)) {
        const SgdConfig config = sgd_config(optimizer);
        const SgdTensor tensor = sgd_tensor(optimizer, run, i, elements, gradient);
        if (peer)
            kernels->sgd_with_peer(&config, &tensor, peer);
        else
            kernels->sgd(&config, &tensor, 1);
    } else {
        const AdamConfig config = adam_config(optimizer);
        const AdamTensor tensor = adam_tensor(optimizer, run, i, elements, gradient);
        if (peer)
            kernels->adam_with_peer(&config, &tensor, peer);
        else
            kernels->adam(&config, &tensor, 1);
    }
}

void optimizer_step(Optimizer *optimizer, double lr) {
    const OptimizerSharding *sharding = optimizer->config.sharding;
    choose_next_slot(optimizer);
    optimizer_begin_step(optimizer, lr);
    if (sharding)
        sharding->apply(sharding->state);
    else
        optimizer_apply(optimizer);
    optimizer_end_step(optimizer);
}

void optimizer_begin_parameters(Optimizer *optimizer, double lr) {
    choose_next_slot(optimizer);
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        set_numbers(optimizer, i, optimizer->steps[i] + 1, lr);
    upload_all(optimizer);
}

void optimizer_step_parameter(Optimizer *optimizer, size_t i) {
    CHECK(!optimizer->config.sharding, "a step of one parameter alone, of which others have parts");
    optimizer->steps[i]++;
    apply(optimizer, run_of(optimizer, i), i, 1);
}
