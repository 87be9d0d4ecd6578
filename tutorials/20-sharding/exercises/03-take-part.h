/* 03-take-part.h: resuming with another number of ranks.
 *
 * A checkpoint holds the whole state, which rank 0 has gathered part by part. The run that resumes
 * from it may have another number of ranks, and then other parts of the same array. The rule is
 * that of this step's program: of `count` numbers each of W ranks has (count + W - 1) / W, rounded
 * down, one part after another, and the last parts may have fewer or none:
 *
 *     10 numbers, 3 ranks:   0 1 2 3 | 4 5 6 7 | 8 9
 *     10 numbers, 4 ranks:   0 1 2 | 3 4 5 | 6 7 8 | 9
 */
#ifndef TUTORIALS_TAKE_PART_H
#define TUTORIALS_TAKE_PART_H

#include <stddef.h>

typedef struct SavedState {
    size_t count;              // of all parts together
    size_t world;              // ranks of the run that saved
    const float *const *parts; // [world], each with that rank's part
} SavedState;

// Fills mine with the new part of rank `rank` of `world`. Returns its number of elements.
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine);

#endif
