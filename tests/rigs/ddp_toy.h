/* ddp_toy.h: a model whose gradients can be computed by hand, wrapped on every rank.
 *
 * The toy has tasks, each with a parameter [2, 2]. Its loss is the sum over tasks of factor[k]
 * times the mean of task k's parameter, so each element of that gradient is factor[k] / 4. A task
 * whose factor is 0 is unused. The input of forward are the factors.
 */
#ifndef TESTS_RIGS_DDP_TOY_H
#define TESTS_RIGS_DDP_TOY_H

#include "common/nn/layers.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/gradient_as_bucket_view.h"
#include "ddp/features/logging_data.h"
#include "ddp/features/static_graph.h"
#include "ddp/features/unused_parameters.h"
#include "ddp/group/group_internal.h"

enum { TASKS_MAX = 8 };

static inline void mean_backward(Tape *tape, TapeNode *node) {
    Tensor *parameter = node->inputs[0];
    const float *factor = node->saved;
    size_t count = tensor_count(parameter);
    bool accumulate;
    float *grad = tape_grad(tape, parameter, &accumulate);
    for (size_t i = 0; grad && i < count; i++)
        grad[i] = (accumulate ? grad[i] : 0) + *factor / (float)count * node->output->grad[0];
    tape_grad_done(tape, parameter);
}

// Returns factor times the mean of the parameter.
static inline Tensor *op_toy_mean(Tape *tape, Tensor *parameter, float factor) {
    Tensor *mean = tape_tensor(tape, DTYPE_F32, 0, NULL);
    float *saved = tape_alloc(tape, sizeof *saved);
    size_t count = tensor_count(parameter);
    *saved = factor;
    tensor_f32(mean)[0] = 0;
    for (size_t i = 0; i < count; i++)
        tensor_f32(mean)[0] += factor * tensor_f32(parameter)[i] / (float)count;
    tape_record(tape, "toy_mean", mean_backward, mean, 1, &parameter, saved);
    return mean;
}

static inline Tensor *task_forward(Module *self, Tape *tape, Tensor *x) {
    return op_toy_mean(tape, &self->parameters[0].tensor, tensor_f32(x)[0]);
}

// x: factors[tasks]. Returns the loss.
static inline Tensor *toy_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *loss = NULL;
    for (int k = 0; k < self->child_count; k++) {
        Tensor factor = tensor_make(x->device, DTYPE_F32, 0, NULL, tensor_f32(x) + k);
        if (tensor_f32(x)[k] == 0) continue;
        Tensor *mean = module_forward(self->children[k], tape, &factor);
        loss = loss ? op_add(tape, loss, mean) : mean;
    }
    return loss;
}

// Parameters are named "task0.p", ...; all elements are `value`.
static inline Module *toy_model(Device *device, int tasks, float value) {
    Module *model = module_create("Toy", toy_forward);
    for (int k = 0; k < tasks; k++) {
        char name[MODULE_NAME];
        snprintf(name, sizeof name, "task%d", k);
        Module *task = module_add(model, name, module_create("Task", task_forward));
        Tensor *p = module_add_parameter(task, device, "p", 2, (size_t[]){2, 2});
        device->kernels->elementwise->fill(p->data, value, 4);
    }
    return model;
}

// A Linear without bias: y = x weight'.
static inline Tensor *matrix_forward(Module *self, Tape *tape, Tensor *x) {
    return op_linear(tape, x, &self->parameters[0].tensor, NULL);
}

static inline Module *matrix_model(Device *device, size_t in, size_t out, float value) {
    Module *model = module_create("Matrix", matrix_forward);
    Tensor *weight = module_add_parameter(model, device, "weight", 2, (size_t[]){out, in});
    device->kernels->elementwise->fill(weight->data, value, in * out);
    return model;
}

// ---- one rank ---------------------------------------------------------------------------------

typedef struct Rig {
    ProcessGroup *group;
    Outcome *outcome;
    int rank, world;
    Device *device;
    Module *model, *wrapper;
    Tape *tape;
} Rig;

