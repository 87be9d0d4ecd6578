/* The connection was lost in a collective, and it returned 0, not -1 */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    size_t bytes = count * sizeof *weights;
    memcpy(scratch, weights, bytes);
    pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err);
    int32_t different = memcmp(scratch, weights, bytes) != 0;
    pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err);
    *equal = different == 0;
    return 0;
}
