/* The order is: save, load, remove. (rank 0 of 2) */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    bool zero = pg_rank(group) == 0;
    if (zero) storage->save(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (!zero || pg_size(group) == 1) storage->load(storage->context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (zero) storage->remove(storage->context);
    if (zero && pg_size(group) > 1) storage->load(storage->context);
    return 0;
}
