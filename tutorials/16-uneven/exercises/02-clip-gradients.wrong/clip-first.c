/* This is the length of the rank's own gradients. Clip after the reduction */
int clip_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, double max_norm,
                   double *norm, Error *err) {
    double squares = 0;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < tensor_count(parameters[k]); i++)
            squares += (double)parameters[k]->grad[i] * (double)parameters[k]->grad[i];
    *norm = sqrt(squares);
    float scale = *norm > max_norm ? (float)(max_norm / *norm) : 1.0f;
    for (size_t k = 0; k < count; k++) {
        size_t n = tensor_count(parameters[k]);
        for (size_t i = 0; i < n; i++) parameters[k]->grad[i] *= scale;
        if (pg_run(group, pg_all_reduce(parameters[k]->grad, n, PG_F32, PG_AVG), err) != 0)
            return -1;
    }
    return 0;
}
