/* a bool is one byte, and a PG_I32 has four. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    if (pg_rank(group) == 0) *prepared = prepare(context);
    return pg_run(group, pg_broadcast(prepared, 1, PG_I32, 0), err);
}
