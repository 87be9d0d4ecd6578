/* 02-all-reduce.c: the sum on every rank. The task is in 02-all-reduce.h. */
#include "tutorials/08-collectives/exercises/02-all-reduce.h"

#include <string.h>

// SOLUTION BEGIN
int all_reduce_by_hand(ProcessGroup *group, float *data, float *scratch, size_t count, Error *err) {
    if (pg_rank(group) > 0) {
        if (pg_run(group, pg_send(data, count, PG_F32, 0), err) != 0) return -1;
        return pg_run(group, pg_recv(data, count, PG_F32, 0), err);
    }
    for (int from = 1; from < pg_size(group); from++) {
        if (pg_run(group, pg_recv(scratch, count, PG_F32, from), err) != 0) return -1;
        for (size_t i = 0; i < count; i++) data[i] += scratch[i];
    }
    for (int to = 1; to < pg_size(group); to++)
        if (pg_run(group, pg_send(data, count, PG_F32, to), err) != 0) return -1;
    return 0;
}
// SOLUTION END
