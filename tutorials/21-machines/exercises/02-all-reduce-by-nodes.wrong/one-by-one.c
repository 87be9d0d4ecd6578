/* collectives, and three are enough: each takes all numbers. */
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    for (size_t i = 0; i < count; i++) {
        if (pg_run(node, pg_reduce(&numbers[i], 1, PG_F32, PG_SUM, 0), err) != 0) return -1;
        if (firsts && pg_run(firsts, pg_all_reduce(&numbers[i], 1, PG_F32, PG_SUM), err) != 0)
            return -1;
        if (pg_run(node, pg_broadcast(&numbers[i], 1, PG_F32, 0), err) != 0) return -1;
    }
    return 0;
}
