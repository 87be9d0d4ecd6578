/* Your part: a broadcast of each buffer, when it is needed. */
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err) {
    (void)group, (void)buffers, (void)count, (void)training, (void)changed, (void)err;
    return 0;
}
