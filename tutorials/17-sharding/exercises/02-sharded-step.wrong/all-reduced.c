/* An all-reduce brings every sum to every rank, and of three sums this rank uses one */
int sharded_step(ProcessGroup *group, float *weights, float *gradients, float *velocity,
                 size_t share, Error *err) {
    size_t first = (size_t)pg_rank(group) * share;
    float *weight = weights + first, *gradient = gradients + first;
    size_t all = (size_t)pg_size(group) * share;
    if (pg_run(group, pg_all_reduce(gradients, all, PG_F32, PG_AVG), err) != 0) return -1;
    for (size_t i = 0; i < share; i++) {
        velocity[i] = MOMENTUM * velocity[i] + gradient[i];
        weight[i] -= RATE * velocity[i];
    }
    return pg_run(group, pg_all_gather(weight, weights, share, PG_F32), err);
}
