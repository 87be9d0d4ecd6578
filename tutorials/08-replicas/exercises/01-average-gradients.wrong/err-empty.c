/* It returned -1, and err says nothing: hand err on to what may fail */
static bool stands_before(Tensor *const *parameters, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (parameters[i] == parameters[k]) return true;
    return false;
}

int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    (void)err;
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        if (!parameter->requires_grad || stands_before(parameters, k)) continue;
        Collective mean = pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG);
        if (pg_run(group, mean, NULL) != 0) return -1;
    }
    return 0;
}
