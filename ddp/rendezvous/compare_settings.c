/* compare_settings.c: compares the settings of two ranks (ddp/rendezvous/rendezvous_internal.h). */
#include <string.h>

#include "ddp/rendezvous/rendezvous_internal.h"

static int length_of(const char *line) {
    return (int)strcspn(line, "\n");
}

int compare_settings(const char *mine, int my_rank, const char *theirs, int rank, Error *err) {
    while (length_of(mine) == length_of(theirs) &&
           strncmp(mine, theirs, (size_t)length_of(mine)) == 0) {
        if (!mine[length_of(mine)] || !theirs[length_of(theirs)]) return 0; // the last of both
        mine += length_of(mine) + 1;
        theirs += length_of(theirs) + 1;
    }
    const int name = (int)strcspn(mine, " \n");
    if (name == 0 || (int)strcspn(theirs, " \n") != name ||
        strncmp(mine, theirs, (size_t)name) != 0)
        return error_set(err, STATUS_USAGE,
                         "ranks %d and %d have different options, as different programs do: "
                         "'%.*s' and '%.*s' -- start the same program on all ranks",
                         my_rank, rank, length_of(mine), mine, length_of(theirs), theirs);
    const char *value = mine + name, *other = theirs + name; // each begins with a space
    return error_set(err, STATUS_USAGE,
                     "%.*s is%.*s at rank %d and%.*s at rank %d -- start all ranks with the same "
                     "options",
                     name, mine, length_of(value), value, my_rank, length_of(other), other, rank);
}
