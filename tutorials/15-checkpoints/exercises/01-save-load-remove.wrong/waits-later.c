/* Rank 1 may load before rank 0 has saved: no barrier stands between them. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    PgWork *work = pg_start(group, pg_barrier(), err);
    if (!work) return -1;
    storage->load(storage->context);
    if (pg_work_wait(work, NULL, NULL, err) != 0) return -1;
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
