/* 02-rank-zero-first.c: one prepares, all use. The task is in 02-rank-zero-first.h. */
#include "tutorials/07-processes/exercises/02-rank-zero-first.h"

// SOLUTION BEGIN
int rank_zero_first(ProcessGroup *group, Job *prepare, Job *use, void *context, Error *err) {
    if (pg_rank(group) == 0) prepare(context);
    if (pg_run(group, pg_barrier(), err) != 0) return -1;
    use(context);
    return 0;
}
// SOLUTION END
