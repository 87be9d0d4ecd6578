/* 01-broadcast.c: from one to all. The task is in 01-broadcast.h. */
#include "tutorials/08-collectives/exercises/01-broadcast.h"

// SOLUTION BEGIN
int broadcast_by_hand(ProcessGroup *group, float *data, size_t count, int root, Error *err) {
    if (pg_rank(group) != root) return pg_run(group, pg_recv(data, count, PG_F32, root), err);
    for (int to = 0; to < pg_size(group); to++) {
        if (to == root) continue;
        if (pg_run(group, pg_send(data, count, PG_F32, to), err) != 0) return -1;
    }
    return 0;
}
// SOLUTION END
