/* Rank 0 failed, and rank 0 continues as if all were well. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = pg_rank(group) == 0 ? prepare(context) : 1;
    if (pg_run(group, pg_all_reduce(&succeeded, 1, PG_I32, PG_MAX), err) != 0) return -1;
    *prepared = succeeded;
    return 0;
}
