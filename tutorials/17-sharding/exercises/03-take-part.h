/* 03-take-part.h: going on with another number of ranks.
 *
 * A checkpoint holds the whole state: rank 0 has gathered it, part after part. The run that
 * resumes from it may have another number of ranks: then the parts begin elsewhere. Only the
 * whole array is the same. The rule here is that of this step's program: of `count` numbers each of
 * W ranks has (count + W - 1) / W, rounded down, one part after another, and the last parts may
 * have fewer or none:
 *
 *     10 numbers, 3 ranks:   0 1 2 3 | 4 5 6 7 | 8 9
 *     10 numbers, 4 ranks:   0 1 2 | 3 4 5 | 6 7 8 | 9
 */
#ifndef TUTORIALS_TAKE_PART_H
#define TUTORIALS_TAKE_PART_H

#include <stddef.h>

typedef struct SavedState {
    size_t count;              // of all parts together
    size_t world;              // ranks that saved
    const float *const *parts; // [world], each as many numbers as that rank had
} SavedState;

// mine receives what rank `rank` of `world` has from now on. Returns how many numbers those are.
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine);

#endif
