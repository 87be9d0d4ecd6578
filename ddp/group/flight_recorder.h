/* flight_recorder.h: the last collectives of one rank of a group, kept for the day when they hang.
 *
 * Every group records every collective, always: a ring of FLIGHT_RECORDS records, taken once when
 * the group is made. A record costs a few stores; it allocates nothing and reads no clock (the
 * caller has just read it). It is written as JSON when the group breaks, or when somebody asks; the
 * program flight_report reads what all ranks wrote and says which one departed first, and where.
 *
 * The fields and their names are those of PyTorch's flight recorder, less the stack frames.
 *
 * A recorder has no lock: its ProcessGroup calls it with the group's mutex held, and writes files
 * from a copy.
 */
#ifndef DDP_GROUP_FLIGHT_RECORDER_H
#define DDP_GROUP_FLIGHT_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/group/operation.h"

enum { FLIGHT_RECORDS = 2048, FLIGHT_PATH_MAX = 512 }; // more records than PG_MAX_WORKS

typedef struct FlightRecorder FlightRecorder;

// group_name: the same on all ranks of the group, part of the file's name. When the group breaks,
// the records are written into `folder` (NULL or "": nowhere) and, if `say`, the last of them are
// said on stderr. NULL with err filled: the path is too long.
FlightRecorder *flight_recorder_open(const char *group_name, const char *folder, bool say,
                                     Error *err);
// Opens one for a group within the parent's group, made by the parent's collective `sequence`: it
// is named after that, and written where the parent's is.
FlightRecorder *flight_recorder_open_inside(const FlightRecorder *parent, uint64_t sequence);
FlightRecorder *flight_recorder_copy(const FlightRecorder *recorder); // close it as well
void flight_recorder_close(FlightRecorder *recorder);

// The life of a record: scheduled -> started -> completed. A collective that failed stays started.
// sequence is the collective's; sends and receives have 0 and are counted here. Returns the
// record's id, 1, 2, ...; an id that the ring has overwritten is ignored.
uint64_t flight_schedule(FlightRecorder *recorder, int operation, const Collective *collective,
                         uint64_t sequence, uint64_t now_ns);
void flight_start(FlightRecorder *recorder, uint64_t id, uint64_t now_ns);
void flight_complete(FlightRecorder *recorder, uint64_t id, uint64_t now_ns);

typedef struct FlightAbout { // what a recorder does not know about its group
    const char *backend;
    int rank, size;
    const int *global; // [size], the ranks' numbers in the job; NULL: the same
    const char *error; // why the group broke; NULL: it is sound
} FlightAbout;

// Writes FOLDER/flight_GROUP_rank_R.json, R being the number in the job; makes the folder.
int flight_write(const FlightRecorder *recorder, const FlightAbout *about, const char *folder,
                 Error *err);
// Does what was configured for the moment when a group breaks. Complains on stderr if it cannot.
void flight_write_broken(const FlightRecorder *recorder, const FlightAbout *about);

#endif
