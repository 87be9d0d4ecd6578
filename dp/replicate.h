/* replicate.h: the second of DataParallel's four operations: copies the module to every device. */
#ifndef DP_REPLICATE_H
#define DP_REPLICATE_H

#include "dp/shards.h"

// Returns the module's tree on the device, built once; every forward sets its tensors' pointers.
Replica replica_create(Module *module, Device *device);
void replica_close(Replica *replica);

// Copies the module's parameters and buffers to the devices with rows. Returns the copies' token,
// which requires a gradient if a parameter does.
Tensor *dp_replicate(Tape *tape, ReplicaShards *shards);

// Points the replicas' tensors to these shards' copies, without gradients. Backward calls it again,
// because the same replicas may have run other forwards since.
void replicate_install(const ReplicaShards *shards);

// Returns the module's [*count] tensors, in state_dict order. The caller frees the array.
Tensor **replicate_tensors(Module *module, size_t *count);

#endif
