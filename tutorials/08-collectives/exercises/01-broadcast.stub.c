/* Your part: the root's calls, and those of the other ranks. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    (void)group, (void)data, (void)count, (void)root, (void)err;
    return 0;
}
