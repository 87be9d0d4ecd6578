/* 02-clip-gradients.c: average, measure, shorten. The task is in 02-clip-gradients.h. */
#include "tutorials/18-accumulate-and-clip/exercises/02-clip-gradients.h"

#include <math.h>

// SOLUTION BEGIN
static bool counts(Tensor *const *parameters, size_t k) {
    for (size_t i = 0; i < k; i++)
        if (parameters[i] == parameters[k]) return false;
    return parameters[k]->requires_grad;
}

int clip_gradients(ProcessGroup *group, Tensor *const *parameters, size_t count, double max_norm,
                   double *norm, Error *err) {
    double squares = 0;
    for (size_t k = 0; k < count; k++) {
        float *grad = parameters[k]->grad;
        size_t n = tensor_count(parameters[k]);
        if (!counts(parameters, k)) continue;
        if (pg_run(group, pg_all_reduce(grad, n, PG_F32, PG_AVG), err) != 0) return -1;
        for (size_t i = 0; i < n; i++) squares += (double)grad[i] * (double)grad[i];
    }
    *norm = sqrt(squares);
    float scale = *norm > max_norm ? (float)(max_norm / *norm) : 1.0f;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; counts(parameters, k) && i < tensor_count(parameters[k]); i++)
            parameters[k]->grad[i] *= scale;
    return 0;
}
// SOLUTION END
