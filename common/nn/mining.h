/* mining.h: hard-example mining (OHEM): the pixels that contribute to the loss of a batch. */
#ifndef COMMON_NN_MINING_H
#define COMMON_NN_MINING_H

#include <stddef.h>

typedef struct Mining {
    double threshold; // those whose loss is above it; -INFINITY: all
    size_t least;     // but at least so many, the hardest (if there are so many)
} Mining;

#endif
