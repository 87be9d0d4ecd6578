/* 02-confusion-matrix.c: counts may be added. The task is in 02-confusion-matrix.h. */
#include "tutorials/16-metrics/exercises/02-confusion-matrix.h"

// SOLUTION BEGIN
int confusion_matrix(ProcessGroup *group, const AnsweredRows *own, double *counts, Error *err) {
    size_t classes = own->classes;
    for (size_t i = 0; i < classes * classes; i++) counts[i] = 0;
    for (size_t row = 0; row < own->rows; row++)
        counts[(size_t)own->truths[row] * classes + (size_t)own->answers[row]]++;
    return pg_run(group, pg_all_reduce(counts, classes * classes, PG_F64, PG_SUM), err);
}
// SOLUTION END
