/* 01-own-rows.h: which rows of the test set does a rank look at?
 *
 * Every row is to be looked at by exactly one rank, also when their number is not a multiple of the
 * number of ranks. No rank has to have as many rows as the others: in evaluation there is no
 * all-reduce in each step. But no rank is to wait for long, so the ranks' numbers of rows differ by
 * one at most; the first ranks have the additional rows.
 *
 * 10 rows on 4 ranks: [0, 3), [3, 6), [6, 8), [8, 10).
 */
#ifndef TUTORIALS_OWN_ROWS_H
#define TUTORIALS_OWN_ROWS_H

#include <stddef.h>

// Sets [*begin, *end), which is empty (begin == end) for a rank without rows.
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end);

#endif
