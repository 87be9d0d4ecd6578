/* Your part: what the root does, and what the others do. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    (void)group, (void)data, (void)count, (void)root, (void)err;
    return 0;
}
