/* A frozen parameter has no gradient, and there is nothing to average. */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        size_t n = tensor_count(parameter);
        bool before = false;
        for (size_t i = 0; i < k; i++) before = before || parameters[i] == parameter;
        if (before) continue;
        if (pg_run(group, pg_all_reduce(parameter->grad, n, PG_F32, PG_AVG), err) != 0) return -1;
    }
    return 0;
}
