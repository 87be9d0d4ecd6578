/* 02-all-reduce-by-nodes.c: three collectives. The task is in 02-all-reduce-by-nodes.h. */
#include "tutorials/27-machines/exercises/02-all-reduce-by-nodes.h"

// SOLUTION BEGIN
int all_reduce_by_nodes(ProcessGroup *node, ProcessGroup *firsts, float *numbers, size_t count,
                        Error *err) {
    if (pg_run(node, pg_reduce(numbers, count, PG_F32, PG_SUM, 0), err) != 0) return -1;
    if (firsts && pg_run(firsts, pg_all_reduce(numbers, count, PG_F32, PG_SUM), err) != 0)
        return -1;
    return pg_run(node, pg_broadcast(numbers, count, PG_F32, 0), err);
}
// SOLUTION END
