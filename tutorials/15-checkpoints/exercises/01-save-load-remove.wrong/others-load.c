/* Alone, rank 0 saves, loads and removes once each; yours: 1, 0 and 1 times. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) > 0) storage->load(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
