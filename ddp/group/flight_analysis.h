/* flight_analysis.h: analyses the flight records of all ranks together
 * (ddp/group/flight_recorder.h).
 *
 * The records of a group's ranks are aligned by sequence number. The failure began at the first
 * collective that is not the same and complete on all ranks. A rank departed there if it ran
 * another call, never started this one, started it after the others had timed out, or started it
 * and did not complete it.
 */
#ifndef DDP_GROUP_FLIGHT_ANALYSIS_H
#define DDP_GROUP_FLIGHT_ANALYSIS_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/error.h"

// Reads FOLDER/flight_*.json and writes one line per finding to `out`; sets *departed if any group
// has a rank that departed. 0, or -1 with err filled: there are no records, or broken ones.
int flight_analyse(const char *folder, FILE *out, bool *departed, Error *err);

#endif
