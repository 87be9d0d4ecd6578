/* A rank did not use what was prepared; rank 0 is one of those that do. */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    if (pg_rank(group) == 0) prepare(context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (pg_rank(group) != 0) use(context);
    return 0;
}
