/* Your part: which rank makes which call, and the barriers. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    (void)group, (void)storage, (void)err;
    return 0;
}
