/* Rank 0 may remove the file before rank 1 has loaded it: no barrier stands between them. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    storage->load(storage->context);
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
