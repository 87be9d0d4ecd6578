/* flight_recorder.h: a ring of the last collectives of one rank of a group, for the analysis of
 * hangs.
 *
 * Every group records every collective: FLIGHT_RECORDS records, allocated when the group is opened.
 * A record costs a few stores; it allocates nothing and reads no clock (the caller passes the
 * time). The ring is written as JSON when the group breaks or on request; the program flight_report
 * reads the files of all ranks and reports which rank departed first, and where.
 *
 * Fields and names are those of PyTorch's flight recorder, without stack frames.
 *
 * Threads: a recorder has no lock. Its ProcessGroup calls it with the group's mutex held, and
 * writes files from a copy.
 */
#ifndef DDP_GROUP_FLIGHT_RECORDER_H
#define DDP_GROUP_FLIGHT_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "ddp/group/operation.h"

enum { FLIGHT_RECORDS = 2048, FLIGHT_PATH_MAX = 512 }; // more records than PG_MAX_WORKS

typedef struct FlightRecorder FlightRecorder;

// group_name: equal on all ranks, part of the file's name. When the group breaks, the records are
// written into `folder` (NULL or "": nowhere) and, if `say`, the last few are printed on stderr.
// NULL with err filled: the path is too long.
FlightRecorder *flight_recorder_open(const char *group_name, const char *folder, bool say,
                                     Error *err);
// Opens the recorder of a subgroup, created by the parent's collective `sequence`: named after it,
// with the parent's folder.
FlightRecorder *flight_recorder_open_inside(const FlightRecorder *parent, uint64_t sequence);
FlightRecorder *flight_recorder_copy(const FlightRecorder *recorder); // close it as well
void flight_recorder_close(FlightRecorder *recorder);

// States of a record: scheduled -> started -> completed; a collective that failed stays started.
// sequence: the collective's; sends and receives pass 0 and are counted here. Returns the record's
// id, from 1; an id that the ring has overwritten is ignored.
uint64_t flight_schedule(FlightRecorder *recorder, int operation, const Collective *collective,
                         uint64_t sequence, uint64_t now_ns);
void flight_start(FlightRecorder *recorder, uint64_t id, uint64_t now_ns);
void flight_complete(FlightRecorder *recorder, uint64_t id, uint64_t now_ns);

typedef struct FlightAbout { // about the group, for the file
    const char *backend;
    int rank, size;
    const int *global; // [size], the ranks in the job; NULL: identical
    const char *error; // why the group broke; NULL: it is sound
} FlightAbout;

// Writes FOLDER/flight_GROUP_rank_R.json, R being the number in the job; makes the folder.
int flight_write(const FlightRecorder *recorder, const FlightAbout *about, const char *folder,
                 Error *err);
// Writes and prints as configured for a broken group. Reports its own failure on stderr.
void flight_write_broken(const FlightRecorder *recorder, const FlightAbout *about);

#endif
