/* Not all ranks took part in the same collectives, so the others waited in vain. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = pg_rank(group) == 0 ? prepare(context) : 0;
    if (pg_rank(group) == 0 && !succeeded) {
        *prepared = false;
        return 0;
    }
    if (pg_run(group, pg_broadcast(&succeeded, 1, PG_I32, 0), err) != 0) return -1;
    *prepared = succeeded;
    return 0;
}
