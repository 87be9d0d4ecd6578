/* flight_analysis.h: what the flight records of all ranks say together
 * (ddp/group/flight_recorder.h).
 *
 * The records of a group's ranks are laid side by side by sequence number. The first collective
 * that is not the same and complete on all of them is where the trouble began, and what each rank
 * did there says who departed: it runs another call, it never started this one, it came when the
 * others had given up, or it started and did not complete it.
 */
#ifndef DDP_GROUP_FLIGHT_ANALYSIS_H
#define DDP_GROUP_FLIGHT_ANALYSIS_H

#include <stdbool.h>
#include <stdio.h>

#include "common/base/error.h"

// Reads FOLDER/flight_*.json and writes one line per finding to `out`; *departed tells whether any
// group has a rank that departed. 0, or -1 with err filled: there are no records, or broken ones.
int flight_analyse(const char *folder, FILE *out, bool *departed, Error *err);

#endif
