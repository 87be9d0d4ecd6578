/* strategy_dp.c: the trainer's Strategy and Job of DataParallel. With one process, and loss and
 * optimizer on one device, the Strategy is strategy_single's with the wrapper as its module; the
 * Job has several devices to count and to close.
 */
#include "dp/strategy_dp.h"

#include <limits.h>

#include "common/base/format.h"
#include "common/base/memory.h"

// ---- the devices --------------------------------------------------------------------------------

static int devices_here(const TrainConfig *config) {
    int available = device_available(train_device_kind(config, 1, false));
    if (available == INT_MAX) return 2;
    if (available > DP_MAX_DEVICES) return DP_MAX_DEVICES;
    return available > 0 ? available : 1; // none: opening the first reports the error
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

// Logs once that the chunk rule leaves devices idle, in all batches or in the epoch's last.
static void note_idle_devices(const Sampler *sampler, size_t devices) {
    for (size_t i = 0; i < sampler->batch_count; i++) {
        size_t rows = sampler->global[i];
        size_t chunk = (rows + devices - 1) / devices, used = (rows + chunk - 1) / chunk;
        if (used == devices) continue;
        RunLog log = log_open(false);
        log_say(&log,
                "note: %s %zu row%s on %zu devices: %zu chunk%s of at most %zu, %zu device%s idle",
                i > 0 ? "the epoch's last batch," : "each batch,", rows, format_s(rows), devices,
                used, format_s(used), chunk, devices - used, format_s(devices - used));
        log_close(&log);
        return;
    }
}

// ---- the strategy and the job -------------------------------------------------------------------

static uint64_t moved_bytes(const Job *self) {
    uint64_t bytes = 0;
    for (int i = 0; i < self->all_count; i++) bytes += self->all[i]->copied_bytes;
    return bytes;
}

static void set_trace(Job *self, Trace *trace) {
    data_parallel_set_trace(self->strategy->module, trace);
}

static void close_dp(Job *self) {
    module_close(self->strategy->module); // closes the model, too
    sampler_close(self->strategy->sampler);
    for (int i = 0; i < self->all_count; i++) device_close(self->all[i]);
    free(self->all);
    free(self->strategy);
    free(self);
}

Strategy *strategy_dp(Module *wrapper, Device *device, Sampler *sampler) {
    Strategy *strategy = strategy_single(wrapper->children[0], device, sampler);
    strategy->module = strategy->evaluation_module = wrapper; // both on all devices, as in PyTorch
    return strategy;
}

Job *job_dp(Strategy *strategy, Device *const *devices, int device_count) {
    Job *job = job_single(strategy);
    job->name = "dp";
    job->backend = "threads";
    job->devices = device_count;
    job->all = memory_zalloc((size_t)device_count * sizeof *job->all);
    for (int i = 0; i < device_count; i++) job->all[i] = devices[i];
    job->all_count = device_count;
    job->moved_bytes = moved_bytes;
    job->set_trace = set_trace;
    job->close = close_dp;
    note_idle_devices(strategy->sampler, (size_t)device_count);
    return job;
}
