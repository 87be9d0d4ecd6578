/* This is the mean of the ranks' means; they have different numbers of rows. */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    double mean = loss_sum / (double)rows;
    if (pg_run(group, pg_all_reduce(&mean, 1, PG_F64, PG_AVG), err) != 0) return -1;
    state->waited = mean < state->best ? 0 : state->waited + 1;
    state->best = mean < state->best ? mean : state->best;
    *stop = state->waited >= state->patience;
    return 0;
}
