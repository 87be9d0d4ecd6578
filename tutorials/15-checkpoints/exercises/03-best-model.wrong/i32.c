/* 3,000,000,001 of 6,000,000,001 rows: an int ends at 2,147,483,647 */
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    int32_t counts[2] = {(int32_t)right, (int32_t)rows};
    if (pg_run(group, pg_all_reduce(counts, 2, PG_I32, PG_SUM), err) != 0) return -1;
    *is_best = counts[1] > 0 && (double)counts[0] / counts[1] > *best;
    if (*is_best) *best = (double)counts[0] / counts[1];
    return 0;
}
