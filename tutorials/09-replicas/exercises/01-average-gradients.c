/* 01-average-gradients.c: one mean for each gradient. The task is in 01-average-gradients.h. */
#include "tutorials/09-replicas/exercises/01-average-gradients.h"

#include <string.h>

// SOLUTION BEGIN
static bool stands_before(Tensor *const *parameters, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (parameters[i] == parameters[k]) return true;
    return false;
}

int average_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    for (size_t k = 0; k < count; k++) {
        Tensor *parameter = parameters[k];
        if (!parameter->requires_grad || stands_before(parameters, k)) continue;
        Collective mean = pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG);
        if (pg_run(group, mean, err) != 0) return -1;
    }
    return 0;
}
// SOLUTION END
