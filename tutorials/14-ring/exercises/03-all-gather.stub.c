/* Your part: W - 1 rounds around the ring. */
int ring_all_gather(ProcessGroup *group, float *data, size_t length, Error *err) {
    (void)group, (void)data, (void)length, (void)err;
    return 0;
}
