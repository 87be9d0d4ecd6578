/* 3 epochs without a better mean (an equal one is not better), patience 3: it did not stop. */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    double sums[2] = {loss_sum, (double)rows};
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_SUM), err) != 0) return -1;
    double mean = sums[0] / sums[1];
    state->waited = mean < state->best ? 0 : state->waited + 1;
    state->best = mean < state->best ? mean : state->best;
    *stop = state->waited > state->patience;
    return 0;
}
