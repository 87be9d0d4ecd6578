/* The connection was lost in a collective, and it returned 0, not -1 */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    pg_run(group, pg_barrier(), err);
    storage->load(storage->context);
    pg_run(group, pg_barrier(), err);
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
