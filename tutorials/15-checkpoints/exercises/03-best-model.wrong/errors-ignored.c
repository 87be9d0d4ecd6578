/* The connection was lost in a collective, and it returned 0, not -1 */
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    double counts[2] = {(double)right, (double)rows};
    pg_run(group, pg_all_reduce(counts, 2, PG_F64, PG_SUM), err);
    *is_best = counts[1] > 0 && counts[0] / counts[1] > *best;
    if (*is_best) *best = counts[0] / counts[1];
    return 0;
}
