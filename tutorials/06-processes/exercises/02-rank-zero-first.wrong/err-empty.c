/* It returned -1, and err says nothing: hand err on to what may fail */
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    (void)err;
    if (pg_rank(group) == 0) prepare(context);
    if (pg_run(group, pg_barrier(), NULL) != 0) return -1;
    use(context);
    return 0;
}
