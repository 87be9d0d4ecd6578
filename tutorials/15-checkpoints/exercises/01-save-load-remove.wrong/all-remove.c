/* removed the file 1 times; only rank 0 is to, once. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    storage->load(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    storage->remove(storage->context);
    return 0;
}
