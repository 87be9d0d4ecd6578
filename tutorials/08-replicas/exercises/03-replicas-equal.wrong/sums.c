/* Two weights were exchanged on one rank, and it was not noticed: equal sums are not enough. */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    (void)scratch;
    double sums[2] = {0, 0};
    for (size_t i = 0; i < count; i++) sums[0] += (double)weights[i];
    sums[1] = -sums[0];
    if (pg_run(group, pg_all_reduce(sums, 2, PG_F64, PG_MAX), err) != 0) return -1;
    *equal = sums[0] == -sums[1];
    return 0;
}
