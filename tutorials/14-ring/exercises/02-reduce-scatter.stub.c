/* Your part: W - 1 rounds around the ring. */
int ring_reduce_scatter(ProcessGroup *group, float *data, float *scratch, size_t length,
                        Error *err) {
    (void)group, (void)data, (void)scratch, (void)length, (void)err;
    return 0;
}
