/* Your part: the root's sends, and the other ranks' receives. */
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    (void)group, (void)data, (void)count, (void)root, (void)err;
    return 0;
}
