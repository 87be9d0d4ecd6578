/* 01-read-place.h: which rank am I?
 *
 * A launcher passes a process three environment variables, as text: RANK (from 0), WORLD_SIZE (the
 * number of ranks) and LOCAL_RANK (the rank's number on this machine, from 0). Read them, and
 * assume no default: a process that takes itself for rank 0 because RANK is missing overwrites the
 * files of the real rank 0.
 */
#ifndef TUTORIALS_READ_PLACE_H
#define TUTORIALS_READ_PLACE_H

typedef struct Place {
    int rank, world_size, local_rank;
} Place;

// Returns the text of a variable, or NULL if it is not set; like getenv.
typedef const char *Lookup(const char *name);

// Fills *place and returns NULL if all three variables are set to valid decimal integers:
// world_size at least 1 and not too large for an int, rank and local_rank from 0 to
// world_size - 1. Otherwise leaves *place unchanged and returns the name of the first missing or
// invalid variable, in the order "WORLD_SIZE", "RANK", "LOCAL_RANK".
const char *read_place(Place *place, Lookup *lookup);

#endif
