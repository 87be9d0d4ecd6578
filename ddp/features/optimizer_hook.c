/* optimizer_hook.c: stepping bucket by bucket. */
#include "ddp/features/optimizer_hook.h"

#include "common/base/memory.h"
#include "ddp/features/hook_state.h"

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
    if (hook->inner.finish(hook->inner.state, bucket, err)) return -1;
    // Every parameter of the bucket, used on this rank or not: that is the same on all ranks.
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Tensor *parameter = bucket->parameters[i];
        size_t index = index_in(&hook->optimizer->parameters, parameter);
        optimizer_step_parameter(hook->optimizer, index, *hook->lr);
        parameter->has_grad = false;
    }
    return 0;
}

static void close_hook(void *state) {
    OptimizerHook *hook = state;
    if (hook->inner.close) hook->inner.close(hook->inner.state);
    free(hook);
}

static HookState describe_inner(void *state) {
    OptimizerHook *hook = state;
    return hook->inner.describe(hook->inner.state);
}

CommHook optimizer_hook(CommHook inner, Optimizer *optimizer, const double *lr) {
    OptimizerHook *hook = memory_zalloc(sizeof *hook);
    *hook = (OptimizerHook){.inner = inner, .optimizer = optimizer, .lr = lr};
    return (CommHook){.name = "hook_then_optimizer",
                      .state = hook,
                      .start = start,
                      .finish = finish,
                      .close = close_hook,
                      .describe = inner.describe ? describe_inner : NULL};
}
