/* 01-error-feedback.c: the rest, next time. The task is in 01-error-feedback.h. */
#include "tutorials/24-powersgd/exercises/01-error-feedback.h"

#include <math.h>

// SOLUTION BEGIN
int average_in_units(ProcessGroup *group, float *gradient, float *error, int32_t *wire,
                     size_t count, float unit, Error *err) {
    for (size_t i = 0; i < count; i++) {
        float wanted = gradient[i] + error[i];
        wire[i] = (int32_t)nearbyintf(wanted / unit);
        error[i] = wanted - unit * (float)wire[i];
    }
    if (pg_run(group, pg_all_reduce(wire, count, PG_I32, PG_SUM), err) != 0) return -1;
    for (size_t i = 0; i < count; i++) gradient[i] = unit * (float)wire[i] / (float)pg_size(group);
    return 0;
}
// SOLUTION END
