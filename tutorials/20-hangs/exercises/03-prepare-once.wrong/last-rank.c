/* Another rank than 0 has called prepare. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = pg_rank(group) == pg_size(group) - 1 ? prepare(context) : 0;
    if (pg_run(group, pg_broadcast(&succeeded, 1, PG_I32, pg_size(group) - 1), err) != 0) return -1;
    *prepared = succeeded;
    return 0;
}
