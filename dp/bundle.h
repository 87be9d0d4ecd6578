/* bundle.h: many small tensors copied between devices in one buffer: PyTorch's broadcast_coalesced
 * and reduce_add_coalesced.
 *
 * Starting a copy from one GPU to another takes as long as moving a megabyte, and most tensors are
 * smaller; they are packed, copied in one call and unpacked. A large tensor is copied alone,
 * because packing would move it twice more.
 *
 * Invariant: values equal separate copies' values: bits are unchanged, and sums are
 * ((t0 + t1) + t2) + ..., in device order.
 */
#ifndef DP_BUNDLE_H
#define DP_BUNDLE_H

#include "dp/shards.h"

typedef enum BundleKind {
    BUNDLE_BROADCAST, // the first device's tensors to the others: ReplicaShard.copies
    BUNDLE_REDUCE     // the first device's gradients become the sums over all: Replica.tensors
} BundleKind;

typedef struct Bundle {
    BundleKind kind;
    Tape *tape;                  // the first device's
    const ReplicaShards *shards; // the source and destination devices: those with rows
    size_t count, elements;      // tensors in the bundle; their size in floats
    // The tape's:
    Slice *slices;      // [shards->count][shards->tensor_count]
    DeviceCopy *copies; // [shards->count]
    DeviceTerm *terms;  // [shards->count]
} Bundle;

Bundle bundle_open(Tape *tape, const ReplicaShards *shards, BundleKind kind);
// Adds the shards' tensor k, after sending a bundle that would exceed SHARDS_STAGING_BYTES. Returns
// false, without effect, if the tensor is to be copied alone or only one device has rows.
bool bundle_add(Bundle *bundle, size_t k);
void bundle_send(Bundle *bundle); // copies the bundle's tensors; then it is empty

#endif
