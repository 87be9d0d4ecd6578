/* has the sum of its own node: the other nodes are missing. */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    if (pg_run(node, pg_reduce(numbers, count, PG_F32, PG_SUM, 0), err) != 0) return -1;
    (void)firsts;
    return pg_run(node, pg_broadcast(numbers, count, PG_F32, 0), err);
}
