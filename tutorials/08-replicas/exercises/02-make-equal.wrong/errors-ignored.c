/* The connection was lost in a collective, and it returned 0, not -1 */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Collective rank0s = pg_broadcast(tensors[k]->data, tensor_bytes(tensors[k]), PG_U8, 0);
        pg_run(group, rank0s, err);
    }
    return 0;
}
