/* The weights were averaged; they are to be those of rank 0. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *tensor = tensors[k];
        size_t n = tensor_count(tensor);
        Collective mean = pg_all_reduce(tensor->data, n, PG_F32, PG_AVG);
        if (tensor->dtype != DTYPE_F32) mean = pg_broadcast(tensor->data, n, PG_I64, 0);
        if (pg_run(group, mean, err) != 0) return -1;
    }
    return 0;
}
