/* All ranks have stepped part 0: rank r's part begins at r times share. */
int sharded_step(ProcessGroup *group, float *weights, float *gradients, float *velocity,
                 size_t share, Error *err) {
    float *weight = weights, *gradient = gradients;
    if (pg_run(group, pg_reduce_scatter(gradients, gradient, share, PG_F32, PG_AVG), err) != 0)
        return -1;
    for (size_t i = 0; i < share; i++) {
        velocity[i] = MOMENTUM * velocity[i] + gradient[i];
        weight[i] -= RATE * velocity[i];
    }
    return pg_run(group, pg_all_gather(weight, weights, share, PG_F32), err);
}
