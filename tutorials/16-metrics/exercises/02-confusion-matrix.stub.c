/* Your part: an empty table, this rank's rows, and the sum of all tables. */
int confusion_matrix(ProcessGroup *group, const AnsweredRows *own, double *counts, Error *err) {
    (void)group, (void)own, (void)counts, (void)err;
    return 0;
}
