/* optimizer_hook.c: stepping bucket by bucket. */
#include "ddp/features/optimizer_hook.h"

#include "common/base/memory.h"

typedef struct OptimizerHook {
    CommHook inner;
    Optimizer *optimizer;
    const double *lr;
} OptimizerHook;

static int start(void *state, GradBucket *bucket, Error *err) {
    OptimizerHook *hook = state;
    return hook->inner.start(hook->inner.state, bucket, err);
}

static size_t index_in(const NamedTensors *parameters, const Tensor *parameter) {
    size_t i = 0;
    while (i < parameters->count && parameters->items[i].tensor != parameter) i++;
    CHECK(i < parameters->count, "the optimizer is not of the model that the hook belongs to");
    return i;
}

static int finish(void *state, GradBucket *bucket, Error *err) {
    OptimizerHook *hook = state;
    if (bucket->index == 0) optimizer_begin_parameters(hook->optimizer, *hook->lr);
    if (hook->inner.finish(hook->inner.state, bucket, err) != 0) return -1;
    // Parameters that this rank did not use are stepped, too: all ranks must do the same.
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Tensor *parameter = bucket->parameters[i];
        size_t index = index_in(&hook->optimizer->parameters, parameter);
        optimizer_step_parameter(hook->optimizer, index);
        parameter->has_grad = false;
    }
    if (bucket->is_last) optimizer_end_step(hook->optimizer);
    return 0;
}

static void close_hook(void *state) {
    OptimizerHook *hook = state;
    if (hook->inner.close) hook->inner.close(hook->inner.state);
    free(hook);
}

static int save_inner(void *state, SafeTensors *content, Error *err) {
    const OptimizerHook *hook = state;
    return hook->inner.save(hook->inner.state, content, err);
}

static int load_inner(void *state, const char *path, const SafeTensors *content, Log *log,
                      Error *err) {
    const OptimizerHook *hook = state;
    return hook->inner.load(hook->inner.state, path, content, log, err);
}

CommHook optimizer_hook(CommHook inner, Optimizer *optimizer, const double *lr) {
    OptimizerHook *hook = memory_zalloc(sizeof *hook);
    *hook = (OptimizerHook){.inner = inner, .optimizer = optimizer, .lr = lr};
    return (CommHook){.name = "hook_then_optimizer",
                      .state = hook,
                      .start = start,
                      .finish = finish,
                      .close = close_hook,
                      .save = inner.save ? save_inner : NULL,
                      .load = inner.load ? load_inner : NULL};
}
