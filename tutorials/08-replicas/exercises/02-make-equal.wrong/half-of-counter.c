/* Only a part of a tensor arrived: an I64 has 8 bytes, and tensor_bytes knows that. */
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *tensor = tensors[k];
        size_t n = tensor_count(tensor) * sizeof(float);
        if (pg_run(group, pg_broadcast(tensor->data, n, PG_U8, 0), err) != 0) return -1;
    }
    return 0;
}
