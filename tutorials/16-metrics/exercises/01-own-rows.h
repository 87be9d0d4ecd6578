/* 01-own-rows.h: a rank's rows of the test set.
 *
 * Exactly one rank evaluates each row, also if their number is not a multiple of the number of
 * ranks. The ranks may have different numbers of rows: an evaluation has no all-reduce in each
 * step. But no rank should wait for long, so these numbers differ by one at most; the first ranks
 * have the additional rows.
 *
 * 10 rows on 4 ranks: [0, 3), [3, 6), [6, 8), [8, 10).
 */
#ifndef TUTORIALS_OWN_ROWS_H
#define TUTORIALS_OWN_ROWS_H

#include <stddef.h>

// Sets [*begin, *end), which is empty (begin == end) for a rank without rows.
void own_rows(size_t rows, size_t world, size_t rank, size_t *begin, size_t *end);

#endif
