/* 02-column-and-row.h: a matrix of gradients is sent as a column and a row: PowerSGD of rank 1.
 *
 * Every rank has a gradient g [n, m]. It is replaced by a product, on all ranks the same, which
 * approximates the mean of the ranks' gradients, by one round of power iteration:
 *
 *     column [n] = g times row: column[i] is the sum over j of g[i, j] * row[j]
 *     column     = its mean over the ranks (an all-reduce), then divided by its length, the root
 *                  of the sum of its squares
 *     row [m]    = column times g: row[j] is the sum over i of column[i] * g[i, j]
 *     row        = its mean over the ranks (a second all-reduce)
 *     g[i, j]    = column[i] * row[j]
 *
 * The next call begins with the new row. If the mean column is all zeros, so is the product, and
 * row stays as it is: from a row of zeros, every later product would be 0.
 */
#ifndef TUTORIALS_COLUMN_AND_ROW_H
#define TUTORIALS_COLUMN_AND_ROW_H

#include "ddp/group/process_group.h"

// g [n, m], row by row: number (i, j) is g[i * m + j]; this rank's gradient, then the product.
// column [n] is memory for the column. row [m]: the row of the last call, then the new one; the
// same on all ranks. Sends n + m floats. Returns 0, or -1 with err filled.
int send_as_product(ProcessGroup *group, float *g, size_t n, size_t m, float *column, float *row,
                    Error *err);

#endif
