/* One rank differed, and all said equal: a minimum asks whether all do. */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    memcpy(scratch, weights, count * sizeof *weights);
    if (pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err) != 0) return -1;
    int32_t different = memcmp(scratch, weights, count * sizeof *weights) != 0;
    if (pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MIN), err) != 0) return -1;
    *equal = different == 0;
    return 0;
}
