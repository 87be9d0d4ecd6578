/* 01-issue-step.c: launch, record, wait. The task is in 01-issue-step.h. */
#include "tutorials/25-gpus/exercises/01-issue-step.h"

// SOLUTION BEGIN
void issue_step(const Streams *gpu, int layers) {
    for (int layer = layers - 1; layer >= 0; layer--) {
        gpu->launch(gpu->context, COMPUTE, BACKWARD, layer);
        int ready = gpu->record(gpu->context, COMPUTE);
        gpu->wait(gpu->context, COMMUNICATE, ready);
        gpu->launch(gpu->context, COMMUNICATE, ALL_REDUCE, layer);
    }
    int averaged = gpu->record(gpu->context, COMMUNICATE);
    gpu->wait(gpu->context, COMPUTE, averaged);
    gpu->launch(gpu->context, COMPUTE, OPTIMIZER, 0);
    gpu->launch(gpu->context, COMPUTE, COPY, 0);
    gpu->synchronize(gpu->context, COMPUTE);
}
// SOLUTION END
