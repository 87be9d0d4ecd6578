/* Your part: the accuracy of all rows, and whether it is the best. */
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    (void)group, (void)right, (void)rows, (void)best, (void)err;
    *is_best = false;
    return 0;
}
