/* The bool itself travels. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    if (pg_rank(group) == 0) *prepared = prepare(context);
    return pg_run(group, pg_broadcast(prepared, sizeof *prepared, PG_U8, 0), err);
}
