/* saved: all ranks write into one file at the same time. Only rank 0 is to. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    storage->save(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    storage->load(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
