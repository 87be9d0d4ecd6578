/* Your part: continue until no rank has a batch. */
int train_uneven(ProcessGroup *group, const Training *training, Error *err) {
    (void)group, (void)training, (void)err;
    return 0;
}
