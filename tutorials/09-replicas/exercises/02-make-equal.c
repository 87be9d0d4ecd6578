/* 02-make-equal.c: rank 0's tensors for all. The task is in 02-make-equal.h. */
#include "tutorials/09-replicas/exercises/02-make-equal.h"

// SOLUTION BEGIN
int make_equal(ProcessGroup *group, Tensor *const *tensors, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Collective rank0s = pg_broadcast(tensors[k]->data, tensor_bytes(tensors[k]), PG_U8, 0);
        if (pg_run(group, rank0s, err) != 0) return -1;
    }
    return 0;
}
// SOLUTION END
