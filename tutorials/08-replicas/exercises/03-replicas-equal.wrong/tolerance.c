/* The last bit of one weight differed, and it was called equal. */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    memcpy(scratch, weights, count * sizeof *weights);
    if (pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err) != 0) return -1;
    int32_t different = 0;
    for (size_t i = 0; i < count; i++) {
        float distance = scratch[i] - weights[i];
        different |= distance > 1e-6f || distance < -1e-6f;
    }
    if (pg_run(group, pg_all_reduce(&different, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *equal = different == 0;
    return 0;
}
