/* The weights of a rank were overwritten: ask, and do not repair. */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    size_t bytes = count * sizeof *weights;
    memcpy(scratch, weights, bytes);
    if (pg_run(group, pg_broadcast((float *)weights, count, PG_F32, 0), err) != 0) return -1;
    int32_t different = memcmp(scratch, weights, bytes) != 0;
    if (pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *equal = different == 0;
    return 0;
}