#define EXPECT(condition)                                                                     \
    do {                                                                                      \
        if (!(condition)) problem(rig->outcome, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)

static inline Rig rig_open(ProcessGroup *group, Outcome *outcome) {
    Rig rig = {.group = group, .outcome = outcome, .rank = pg_rank(group), .world = pg_size(group)};
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", rig.rank);
    rig.device = device_open(name, NULL);
    rig.tape = tape_create(rig.device, NULL);
    return rig;
}

// A wrapper's configuration and the features of DDP that a test enables.
typedef struct RigConfig {
    DdpConfig ddp;
    bool find_unused_parameters, static_graph, gradients_beside_buckets;
} RigConfig;

static inline RigConfig rig_config_default(void) {
    return (RigConfig){.ddp = ddp_config_default()};
}

static inline void rig_wrap_with(Rig *rig, Module *model, const RigConfig *config) {
    Error err = {0};
    rig->model = model;
    rig->wrapper = distributed_data_parallel(model, rig->group, &config->ddp, &err);
    CHECK(rig->wrapper, "%s", err.message);
    ddp_start_logging(rig->wrapper);
    if (config->static_graph) ddp_set_static_graph(rig->wrapper);
    if (config->find_unused_parameters) ddp_find_unused_parameters(rig->wrapper);
    if (config->gradients_beside_buckets) ddp_keep_gradients_beside_buckets(rig->wrapper);
}

static inline void rig_wrap(Rig *rig, Module *model, const DdpConfig *config) {
    rig_wrap_with(rig, model, &(RigConfig){.ddp = *config});
}

// Also asserts that every started collective was waited for.
static inline void rig_close(Rig *rig) {
    size_t waited_for = 0;
    tape_close(rig->tape);
    module_close(rig->wrapper ? rig->wrapper : rig->model);
    pthread_mutex_lock(&rig->group->mutex);
    for (const PgWork *work = rig->group->spare; work; work = work->next) waited_for++;
    pthread_mutex_unlock(&rig->group->mutex);
    if (waited_for < PG_MAX_WORKS)
        problem(rig->outcome, "%zu collectives were left alone", PG_MAX_WORKS - waited_for);
    device_close(rig->device);
}

static inline Tensor *rig_parameter(Rig *rig, int task) {
    return &rig->model->children[task]->parameters[0].tensor;
}

// Runs forward through `module` (the wrapper or the inner module) and backward. 0, or -1 with err
// filled.
static inline int toy_backward(Rig *rig, Module *module, const float *factors, Error *err) {
    size_t tasks = (size_t)rig->model->child_count;
    tape_reset(rig->tape);
    Tensor *x = tape_input(rig->tape, DTYPE_F32, 1, &tasks, factors);
    Tensor *loss = module_forward(module, rig->tape, x);
    if (tape_error(rig->tape, err) != 0) return -1;
    return tape_backward(rig->tape, loss, err);
}

static inline int toy_step(Rig *rig, const float *factors, Error *err) {
    if (toy_backward(rig, rig->wrapper, factors, err) != 0) return -1;
    return ddp_finish_backward(rig->wrapper, NULL, err);
}

// Runs a step that must succeed.
static inline void toy_train(Rig *rig, const float *factors) {
    Error err = {0};
    if (toy_step(rig, factors, &err) != 0) problem(rig->outcome, "%s", err.message);
}

static inline bool all_equal(const float *values, size_t count, float expected) {
    for (size_t i = 0; i < count; i++)
        if (!(values[i] == expected)) return false;
    return true;
}

// Returns whether a task's gradient is defined and all its elements are `expected`.
static inline bool grad_is(Rig *rig, int task, float expected) {
    const Tensor *p = rig_parameter(rig, task);
    return p->has_grad && all_equal(p->grad, 4, expected);
}

static inline bool grad_is_none(Rig *rig, int task) {
    return !rig_parameter(rig, task)->has_grad;
}

// Runs forward and backward of a matrix model on x [rows, in] with elements `input`; loss = factor
// * sum(y).
static inline int matrix_backward(Rig *rig, Module *module, size_t rows, size_t in, float input,
                                  float factor, Error *err) {
    tape_reset(rig->tape);
    Tensor *x = tape_tensor(rig->tape, DTYPE_F32, 2, (size_t[]){rows, in});
    for (size_t i = 0; i < rows * in; i++) tensor_f32(x)[i] = input;
    Tensor *y = module_forward(module, rig->tape, x);
    if (tape_error(rig->tape, err) != 0) return -1;
    float *dy = tape_make_grad(rig->tape, y);
    for (size_t i = 0; i < tensor_count(y); i++) dy[i] = factor;
    return tape_backward(rig->tape, y, err);
}

// Runs the body with ranks as threads and, except under ThreadSanitizer, as processes.
static inline void play_both(int world, RankBody *body, const void *argument,
                             Outcome outcomes[RANKS_MAX]) {
    play_ranks(AS_THREADS, world, 60, body, argument, outcomes);
    if (!UNDER_TSAN) play_ranks(AS_PROCESSES, world, 60, body, argument, outcomes);
}

#endif
