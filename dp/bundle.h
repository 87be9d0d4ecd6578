/* bundle.h: many small tensors that travel between the devices as one.
 *
 * To start a copy from one GPU to another takes as long as moving a megabyte, and most of a
 * network's tensors are smaller. So those are packed into one piece of memory, which is sent and
 * unpacked where it arrives: PyTorch's broadcast_coalesced and reduce_add_coalesced. A large tensor
 * travels alone: packing would only move it twice more.
 *
 * Invariant: every bit arrives as it was, and sums are ((t0 + t1) + t2) + ..., in device order: a
 * bundle changes when something is moved, not what.
 */
#ifndef DP_BUNDLE_H
#define DP_BUNDLE_H

#include "dp/pieces.h"

typedef enum BundleKind {
    BUNDLE_BROADCAST, // the first device's tensors to the others: Piece.copies
    BUNDLE_REDUCE     // the first device's gradients become the sums over all: Replica.tensors
} BundleKind;

typedef struct Bundle {
    BundleKind kind;
    Tape *tape;             // the first device's
    const Pieces *pieces;   // the tensors travel between those of its devices that have rows
    size_t count, elements; // tensors in the bundle, and their size, counted in floats
    Slice *slices;          // [pieces->count][pieces->tensor_count], the tape's
} Bundle;

Bundle bundle_open(Tape *tape, const Pieces *pieces, BundleKind kind);
// Adds the pieces' tensor k; a bundle that has no room for it is sent first. Returns false, and
// does nothing, if the tensor is to travel alone, or if only one device has rows.
bool bundle_add(Bundle *bundle, size_t k);
void bundle_send(Bundle *bundle); // moves the tensors that are in it; then it is empty

#endif
