/* 01-part-of.h: which elements a rank is in charge of.
 *
 * `count` floats lie one after another and are divided among W ranks. Two ranks must not write into
 * one cache line (16 floats) at the same time: each such write would take the line away from the
 * other core. So only whole lines are dealt out, and every rank gets as many of them: the lines
 * divided by W, rounded down. What is left over goes to the last rank, also the last, incomplete
 * line:
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
