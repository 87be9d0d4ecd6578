/* Not all ranks took part in the same collectives, so the others waited in vain. */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    if (pg_rank(group) == 0) {
        prepare(context);
    } else if (pg_run(group, pg_barrier(), err) != 0) {
        return -1;
    }
    use(context);
    return 0;
}
