/* 01-read-place.c: which rank am I? The task is in 01-read-place.h. */
#include "tutorials/07-processes/exercises/01-read-place.h"

#include <stdbool.h>
#include <stdlib.h>

// SOLUTION BEGIN
static bool read_number(const char *text, long limit, int *number) {
    if (!text || text[0] < '0' || text[0] > '9') return false;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value >= limit) return false;
    *number = (int)value;
    return true;
}

const char *read_place(Place *place, Lookup *lookup) {
    Place mine;
    if (!read_number(lookup("WORLD_SIZE"), 1L << 31, &mine.world_size) || mine.world_size < 1)
        return "WORLD_SIZE";
    if (!read_number(lookup("RANK"), mine.world_size, &mine.rank)) return "RANK";
    if (!read_number(lookup("LOCAL_RANK"), mine.world_size, &mine.local_rank)) return "LOCAL_RANK";
    *place = mine;
    return NULL;
}
// SOLUTION END
