/* The connection was lost in a collective, and it returned 0, not -1 */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = pg_rank(group) == 0 ? prepare(context) : 0;
    pg_run(group, pg_broadcast(&succeeded, 1, PG_I32, 0), err);
    *prepared = succeeded;
    return 0;
}
