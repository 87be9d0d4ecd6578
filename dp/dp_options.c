/* dp_options.c: see dp_options.h. */
#include "dp/dp_options.h"

#include "common/base/format.h"
#include "dp/own/own_wrapper.h"

DpOptions dp_options_default(void) {
    return (DpOptions){.devices = 0};
}

void dp_options(Options *options, DpOptions *dp) {
    options_add_title(options, "DataParallel");
    options_add_int(options, "devices", &dp->devices, 0, DP_MAX_DEVICES,
                    "use the devices 0 to N-1 (0: all GPUs, or 2 CPU devices)");
    options_add_string(options, "device-ids", &dp->device_ids, "N,N",
                       "use these instead; the first holds the model; a GPU may come twice "
                       "(0,0: two replicas on one card, to try the algorithm out)");
    options_add_enum(options, "bind", &dp->bind, "none|cores",
                     "cores: each device's thread on its own share of the cores");
    options_add_string(options, "wrapper", &dp->wrapper, "FILE",
                       "train with a wrapper of your own, C source or a shared object: "
                       "dp/own/own_dp.h");
}

int dp_options_check(DpOptions *dp, const Options *options, Error *err) {
    const OptionUse use = {"devices", !dp->device_ids, "--device-ids lists the devices"};
    if (options_check_used(options, &use, 1, err) != 0) return -1;
    return own_dp_load(dp, options, err);
}

int dp_options_ids(int devices, const char *list, int *ids, Error *err) {
    CHECK(devices <= DP_MAX_DEVICES, "--devices %d", devices);
    for (int i = 0; i < devices; i++) ids[i] = i;
    if (!list) return devices;
    int count = 0;
    for (const char *at = list; count < DP_MAX_DEVICES;) {
        uint64_t id;
        if (!format_read_number(&at, 999, &id) || !format_read_comma(&at)) break;
        ids[count++] = (int)id;
        if (*at == '\0') return count;
    }
    return error_set(err, STATUS_USAGE, "--device-ids %s: expected up to %d numbers, like 0,1",
                     format_quote(list).text, DP_MAX_DEVICES);
}
