/* The shared parameter was sent twice: it stands in the list under both of its names. */
int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        if (!parameter->requires_grad) continue;
        size_t n = tensor_count(parameter);
        if (pg_run(group, pg_all_reduce(parameter->grad, n, PG_F32, PG_AVG), err) != 0) return -1;
    }
    return 0;
}
