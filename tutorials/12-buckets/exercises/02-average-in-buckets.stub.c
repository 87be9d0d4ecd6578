/* Your part: buckets, one all-reduce for each. */
int average_in_buckets(ProcessGroup *group, Tensor *const *parameters, size_t count, size_t cap,
                       float *memory, Error *err) {
    (void)group, (void)parameters, (void)count, (void)cap, (void)memory, (void)err;
    return 0;
}
