/* state->waited was 2 in the beginning */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    static _Thread_local int waited;
    double sums[2] = {loss_sum, (double)rows};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_SUM), err) != 0) return -1;
    double mean = sums[0] / sums[1];
    if (mean < state->best)
        state->best = mean, waited = 0;
    else
        waited++;
    *stop = waited >= state->patience;
    return 0;
}
