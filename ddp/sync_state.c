/* sync_state.c: broadcasts a list of tensors in few calls. */
#include "ddp/sync_state.h"

#include "common/base/memory.h"

// Returns the tensors as slices of 4-byte units for pack and unpack, which copy bits: every dtype
// is 4 or 8 bytes wide. NULL if the tensors are on several devices. The caller frees the array.
static Slice *make_slices(const NamedTensors *tensors) {
    Slice *slices = memory_zalloc(tensors->count * sizeof *slices);
    for (size_t i = 0; i < tensors->count; i++) {
        const Tensor *tensor = tensors->items[i].tensor;
        slices[i] = (Slice){tensor->data, tensor_bytes(tensor) / sizeof(float)};
        if (tensor->device == tensors->items[0].tensor->device) continue;
        free(slices);
        return NULL;
    }
    return slices;
}

SyncState sync_state_open(NamedTensors tensors, ProcessGroup *group, size_t limit) {
    SyncState sync = {.group = group, .tensors = tensors};
    size_t bytes = 0;
    for (size_t i = 0; i < tensors.count; i++) bytes += tensor_bytes(tensors.items[i].tensor);
    if (bytes == 0) return sync;
    sync.device = tensors.items[0].tensor->device;
    sync.staging_bytes = bytes < limit ? bytes : limit;
    sync.staging = device_alloc(sync.device, sync.staging_bytes);
    sync.slices = make_slices(&sync.tensors);
    return sync;
}

void sync_state_close(SyncState *sync) {
    if (sync->staging) device_free(sync->device, sync->staging, sync->staging_bytes);
    free(sync->slices);
    named_tensors_free(&sync->tensors);
    *sync = (SyncState){0};
}

// Copies tensors [first, end) into the staging memory, or out of it.
static void copy_staged(const SyncState *sync, size_t first, size_t end, bool out) {
    char *staged = sync->staging;
    const Kernels *kernels = device_kernels(sync->device);
    if (sync->slices && out)
        kernels->slices->unpack(sync->slices + first, end - first, sync->staging);
    else if (sync->slices)
        kernels->slices->pack(sync->staging, sync->slices + first, end - first);
    for (size_t i = first; !sync->slices && i < end; i++) {
        const Tensor *tensor = sync->tensors.items[i].tensor;
        size_t bytes = tensor_bytes(tensor);
        if (out)
            device_copy(tensor->device, tensor->data, sync->device, staged, bytes);
        else
            device_copy(sync->device, staged, tensor->device, tensor->data, bytes);
        staged += bytes;
    }
}

int sync_state_run(const SyncState *sync, int root, Error *err) {
    size_t end;
    if (pg_size(sync->group) == 1) return 0;
    for (size_t first = 0; first < sync->tensors.count; first = end) {
        const Tensor *alone = sync->tensors.items[first].tensor;
        size_t bytes = tensor_bytes(alone);
        for (end = first + 1; end < sync->tensors.count; end++) {
            size_t more = tensor_bytes(sync->tensors.items[end].tensor);
            if (bytes + more > sync->staging_bytes) break;
            bytes += more;
        }
        bool staged = end > first + 1;
        if (staged && pg_rank(sync->group) == root) copy_staged(sync, first, end, false);
        void *memory = staged ? sync->staging : alone->data;
        if (pg_run(sync->group, pg_broadcast(memory, bytes, PG_U8, root), err) != 0) return -1;
        if (staged && pg_rank(sync->group) != root) copy_staged(sync, first, end, true);
        for (size_t i = first; i < end; i++) tensor_changed(sync->tensors.items[i].tensor);
    }
    return 0;
}
