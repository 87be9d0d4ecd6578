/* bundle.c: packs, copies and unpacks a bundle. The packed tensors are in the tapes' scratch
 * memory, which the next operation may overwrite: a device executes enqueued work in order, so the
 * copies complete first.
 */
#include "dp/bundle.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

// A larger tensor is copied alone. In host memory, where starting a copy costs little, only tensors
// of at most a page are packed.
enum { ALONE_BYTES = 1024 * 1024, ALONE_BYTES_HOST = 4 * 1024 };

Bundle bundle_open(Tape *tape, const ReplicaShards *shards, BundleKind kind) {
    size_t devices = (size_t)shards->count, count = devices * shards->tensor_count;
    return (Bundle){.kind = kind,
                    .tape = tape,
                    .shards = shards,
                    .copies = tape_alloc(tape, devices * sizeof(DeviceCopy)),
                    .terms = tape_alloc(tape, devices * sizeof(DeviceTerm)),
                    .slices = tape_alloc(tape, count * sizeof(Slice))};
}

static Slice *slices_on(const Bundle *bundle, int device) {
    return bundle->slices + (size_t)device * bundle->shards->tensor_count;
}

// An int64 tensor is packed as twice as many floats: packing copies bits.
bool bundle_add(Bundle *bundle, size_t k) {
    const ReplicaShards *shards = bundle->shards;
    size_t bytes = tensor_bytes(shards->tensors[k]), elements = bytes / sizeof(float);
    bool host = device_is_addressable(bundle->tape->device);
    if (shards->count < 2 || bytes > (host ? ALONE_BYTES_HOST : ALONE_BYTES)) return false;
    if ((bundle->elements + elements) * sizeof(float) > SHARDS_STAGING_BYTES) bundle_send(bundle);
    for (int i = 0; i < shards->count; i++) {
        const ReplicaShard *shard = &shards->items[i];
        bool reduce = bundle->kind == BUNDLE_REDUCE;
        void *memory = reduce ? shard->replica->tensors[k]->grad : shard->copies[k];
        slices_on(bundle, i)[bundle->count] = (Slice){memory, elements};
    }
    bundle->count++;
    bundle->elements += elements;
    return true;
}

static void send_broadcast(const Bundle *bundle) {
    Device *first = bundle->tape->device;
    size_t bytes = bundle->elements * sizeof(float);
    float *packed = tape_scratch(bundle->tape, bytes);
    device_kernels(first)->slices->pack(packed, slices_on(bundle, 0), bundle->count);
    const int others = bundle->shards->count - 1;
    for (int i = 0; i < others; i++) {
        Tape *tape = bundle->shards->items[i + 1].tape;
        bundle->copies[i] = (DeviceCopy){tape->device, tape_scratch(tape, bytes)};
    }
    device_copy_to_all(bundle->copies, (size_t)others, first, packed, bytes);
    for (int i = 0; i < others; i++)
        device_kernels(bundle->copies[i].to)
            ->slices->unpack(slices_on(bundle, i + 1), bundle->count,
                             bundle->copies[i].destination);
}

static void send_sum(const Bundle *bundle) {
    Device *first = bundle->tape->device;
    size_t bytes = bundle->elements * sizeof(float);
    size_t padded = memory_whole_lines(bytes); // both halves are aligned
    float *sum = tape_scratch(bundle->tape, 2 * padded), *received = sum + padded / sizeof *sum;
    device_kernels(first)->slices->pack(sum, slices_on(bundle, 0), bundle->count);
    for (int i = 1; i < bundle->shards->count; i++) {
        Tape *tape = bundle->shards->items[i].tape;
        float *packed = tape_scratch(tape, bytes);
        device_kernels(tape->device)->slices->pack(packed, slices_on(bundle, i), bundle->count);
        bundle->terms[i - 1] = (DeviceTerm){sum, tape->device, packed, bundle->elements};
    }
    device_accumulate(first, bundle->terms, (size_t)bundle->shards->count - 1, received,
                      bundle->elements);
    device_kernels(first)->slices->unpack(slices_on(bundle, 0), bundle->count, sum);
}

void bundle_send(Bundle *bundle) {
    if (bundle->count == 0) return;
    if (bundle->kind == BUNDLE_REDUCE)
        send_sum(bundle);
    else
        send_broadcast(bundle);
    bundle->count = bundle->elements = 0;
}
