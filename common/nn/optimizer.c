/* optimizer.c: one kernel call per parameter whose gradient is defined. */
#include "common/nn/optimizer.h"

#include "common/base/memory.h"

enum { STATES = 2 };

const char *optimizer_state_name(const Optimizer *optimizer, int which) {
    if (optimizer->config.kind == OPTIMIZER_ADAMW) return which == 0 ? "exp_avg" : "exp_avg_sq";
    return which == 0 && optimizer->config.momentum > 0 ? "momentum_buffer" : NULL;
}

Optimizer *optimizer_create(Module *module, const OptimizerConfig *config) {
    Optimizer *optimizer = memory_zalloc(sizeof *optimizer);
    optimizer->config = *config;
    optimizer->parameters = module_tensors(module, MODULE_PARAMETERS);
    size_t count = optimizer->parameters.count;
    optimizer->steps = memory_zalloc(count * sizeof *optimizer->steps);
    for (int s = 0; s < STATES; s++) {
        optimizer->state[s] = memory_zalloc(count * sizeof *optimizer->state[s]);
        for (size_t i = 0; optimizer_state_name(optimizer, s) && i < count; i++) {
            const Tensor *parameter = optimizer->parameters.items[i].tensor;
            optimizer->state[s][i] = device_alloc(parameter->device, tensor_bytes(parameter));
            parameter->device->kernels->fill(optimizer->state[s][i], 0.0f, tensor_count(parameter));
        }
    }
    return optimizer;
}

void optimizer_close(Optimizer *optimizer) {
    if (!optimizer) return;
    for (int s = 0; s < STATES; s++) {
        for (size_t i = 0; i < optimizer->parameters.count; i++) {
            const Tensor *parameter = optimizer->parameters.items[i].tensor;
            device_free(parameter->device, optimizer->state[s][i], tensor_bytes(parameter));
        }
        free(optimizer->state[s]);
    }
    free(optimizer->steps);
    named_tensors_free(&optimizer->parameters);
    free(optimizer);
}

void optimizer_step_parameter(Optimizer *optimizer, size_t i, double lr) {
    const OptimizerConfig *config = &optimizer->config;
    Tensor *parameter = optimizer->parameters.items[i].tensor;
    const Kernels *kernels = parameter->device->kernels;
    int64_t step = ++optimizer->steps[i];
    if (config->kind == OPTIMIZER_ADAMW) {
        AdamWConfig adamw = {.lr = (float)lr,
                             .beta1 = (float)config->beta1,
                             .beta2 = (float)config->beta2,
                             .eps = (float)config->eps,
                             .weight_decay = (float)config->weight_decay,
                             .step = step};
        kernels->adamw(&adamw, tensor_f32(parameter), parameter->grad, optimizer->state[0][i],
                       optimizer->state[1][i], tensor_count(parameter));
    } else {
        SgdConfig sgd = {.lr = (float)lr,
                         .momentum = (float)config->momentum,
                         .weight_decay = (float)config->weight_decay,
                         .nesterov = config->nesterov};
        kernels->sgd(&sgd, tensor_f32(parameter), parameter->grad, optimizer->state[0][i],
                     step == 1, tensor_count(parameter));
    }
}

void optimizer_step(Optimizer *optimizer, double lr) {
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        if (optimizer->parameters.items[i].tensor->has_grad)
            optimizer_step_parameter(optimizer, i, lr);
}
