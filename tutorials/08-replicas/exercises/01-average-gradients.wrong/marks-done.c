/* Parameter 0's requires_grad was changed */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        if (!parameter->requires_grad) continue;
        Collective mean = pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG);
        if (pg_run(group, mean, err) != 0) return -1;
        parameter->requires_grad = false;
    }
    return 0;
}
