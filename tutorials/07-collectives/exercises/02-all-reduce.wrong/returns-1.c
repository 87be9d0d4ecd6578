/* Nothing had failed, and it returned 1 */
int all_reduce_by_hand(ProcessGroup *group, float *data, float *scratch, size_t count, Error *err) {
    int r = pg_rank(group), n = pg_size(group);
    (void)r;
    (void)n;
    (void)scratch;
    if (r > 0) {
        if (pg_run(group, pg_send(data, count, PG_F32, 0), err) != 0) return -1;
        pg_run(group, pg_recv(data, count, PG_F32, 0), err);
        return 1;
    }
    for (int f = 1; f < n; f++) {
        pg_run(group, pg_recv(scratch, count, PG_F32, f), err);
        for (size_t i = 0; i < count; i++) data[i] += scratch[i];
    }
    for (int t = 1; t < n; t++) pg_run(group, pg_send(data, count, PG_F32, t), err);
    return 1;
}