/* The connection was lost in a collective, and it returned 0, not -1 */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    pg_run(node, pg_reduce(numbers, count, PG_F32, PG_SUM, 0), err);
    if (firsts && pg_run(firsts, pg_all_reduce(numbers, count, PG_F32, PG_SUM), err) != 0)
        return -1;
    return pg_run(node, pg_broadcast(numbers, count, PG_F32, 0), err);
}
