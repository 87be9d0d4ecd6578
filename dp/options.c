/* options.c: see options.h. */
#include "dp/options.h"

#include <limits.h>

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
}

static int devices_here(const TrainConfig *config) {
    int available = device_available(train_device_kind(config, 1, false));
    if (available == INT_MAX) return 2;
    if (available > DP_MAX_DEVICES) return DP_MAX_DEVICES;
    return available > 0 ? available : 1; // none: opening the first says why
}

int dp_options_check(const DpOptions *dp, const Options *options, Error *err) {
    const OptionUse use = {"devices", !dp->device_ids, "--device-ids lists the devices"};
    return options_check_used(options, &use, 1, err);
}

int dp_options_open(const DpOptions *dp, const TrainConfig *config, Device *devices[DP_MAX_DEVICES],
                    Error *err) {
    int ids[DP_MAX_DEVICES], wanted = dp->devices > 0 ? dp->devices : devices_here(config);
    int count = strategy_dp_device_ids(wanted, dp->device_ids, ids, err), last = 0;
    for (int i = 0; i < count; i++)
        if (ids[i] > last) last = ids[i];
    TrainConfig alike = *config; // all devices are of one kind
    alike.device = train_device_kind(config, last + 1, true);
    for (int i = 0; i < count; i++) {
        devices[i] = train_open_device(&alike, ids[i], err);
        if (devices[i]) continue;
        while (i-- > 0) device_close(devices[i]);
        return -1;
    }
    return count;
}
