/* 03-undo-padding.h: the answers to all rows, once each and in their order.
 *
 * A network's answers were gathered from all ranks. The rows were divided by the training's sampler
 * (PyTorch's DistributedSampler without shuffling): rank r had the rows r, r + W, r + 2W, ..., and
 * where the rows ran out, the first rows were repeated, so that every rank has the same number.
 * With 5 rows on 2 ranks:
 *
 *     rank 0   rows 0 2 4          gathered   a0 a2 a4 | a1 a3 a0
 *     rank 1   rows 1 3 0          wanted     a0 a1 a2 a3 a4
 *
 * Put the answers into the order of the rows, and leave out the repeated ones.
 */
#ifndef TUTORIALS_UNDO_PADDING_H
#define TUTORIALS_UNDO_PADDING_H

#include <stddef.h>

// gathered [world, per_rank]: rank 0's answers, then rank 1's, ... Fills answers [rows] exactly.
// world * per_rank >= rows >= 1.
void undo_padding(const int *gathered, size_t world, size_t per_rank, size_t rows, int *answers);

#endif
