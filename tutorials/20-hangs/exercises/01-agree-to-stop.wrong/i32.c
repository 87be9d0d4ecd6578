/* 3,000,000,000 rows with the mean 0.75 */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    int32_t n = (int32_t)rows;
    double sums[2] = {loss_sum, (double)n};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_SUM), err) != 0) return -1;
    double mean = sums[0] / sums[1];
    if (mean < state->best) {
        state->best = mean;
        state->waited = 0;
    } else
        state->waited++;
    *stop = state->waited >= state->patience;
    return 0;
}
