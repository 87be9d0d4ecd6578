/* It was divided by the number of ranks twice */
static bool stands_before(Tensor *const *parameters, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (parameters[i] == parameters[k]) return true;
    return false;
}
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *p = parameters[k];
        if (!p->requires_grad || stands_before(parameters, k)) continue;
        if (pg_run(group, pg_all_reduce(p->grad, tensor_count(p), PG_F32, PG_AVG), err) != 0)
            return -1;
        float *g = p->grad;
        for (size_t i = 0; i < tensor_count(p); i++) g[i] /= (float)pg_size(group);
    }
    return 0;
}