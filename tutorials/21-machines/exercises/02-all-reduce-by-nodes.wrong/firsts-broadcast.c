/* has the sum of node 0: it was handed out, and the other nodes were not added. */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    if (pg_run(node, pg_reduce(numbers, count, PG_F32, PG_SUM, 0), err) != 0) return -1;
    if (firsts && pg_run(firsts, pg_broadcast(numbers, count, PG_F32, 0), err) != 0) return -1;
    return pg_run(node, pg_broadcast(numbers, count, PG_F32, 0), err);
}
