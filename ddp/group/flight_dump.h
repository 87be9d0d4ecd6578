/* flight_dump.h: reads the flight records of a job's ranks (ddp/group/flight_recorder.h).
 *
 * Files are untrusted input: every number is checked against the range that a recorder can write,
 * and a file that violates a rule is rejected with one line that names the file and the rule. Time
 * and memory are bounded by the file's size.
 */
#ifndef DDP_GROUP_FLIGHT_DUMP_H
#define DDP_GROUP_FLIGHT_DUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct FlightEntry { // a collective of one rank
    uint64_t sequence;       // 1 or more
    char *call;              // "all_reduce(F32, 1000, sum)"
    bool started, completed;
    uint64_t started_ns; // 0: not yet
} FlightEntry;

typedef struct FlightDump { // the record of one rank of one group
    char *group, *error;    // error: NULL if the group was sound
    int rank;               // its number in the job
    int *ranks;             // [size], the group's, by their numbers in the job
    size_t size, place;     // ranks[place] is this one
    uint64_t dumped_ns;
    FlightEntry *entries; // [count], their sequences ascend
    size_t count;
} FlightDump;

typedef struct FlightDumps {
    FlightDump *all;
    size_t count;
} FlightDumps;

// Reads FOLDER/flight_*.json. 0, or -1 with err filled (free it in either case).
int flight_dumps_read(FlightDumps *dumps, const char *folder, Error *err);
void flight_dumps_free(FlightDumps *dumps);

#endif
