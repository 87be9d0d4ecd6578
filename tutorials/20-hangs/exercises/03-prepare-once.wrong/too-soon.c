/* Rank 1 went on before rank 0 was done: it would find half a file. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    int32_t succeeded = pg_rank(group) == 0 ? prepare(context) : 1;
    *prepared = succeeded;
    return 0;
}
