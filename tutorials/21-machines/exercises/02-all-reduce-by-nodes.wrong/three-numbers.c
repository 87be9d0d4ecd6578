/* Only a part of the numbers was added up */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    (void)count;
    if (pg_run(node, pg_reduce(numbers, 3, PG_F32, PG_SUM, 0), err) != 0) return -1;
    if (firsts && pg_run(firsts, pg_all_reduce(numbers, 3, PG_F32, PG_SUM), err) != 0) return -1;
    return pg_run(node, pg_broadcast(numbers, 3, PG_F32, 0), err);
}