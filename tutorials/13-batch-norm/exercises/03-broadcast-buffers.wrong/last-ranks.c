/* These are the last rank's buffers; they must be rank 0's. */
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err) {
    for (size_t k = 0; *changed && k < count; k++) {
        size_t bytes = tensor_bytes(buffers[k]);
        if (pg_run(group, pg_broadcast(buffers[k]->data, bytes, PG_U8, pg_size(group) - 1), err) !=
            0)
            return -1;
    }
    *changed = training;
    return 0;
}
