/* The best accuracy has the few digits of a float */
int best_model(ProcessGroup *group, size_t right, size_t rows, double *best, bool *is_best,
               Error *err) {
    float counts[2] = {(float)right, (float)rows};
    if (pg_run(group, pg_all_reduce(counts, 2, PG_F32, PG_SUM), err) != 0) return -1;
    *is_best = counts[1] > 0 && (double)counts[0] / (double)counts[1] > *best;
    if (*is_best) *best = (double)counts[0] / (double)counts[1];
    return 0;
}
