/* A barrier had failed, and the file was loaded or removed nevertheless */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    int failed = pg_run(group, pg_barrier(), err);
    storage->load(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) failed = -1;
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return failed;
}
