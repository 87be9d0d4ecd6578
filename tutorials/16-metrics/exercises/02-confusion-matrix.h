/* 02-confusion-matrix.h: the labels of all ranks' rows against the network's answers.
 *
 * counts[truth * classes + answer] is the number of rows of all ranks whose label is `truth` and
 * which the network classifies as `answer`. The diagonal has the right answers. Accuracy,
 * precision, recall and F1 can be computed from this table, and only from the table of all rows: a
 * mean of the ranks' F1 is not the F1.
 *
 * Count your own rows, then add up the tables of all ranks:
 *
 *     pg_run(group, pg_all_reduce(counts, classes * classes, PG_F64, PG_SUM), err)
 */
#ifndef TUTORIALS_CONFUSION_MATRIX_H
#define TUTORIALS_CONFUSION_MATRIX_H

#include <stdint.h>

#include "ddp/group/process_group.h"

typedef struct AnsweredRows {
    size_t rows;            // of this rank; may be 0
    const int64_t *truths;  // [rows]
    const int64_t *answers; // [rows]
    size_t classes;
} AnsweredRows;

// Fills counts [classes, classes], undefined before, on every rank. Returns 0, or -1 with err
// filled.
int confusion_matrix(ProcessGroup *group, const AnsweredRows *own, double *counts, Error *err);

#endif
