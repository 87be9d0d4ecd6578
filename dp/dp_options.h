/* dp_options.h: train_dp's own options, in addition to the trainers' common ones
 * (common/train/train_options.c).
 */
#ifndef DP_DP_OPTIONS_H
#define DP_DP_OPTIONS_H

#include "common/base/options.h"
#include "dp/data_parallel.h"

typedef struct DpOptions {
    int devices;                               // the devices 0 to N-1; 0: dp_open_devices decides
    const char *device_ids;                    // "0,2": these instead; NULL: not given
    enum { DP_BIND_NONE, DP_BIND_CORES } bind; // cores: each device's thread on its own share
    const char *wrapper;                       // a user's file in the place of data_parallel; NULL
    const struct OwnDp *own;                   // its table, set by dp_options_check
} DpOptions;

DpOptions dp_options_default(void);
void dp_options(Options *options, DpOptions *dp); // appends rows bound to dp's fields
// Rejects options without effect, and loads --wrapper's file. Returns 0, or -1 with err filled.
int dp_options_check(DpOptions *dp, const Options *options, Error *err);
// Sets ids[DP_MAX_DEVICES] to the devices of --device-ids ("0,2"), or of --devices N if list is
// NULL. Returns their number, or -1 with err filled.
int dp_options_ids(int devices, const char *list, int *ids, Error *err);

#endif
