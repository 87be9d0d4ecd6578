/* It was prepared more than once: only rank 0 is to do that. */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    prepare(context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    use(context);
    return 0;
}
