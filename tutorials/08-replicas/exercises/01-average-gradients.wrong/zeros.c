/* The gradients are 0 on every rank: all agree, and none learns. */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        bool before = false;
        for (size_t i = 0; i < k; i++) before = before || parameters[i] == parameter;
        if (!parameter->requires_grad || before) continue;
        size_t n = tensor_count(parameter);
        if (pg_run(group, pg_all_reduce(parameter->grad, n, PG_F32, PG_AVG), err) != 0) return -1;
        memset(parameter->grad, 0, n * sizeof(float));
    }
    return 0;
}
