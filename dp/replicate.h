/* replicate.h: the second of DataParallel's four operations: the module to every device. */
#ifndef DP_REPLICATE_H
#define DP_REPLICATE_H

#include "dp/pieces.h"

// Builds the device's tree of modules, once. What its tensors point to is set by every forward.
Replica replica_create(Module *module, Device *device);
void replica_close(Replica *replica);

// Copies the module's parameters and buffers to the devices that got rows. Returns the token that
// stands for the copies, which wants a gradient if a parameter does.
Tensor *dp_replicate(Tape *tape, Pieces *pieces);

// Points the replicas' tensors at these pieces' copies, without gradients. Between the forward and
// its backward the same replicas may have served other forwards.
void replicate_install(const Pieces *pieces);

// The tensors of a module, in state_dict order. The caller frees the array.
Tensor **replicate_tensors(Module *module, size_t *count);

#endif
