/* 02-sharded-step.c: reduce-scatter, step, all-gather. The task is in 02-sharded-step.h. */
#include "tutorials/20-sharding/exercises/02-sharded-step.h"

// SOLUTION BEGIN
int sharded_step(ProcessGroup *group, float *weights, float *gradients, float *velocity,
                 size_t share, Error *err) {
    size_t first = (size_t)pg_rank(group) * share;
    float *weight = weights + first, *gradient = gradients + first;
    if (pg_run(group, pg_reduce_scatter(gradients, gradient, share, PG_F32, PG_AVG), err) != 0)
        return -1;
    for (size_t i = 0; i < share; i++) {
        velocity[i] = MOMENTUM * velocity[i] + gradient[i];
        weight[i] -= RATE * velocity[i];
    }
    return pg_run(group, pg_all_gather(weight, weights, share, PG_F32), err);
}
// SOLUTION END
