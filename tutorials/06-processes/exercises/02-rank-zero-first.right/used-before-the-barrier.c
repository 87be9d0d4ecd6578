/* Rank 0 knows that it has prepared, and does not wait for the others before it uses. */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    const bool first = pg_rank(group) == 0;
    if (first) prepare(context);
    if (first) use(context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    if (!first) use(context);
    return 0;
}
