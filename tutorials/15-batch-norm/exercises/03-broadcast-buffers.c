/* 03-broadcast-buffers.c: only if they have changed. The task is in 03-broadcast-buffers.h. */
#include "tutorials/15-batch-norm/exercises/03-broadcast-buffers.h"

// SOLUTION BEGIN
int before_forward(ProcessGroup *group, Tensor *const *buffers, size_t count, bool training,
                   bool *changed, Error *err) {
    for (size_t k = 0; *changed && k < count; k++) {
        size_t bytes = tensor_bytes(buffers[k]);
        if (pg_run(group, pg_broadcast(buffers[k]->data, bytes, PG_U8, 0), err) != 0) return -1;
    }
    *changed = training;
    return 0;
}
// SOLUTION END
