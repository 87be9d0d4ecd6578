/* Not all ranks took part in the same collectives, so the others waited in vain. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *tensor = tensors[k];
        if (pg_rank(group) != 0) continue;
        if (pg_run(group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0), err) != 0)
            return -1;
    }
    return 0;
}
