/* options.c: see options.h. */
#include "dp/options.h"

DpOptions dp_options_default(void) {
    return (DpOptions){.devices = 2};
}

void dp_options(Options *options, DpOptions *dp) {
    options_add(options, (Option){.type = OPTION_TITLE, .help = "DataParallel"});
    options_add(options, (Option){"devices", OPTION_INT, &dp->devices, "N", 1, DP_MAX_DEVICES,
                                  "use the devices 0 to N-1"});
    options_add(options, (Option){"device-ids", OPTION_STRING, &dp->device_ids, "N,N", 0, 0,
                                  "use these instead; the first holds the model"});
}

int dp_options_check(const DpOptions *dp, const Options *options, Error *err) {
    const OptionUse use = {"devices", !dp->device_ids, "--device-ids lists the devices"};
    return options_check_used(options, &use, 1, err);
}

int dp_options_open(const DpOptions *dp, const TrainConfig *config, Device *devices[DP_MAX_DEVICES],
                    Error *err) {
    int ids[DP_MAX_DEVICES];
    int count = strategy_dp_device_ids(dp->devices, dp->device_ids, ids, err);
    for (int i = 0; i < count; i++) {
        devices[i] = train_open_device(config, ids[i], err);
        if (!devices[i]) return -1;
    }
    return count;
}
