/* 02-average-in-buckets.c: few messages. The task is in 02-average-in-buckets.h. */
#include "tutorials/12-buckets/exercises/02-average-in-buckets.h"

#include <stdlib.h>
#include <string.h>

// SOLUTION BEGIN
static bool stands_behind(Tensor *const *parameters, size_t count, size_t k) {
    for (size_t i = k + 1; i < count; i++)
        if (parameters[i] == parameters[k]) return true;
    return false;
}

// Copies the gradients of members [from, to) of `list` into memory, and the means back.
static int reduce_bucket(ProcessGroup *group, Tensor *const *list, size_t from, size_t to,
                         float *memory, Error *err) {
    size_t floats = 0;
    for (size_t m = from; m < to; m++) {
        memcpy(memory + floats, list[m]->grad, tensor_bytes(list[m]));
        floats += tensor_count(list[m]);
    }
    if (pg_run(group, pg_all_reduce(memory, floats, PG_F32, PG_AVG), err) != 0) return -1;
    floats = 0;
    for (size_t m = from; m < to; m++) {
        memcpy(list[m]->grad, memory + floats, tensor_bytes(list[m]));
        floats += tensor_count(list[m]);
    }
    return 0;
}

int average_in_buckets(ProcessGroup *group, Tensor *const *parameters, size_t count, size_t cap,
                       float *memory, Error *err) {
    Tensor **list = malloc(count * sizeof *list); // parameters with a gradient, in reverse order
    size_t members = 0, first = 0, held = 0;      // first: of the bucket that is open
    int status = 0;
    if (!list) abort();
    for (size_t k = count; k-- > 0 && status == 0;) {
        if (!parameters[k]->requires_grad || stands_behind(parameters, count, k)) continue;
        list[members++] = parameters[k];
        held += tensor_bytes(parameters[k]);
        if (held < cap) continue;
        status = reduce_bucket(group, list, first, members, memory, err);
        first = members;
        held = 0;
    }
    if (status == 0 && first < members)
        status = reduce_bucket(group, list, first, members, memory, err);
    free(list);
    return status;
}
// SOLUTION END
