/* optimizer_hook.c: stepping bucket by bucket. */
#include "ddp/features/optimizer_hook.h"

#include "common/base/memory.h"
#include "ddp/features/hook_around.h"

typedef struct OptimizerHook {
    Optimizer *optimizer;
    const double *lr;
    bool begun; // this step's first bucket was stepped
} OptimizerHook;

static size_t index_in(const NamedTensors *parameters, const Tensor *parameter) {
    size_t i = 0;
    while (i < parameters->count && parameters->items[i].tensor != parameter) i++;
    CHECK(i < parameters->count, "the optimizer is not of the model that the hook belongs to");
    return i;
}

static void step_bucket(void *context, GradBucket *bucket) {
    OptimizerHook *hook = context;
    if (!hook->begun) optimizer_begin_parameters(hook->optimizer, *hook->lr);
    hook->begun = !bucket->is_last;
    // Parameters that this rank did not use are stepped, too: all ranks must do the same.
    for (size_t i = 0; i < bucket->parameter_count; i++) {
        Tensor *parameter = bucket->parameters[i];
        size_t index = index_in(&hook->optimizer->parameters, parameter);
        optimizer_step_parameter(hook->optimizer, index);
        parameter->has_grad = false;
    }
    if (bucket->is_last) optimizer_end_step(hook->optimizer);
}

CommHook optimizer_hook(CommHook inner, Optimizer *optimizer, const double *lr) {
    OptimizerHook *hook = memory_zalloc(sizeof *hook);
    *hook = (OptimizerHook){.optimizer = optimizer, .lr = lr};
    return hook_around(
        "hook_then_optimizer",
        (HookAround){.inner = inner, .context = hook, .after = step_bucket, .close = free});
}
