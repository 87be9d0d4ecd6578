/* 2 ranks have called prepare; rank 0 alone is to. */
int prepare_once(ProcessGroup *group, Prepare *prepare, void *context, bool *prepared, Error *err) {
    int32_t succeeded = prepare(context);
    if (pg_run(group, pg_broadcast(&succeeded, 1, PG_I32, 0), err) != 0) return -1;
    *prepared = succeeded;
    return 0;
}
