/* something was kept from one call to the next. */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    static _Thread_local Tensor *seen[4096];
    static _Thread_local size_t seen_count;
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        bool again = false;
        for (size_t i = 0; i < seen_count; i++) again = again || seen[i] == parameter;
        if (!parameter->requires_grad || again) continue;
        seen[seen_count++] = parameter;
        Collective mean = pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG);
        if (pg_run(group, mean, err) != 0) return -1;
    }
    return 0;
}
