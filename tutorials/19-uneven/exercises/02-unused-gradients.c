/* 02-unused-gradients.c: users first, then means. The task is in 02-unused-gradients.h. */
#include "tutorials/19-uneven/exercises/02-unused-gradients.h"

#include <stdlib.h>
#include <string.h>

// SOLUTION BEGIN
static int average_one(ProcessGroup *group, Tensor *parameter, Error *err) {
    if (!parameter->has_grad) memset(parameter->grad, 0, tensor_bytes(parameter));
    parameter->has_grad = true;
    Collective mean = pg_all_reduce(parameter->grad, tensor_count(parameter), PG_F32, PG_AVG);
    return pg_run(group, mean, err);
}

int average_used(ProcessGroup *group, Tensor *const *parameters, size_t count, Error *err) {
    int32_t *users = calloc(count, sizeof *users);
    for (size_t k = 0; k < count; k++) users[k] = parameters[k]->has_grad;
    int status = pg_run(group, pg_all_reduce(users, count, PG_I32, PG_SUM), err);
    for (size_t k = 0; status == 0 && k < count; k++)
        if (users[k] > 0) status = average_one(group, parameters[k], err);
    free(users);
    return status;
}
// SOLUTION END
