/* 01-part-of.h: the elements that a rank owns.
 *
 * An array of `count` floats is divided among W ranks. Two ranks must not write into one cache line
 * (16 floats) at the same time: each such write would take the line away from the other core. So
 * only whole lines are divided, and every rank gets the same number of them: the lines divided by
 * W, rounded down. The last rank also gets the remaining lines and the last, incomplete one:
 *
 *     100 floats, 2 ranks:   [0, 48) [48, 100)             6 whole lines, 3 for each, and 4 floats
 *     100 floats, 4 ranks:   [0, 16) [16, 32) [32, 48) [48, 100)
 *      30 floats, 2 ranks:   [0, 0) [0, 30)                1 whole line is not enough for two
 */
#ifndef TUTORIALS_PART_OF_H
#define TUTORIALS_PART_OF_H

#include <stddef.h>

enum { LINE = 16 }; // floats of a cache line

// Sets [*begin, *end) to the elements of rank `rank` of `world`.
void part_of(size_t count, size_t world, size_t rank, size_t *begin, size_t *end);

#endif
