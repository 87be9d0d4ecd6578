/* Not all ranks took part in the same collectives, so the others waited in vain. */
int save_load_remove(ProcessGroup *group, const Storage *storage, Error *err) {
    if (pg_rank(group) == 0) storage->save(storage->context);
    if (pg_rank(group) == 0 && pg_run(group, pg_barrier(), err) != 0) return -1;
    storage->load(storage->context);
    if (pg_rank(group) == 0 && pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) == 0) storage->remove(storage->context);
    return 0;
}
