/* The mean has the few digits of a float */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    float sums[2] = {(float)loss_sum, (float)rows};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F32, PG_SUM), err) != 0) return -1;
    double mean = sums[0] / sums[1];
    if (mean < state->best) {
        state->best = mean;
        state->waited = 0;
    } else
        state->waited++;
    *stop = state->waited >= state->patience;
    return 0;
}