/* compare_settings.h: compares the settings of two ranks (Rendezvous.alike). */
#ifndef DDP_RENDEZVOUS_COMPARE_SETTINGS_H
#define DDP_RENDEZVOUS_COMPARE_SETTINGS_H

#include "common/base/error.h"

// Compares the lines of two ranks, "NAME VALUE\n" each. Returns 0, or -1 with an error that names
// the first line that differs, both values and both ranks.
int compare_settings(const char *mine, int my_rank, const char *theirs, int rank, Error *err);

#endif
