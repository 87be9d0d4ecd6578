/* strategy_dp.c: DataParallel for the trainer. There is one process, its loss and its optimizer are
 * on one device, so this is strategy_single with another module to run, and more devices to close.
 */
#include "common/base/log.h"
#include "common/base/memory.h"
#include "dp/data_parallel.h"

// Says once if the chunk rule leaves devices without work, in all batches or in the epoch's last.
static void note_idle_devices(const Strategy *self, const Sampler *sampler) {
    for (size_t i = 0; i < sampler->batch_count; i++) {
        size_t rows = sampler->global[i], devices = (size_t)self->devices;
        size_t chunk = (rows + devices - 1) / devices, used = (rows + chunk - 1) / chunk;
        if (used == devices) continue;
        Log log = log_open(false);
        log_say(&log, "note: %zu rows on %zu devices are %zu chunks of at most %zu: %zu stay idle",
                rows, devices, used, chunk, devices - used);
        log_close(&log);
        return;
    }
}

static Sampler *whole(Strategy *self, size_t samples, size_t global_batch, bool shuffle,
                      uint64_t seed, Error *err) {
    Sampler *sampler = sampler_whole(samples, global_batch, shuffle, false, seed, err);
    if (sampler) note_idle_devices(self, sampler);
    return sampler;
}

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
    for (int i = 0; i < self->all_count; i++) device_close(self->all[i]);
    free(self->all);
    free(self);
}

Strategy *strategy_dp(Module *model, Module *wrapper, Device *const *devices, int device_count) {
    Strategy *strategy = strategy_single(model, devices[0]);
    strategy->name = "dp";
    strategy->backend = "threads";
    strategy->devices = device_count;
    strategy->all = memory_zalloc((size_t)device_count * sizeof *strategy->all);
    for (int i = 0; i < device_count; i++) strategy->all[i] = devices[i];
    strategy->all_count = device_count;
    strategy->module = wrapper;
    strategy->sampler = whole;
    strategy->moved_bytes = moved_bytes;
    strategy->set_trace = set_trace;
    strategy->close = close_dp;
    return strategy;
}

int strategy_dp_device_ids(int devices, const char *list, int *ids, Error *err) {
    CHECK(devices <= DP_MAX_DEVICES, "--devices %d", devices);
    for (int i = 0; i < devices; i++) ids[i] = i;
    if (!list) return devices;
    int count = 0;
    for (const char *at = list; count < DP_MAX_DEVICES; at++) {
        char *end;
        long id = strtol(at, &end, 10);
        if (*at < '0' || *at > '9' || id > 999 || (*end != ',' && *end != '\0')) break;
        ids[count++] = (int)id;
        if (*end == '\0') return count;
        at = end;
    }
    return error_set(err, STATUS_USAGE, "--device-ids %s: expected up to %d numbers, like 0,1",
                     list, DP_MAX_DEVICES);
}
