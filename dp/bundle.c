/* bundle.c: see bundle.h. The packed tensors lie in the tapes' scratch memory, which the next
 * operation may overwrite. That is safe, because a device does one thing after the other: what is
 * asked of it here is done before.
 */
#include "dp/bundle.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

enum {
    // A tensor of more bytes than this travels alone. In host memory, where it costs nothing to
    // start a copy, only tensors of at most a page are packed, which costs next to nothing.
    ALONE_BYTES = 1024 * 1024,
    ALONE_BYTES_HOST = 4 * 1024,
    LANES = MEMORY_ALIGNMENT / sizeof(float), // what begins at a multiple of it is aligned
};

Bundle bundle_open(Tape *tape, const Pieces *pieces, BundleKind kind) {
    size_t count = (size_t)pieces->count * pieces->tensor_count;
    return (Bundle){.kind = kind,
                    .tape = tape,
                    .pieces = pieces,
                    .slices = tape_alloc(tape, count * sizeof(Slice))};
}

static Slice *slices_on(const Bundle *bundle, int device) {
    return bundle->slices + (size_t)device * bundle->pieces->tensor_count;
}

// A tensor of int64 travels as twice as many floats: packing keeps bits.
bool bundle_add(Bundle *bundle, size_t k) {
    const Pieces *pieces = bundle->pieces;
    size_t bytes = tensor_bytes(pieces->tensors[k]), elements = bytes / sizeof(float);
    bool host = device_is_addressable(bundle->tape->device);
    if (pieces->count < 2 || bytes > (host ? ALONE_BYTES_HOST : ALONE_BYTES)) return false;
    if ((bundle->elements + elements) * sizeof(float) > PIECES_STAGING_BYTES) bundle_send(bundle);
    for (int i = 0; i < pieces->count; i++) {
        const Piece *piece = &pieces->items[i];
        bool reduce = bundle->kind == BUNDLE_REDUCE;
        void *memory = reduce ? piece->replica->tensors[k]->grad : piece->copies[k];
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
    for (int i = 1; i < bundle->pieces->count; i++) {
        Tape *tape = bundle->pieces->items[i].tape;
        float *received = tape_scratch(tape, bytes);
        device_copy(tape->device, received, first, packed, bytes);
        device_kernels(tape->device)->slices->unpack(slices_on(bundle, i), bundle->count, received);
    }
}

static void send_sum(const Bundle *bundle) {
    Device *first = bundle->tape->device;
    size_t bytes = bundle->elements * sizeof(float);
    size_t room = (bundle->elements + LANES - 1) / LANES * LANES;
    float *sum = tape_scratch(bundle->tape, 2 * room * sizeof(float)), *received = sum + room;
    device_kernels(first)->slices->pack(sum, slices_on(bundle, 0), bundle->count);
    for (int i = 1; i < bundle->pieces->count; i++) {
        Tape *tape = bundle->pieces->items[i].tape;
        float *packed = tape_scratch(tape, bytes);
        device_kernels(tape->device)->slices->pack(packed, slices_on(bundle, i), bundle->count);
        device_copy(first, received, tape->device, packed, bytes);
        device_kernels(first)->elementwise->accumulate(sum, received, bundle->elements);
    }
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
