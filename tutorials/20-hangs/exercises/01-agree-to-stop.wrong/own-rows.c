/* Each rank decided by its own rows: one stops, and the others wait for it. */
int agree_to_stop(ProcessGroup *group, EarlyStop *state, double loss_sum, size_t rows, bool *stop,
                  Error *err) {
    (void)group, (void)err;
    double mean = loss_sum / (double)rows;
    state->waited = mean < state->best ? 0 : state->waited + 1;
    state->best = mean < state->best ? mean : state->best;
    *stop = state->waited >= state->patience;
    return 0;
}
