/* 03-take-part.c: the same array, cut anew. The task is in 03-take-part.h. */
#include "tutorials/20-sharding/exercises/03-take-part.h"

// SOLUTION BEGIN
size_t take_part(const SavedState *saved, size_t world, size_t rank, float *mine) {
    size_t before = (saved->count + saved->world - 1) / saved->world;
    size_t share = (saved->count + world - 1) / world, taken = 0;
    for (size_t i = rank * share; i < (rank + 1) * share && i < saved->count; i++)
        mine[taken++] = saved->parts[i / before][i % before];
    return taken;
}
// SOLUTION END
