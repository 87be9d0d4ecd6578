/* data_parallel.c: the wrapper: checks, then the four operations, one line each.
 *
 * The wrapper keeps only structure: the replicas' trees and the list of the module's tensors. The
 * tensors of a forward are in its ReplicaShards (shards.h), allocated in the arenas of the tape and
 * its forks, and released by the next step's reset. Each of the four operations is a file.
 */
#include "dp/data_parallel.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/trace.h"
#include "common/nn/attention_choice.h"
#include "common/nn/tape.h"
#include "dp/operations.h"

typedef struct DataParallel { // the wrapper's state
    Module *module;           // the wrapper's child
    int device_count;
    Replica *replicas; // [device_count]; one device alone needs no replica's module
    Tensor **tensors;  // [tensor_count] the module's parameters and buffers
    size_t tensor_count;
    int dim;
    Device *output_device; // NULL: the first one
} DataParallel;

enum { TRACE_SPANS = 1 << 16 }; // for each device; a step takes two

// Returns 0 if all tensors are on the first device, else -1 with PyTorch's error. Called in every
// forward, because a program may move tensors after it wrapped the module.
static int check_devices(const DataParallel *dp, Error *err) {
    const Device *expected = dp->replicas[0].device;
    for (size_t k = 0; k < dp->tensor_count; k++)
        if (dp->tensors[k]->device != expected)
            return error_set(err, STATUS_FAILED,
                             "module must have its parameters and buffers on device %s "
                             "(device_ids[0]) but found one of them on device: %s",
                             expected->name, dp->tensors[k]->device->name);
    return 0;
}

static Tensor *data_parallel_forward(Module *self, Tape *tape, Tensor *x) {
    DataParallel *dp = self->state;
    if (check_devices(dp, &tape->error) != 0) return NULL;
    if (dp->device_count == 1)
        return module_forward(dp->module, tape, scatter_to_one(tape, x, dp->dim));

    CHECK(tape->device == dp->replicas[0].device, "the tape is on %s, the first device is %s",
          tape->device->name, dp->replicas[0].device->name);
    ReplicaShards *shards =
        shards_create(tape, dp->replicas, dp->device_count, dp->tensors, dp->tensor_count);
    shards->dim = dp->dim;
    if (dp->output_device) shards->output = tape_fork(tape, dp->output_device);
    Tensor *inputs = dp_scatter(tape, x, shards);
    Tensor *replicas = dp_replicate(tape, shards);
    Tensor *outputs = dp_parallel_apply(tape, inputs, replicas, shards);
    return dp_gather(tape, outputs, shards);
}

static void destroy_wrapper(Module *self) {
    DataParallel *dp = self->state;
    for (int i = 0; i < dp->device_count; i++) replica_close(&dp->replicas[i]);
    free(dp->replicas);
    free(dp->tensors);
    free(dp);
}

// Returns 0, or -1 with err filled for a repeated device. CPU devices are unlimited, so one name
// twice is a mistake. Two Devices on one GPU are allowed: the algorithm runs on a single card.
static int check_distinct(Device *const *devices, int device_count, Error *err) {
    if (device_count < 1) return error_set(err, STATUS_USAGE, "DataParallel needs a device");
    for (int i = 0; i < device_count; i++) {
        CHECK(devices[i], "data_parallel: devices[%d] is NULL", i);
        for (int j = 0; j < i; j++)
            if (devices[i] == devices[j] ||
                (device_is_cpu(devices[i]) && strcmp(devices[i]->name, devices[j]->name) == 0))
                return error_set(err, STATUS_USAGE, "device %s is given twice", devices[i]->name);
    }
    return 0;
}

// Returns 0, or -1 with err filled if a part of the module has state besides tensors (an inner
// DataParallel's replicas, a process group): replicate copies tensors only. PyTorch copies an inner
// DataParallel regardless, whose forward then fails on tensors of the wrong device.
static int check_replicable(const Module *module, int device_count, Error *err) {
    if (module->state && device_count > 1)
        return error_set(err, STATUS_USAGE,
                         "a %s%s%s cannot be inside a DataParallel over %d devices: it has state "
                         "that is not copied to each of them",
                         module->type, module->name[0] ? " named " : "", module->name,
                         device_count);
    for (int i = 0; i < module->child_count; i++)
        if (check_replicable(module->children[i], device_count, err) != 0) return -1;
    return 0;
}

Module *data_parallel(Module *module, Device *const *devices, int device_count, Error *err) {
    if (check_distinct(devices, device_count, err) != 0) return NULL;
    if (check_replicable(module, device_count, err) != 0) return NULL;
    DataParallel *dp = memory_zalloc(sizeof *dp);
    dp->module = module;
    dp->device_count = device_count;
    dp->replicas = memory_zalloc((size_t)device_count * sizeof *dp->replicas);
    dp->tensors = replicate_tensors(module, &dp->tensor_count);
    for (int i = 0; i < device_count; i++) {
        dp->replicas[i].device = devices[i];
        if (device_count > 1) dp->replicas[i] = replica_create(module, devices[i]);
    }
    Module *wrapper = module_create("DataParallel", data_parallel_forward);
    wrapper->state = dp;
    wrapper->destroy = destroy_wrapper;
    if (check_devices(dp, err) != 0) {
        module_close(wrapper); // without the module, which stays the caller's
        return NULL;
    }
    attention_choose(module, devices, device_count);
    module_add(wrapper, "", module);
    return wrapper;
}

static DataParallel *state_of(Module *wrapper) {
    CHECK(wrapper->forward == data_parallel_forward, "a %s is no DataParallel", wrapper->type);
    return wrapper->state;
}

void data_parallel_set_dim(Module *wrapper, int dim) {
    CHECK(dim >= 0 && dim < TENSOR_MAX_DIMS, "dimension %d", dim);
    state_of(wrapper)->dim = dim;
}

void data_parallel_set_output_device(Module *wrapper, Device *device) {
    DataParallel *dp = state_of(wrapper);
    dp->output_device = device == dp->replicas[0].device ? NULL : device;
}

void data_parallel_set_trace(Module *wrapper, Trace *trace) {
    DataParallel *dp = state_of(wrapper);
    for (int i = 0; i < dp->device_count; i++) {
        Replica *replica = &dp->replicas[i];
        replica->trace = trace;
        replica->track = trace_track(trace, replica->device->name, TRACE_SPANS);
    }
}
