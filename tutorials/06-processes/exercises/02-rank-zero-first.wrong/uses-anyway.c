/* The connection was lost in a collective, and it returned 0, not -1 */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    if (pg_rank(group) == 0) prepare(context);
    pg_run(group, pg_barrier(), err);
    use(context);
    return 0;
}