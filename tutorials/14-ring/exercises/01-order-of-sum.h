/* 01-order-of-sum.h: the order in which a ring adds the ranks.
 *
 * A buffer of `count` numbers is cut into as many chunks as there are ranks, each of
 * count / world numbers, rounded up; the last ones are shorter, or empty. Chunk c starts at rank c,
 * is sent to rank c + 1, which adds its own numbers, and so on around the ring. So a number's
 * position in the buffer determines the order in which the ranks are added:
 *
 *     6 numbers, 3 ranks:   places 0 and 1 are chunk 0:  0 1 2
 *                           places 2 and 3 are chunk 1:  1 2 0
 *                           places 4 and 5 are chunk 2:  2 0 1
 */
#ifndef TUTORIALS_ORDER_OF_SUM_H
#define TUTORIALS_ORDER_OF_SUM_H

#include <stddef.h>

// Writes the ranks, in the order in which they are added at position `place`, into order [world].
void order_of_sum(size_t place, size_t count, int world, int *order);

#endif
