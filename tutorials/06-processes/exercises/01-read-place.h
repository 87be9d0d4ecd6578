/* 01-read-place.h: which rank am I?
 *
 * A launcher tells a process by environment variables, which are texts: RANK (from 0), WORLD_SIZE
 * (how many ranks there are) and LOCAL_RANK (which of the ranks of this machine, from 0). Read
 * them, and do not guess: a process that takes itself for rank 0 because RANK is missing will write
 * over the files of the real rank 0.
 */
#ifndef TUTORIALS_READ_PLACE_H
#define TUTORIALS_READ_PLACE_H

typedef struct Place {
    int rank, world_size, local_rank;
} Place;

// Gives the text of a variable, or NULL if there is none; like getenv.
typedef const char *Lookup(const char *name);

// Fills *place and returns NULL if all three variables are there, are whole numbers in decimal, and
// make sense: world_size at least 1 and not too large for an int, rank and local_rank from 0 to
// world_size - 1. Otherwise *place stays as it was, and the result is the name of the variable that
// is missing or wrong: the first such one in the order "WORLD_SIZE", "RANK", "LOCAL_RANK".
const char *read_place(Place *place, Lookup *lookup);

#endif
