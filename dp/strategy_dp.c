/* strategy_dp.c: DataParallel for the trainer. There is one process, its loss and its optimizer are
 * on one device, so this is strategy_single with another module to run, and more devices to close.
 */
#include "dp/strategy_dp.h"

#include <limits.h>

#include "common/base/memory.h"

// ---- the devices --------------------------------------------------------------------------------

static int devices_here(const TrainConfig *config) {
    int available = device_available(train_device_kind(config, 1, false));
    if (available == INT_MAX) return 2;
    if (available > DP_MAX_DEVICES) return DP_MAX_DEVICES;
    return available > 0 ? available : 1; // if there is none, opening the first says why
}

int dp_open_devices(const TrainConfig *config, const DpOptions *dp, Device *devices[DP_MAX_DEVICES],
                    Error *err) {
    int ids[DP_MAX_DEVICES], wanted = dp->devices > 0 ? dp->devices : devices_here(config);
    int count = dp_options_ids(wanted, dp->device_ids, ids, err), last = 0;
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
    for (int i = 0; dp->bind == DP_BIND_CORES && i < count; i++)
        device_bind_cores(devices[i], i, count);
    return count;
}

// Says once if the chunk rule leaves devices without work, in all batches or in the epoch's last.
static void note_idle_devices(const Sampler *sampler, size_t devices) {
    for (size_t i = 0; i < sampler->batch_count; i++) {
        size_t rows = sampler->global[i];
        size_t chunk = (rows + devices - 1) / devices, used = (rows + chunk - 1) / chunk;
        if (used == devices) continue;
        Log log = log_open(false);
        log_say(&log, "note: %zu rows on %zu devices are %zu chunks of at most %zu: %zu stay idle",
                rows, devices, used, chunk, devices - used);
        log_close(&log);
        return;
    }
}

// ---- the strategy -------------------------------------------------------------------------------

static uint64_t moved_bytes(const Strategy *self) {
    uint64_t bytes = 0;
    for (int i = 0; i < self->all_count; i++) bytes += self->all[i]->copied_bytes;
    return bytes;
}

static void set_trace(Strategy *self, Trace *trace) {
    data_parallel_set_trace(self->module, trace);
}

static void close_dp(Strategy *self) {
    module_close(self->module); // and with it the model
    sampler_close(self->sampler);
    for (int i = 0; i < self->all_count; i++) device_close(self->all[i]);
    free(self->all);
    free(self);
}

Strategy *strategy_dp(Module *wrapper, Device *const *devices, int device_count, Sampler *sampler) {
    Strategy *strategy = strategy_single(wrapper->children[0], devices[0], sampler);
    strategy->name = "dp";
    strategy->backend = "threads";
    strategy->devices = device_count;
    strategy->all = memory_zalloc((size_t)device_count * sizeof *strategy->all);
    for (int i = 0; i < device_count; i++) strategy->all[i] = devices[i];
    strategy->all_count = device_count;
    strategy->module = strategy->evaluation_module = wrapper; // both on all devices, as in PyTorch
    strategy->moved_bytes = moved_bytes;
    strategy->set_trace = set_trace;
    strategy->close = close_dp;
    note_idle_devices(sampler, (size_t)device_count);
    return strategy;
}
