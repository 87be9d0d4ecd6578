/* The connection was lost in a collective, and it returned 0, not -1 */
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err) {
    for (size_t k = 0; *changed && k < count; k++) {
        size_t bytes = tensor_bytes(buffers[k]);
        pg_run(group, pg_broadcast(buffers[k]->data, bytes, PG_U8, 0), err);
    }
    *changed = training;
    return 0;
}
