/* Rank 0 failed, and rank 1 continues as if all were well. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = pg_rank(group) == 0 ? prepare(context) : 1;
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    *prepared = succeeded;
    return 0;
}
