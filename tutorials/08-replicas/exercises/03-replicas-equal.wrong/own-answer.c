/* The ranks do not agree: one says equal and another different. */
int replicas_equal(ProcessGroup *group, const float *weights, float *scratch, size_t count,
                   bool *equal, Error *err) {
    memcpy(scratch, weights, count * sizeof *weights);
    if (pg_run(group, pg_broadcast(scratch, count, PG_F32, 0), err) != 0) return -1;
    *equal = memcmp(scratch, weights, count * sizeof *weights) == 0;
    return 0;
}
