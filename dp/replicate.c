/* replicate.c: copies the module to every device; backward sums the replicas' gradients.
 *
 * The parameters' memory is on devices[0]. Each forward copies it to the other devices; a copy's
 * lifetime is one step. Replica 0 is not a copy: its tensors have their own headers (the main tape
 * and the replica's count uses separately) but alias the module's memory. Batch norm's writes to
 * replica 0's buffers therefore persist, and those to other replicas are lost: PyTorch's rule for
 * running statistics.
 *
 * The gradient of a parameter is ((g0 + g1) + g2) + ..., always in device order, and is then added
 * to an existing gradient (a second use in the step, or an earlier backward). g0 is computed in the
 * parameter's own gradient memory if the parameter has no gradient yet.
 */
#include "dp/operations.h"

#include <stdlib.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/nn/tape.h"
#include "dp/bundle.h"

Tensor **replicate_tensors(Module *module, size_t *count) {
    NamedTensors named = module_tensors(module, MODULE_STATE);
    Tensor **tensors = memory_zalloc(named.count * sizeof *tensors);
    for (size_t k = 0; k < named.count; k++) tensors[k] = named.items[k].tensor;
    *count = named.count;
    named_tensors_free(&named);
    return tensors;
}

Replica replica_create(Module *module, Device *device) {
    Replica replica = {.device = device, .module = module_replica(module, device)};
    size_t count;
    replica.tensors = replicate_tensors(replica.module, &count);
    return replica;
}

void replica_close(const Replica *replica) {
    module_close(replica->module);
    free(replica->tensors);
}

void replicate_install(const ReplicaShards *shards) {
    for (int i = 0; i < shards->count; i++) {
        for (size_t k = 0; k < shards->tensor_count; k++) {
            const Tensor *original = shards->tensors[k];
            Tensor *copy = shards->items[i].replica->tensors[k];
            copy->data = shards->items[i].copies[k];
            // Without a graph PyTorch detaches the copies.
            copy->requires_grad = original->requires_grad && shards->items[i].tape->recording;
            copy->has_grad = false;
            copy->grad = i == 0 && !original->has_grad ? original->grad : NULL;
        }
    }
}

// Whether every replica has a gradient of tensor k: a bundle sums over all replicas.
static bool is_everywhere(const ReplicaShards *shards, size_t k) {
    for (int i = 0; i < shards->count; i++)
        if (!shards->items[i].replica->tensors[k]->has_grad) return false;
    return true;
}

// Adds the sum to the parameter's gradient. Without a gradient from any replica None stays None.
static void deliver_sum(Tape *tape, const Tensor *sum, Tensor *parameter) {
    bool accumulate;
    if (!sum->has_grad) return;
    float *grad = tape_grad(tape, parameter, &accumulate);
    if (accumulate || grad != sum->grad) // else g0 was computed in place
        shards_add_gradient(tape, grad, sum->device, sum->grad, tensor_count(sum), accumulate);
}

static void replicate_backward(Tape *tape, TapeNode *node) {
    const ReplicaShards *shards = node->saved;
    const ReplicaShard *first = &shards->items[0];
    Phase phase = profile_enter(tape->profile, PHASE_REDUCE);
    Bundle bundle = bundle_open(tape, shards, BUNDLE_REDUCE);
    DeviceTerm *terms = tape_alloc(tape, (size_t)shards->count * sizeof *terms);
    for (size_t k = 0; k < shards->tensor_count; k++) {
        if (is_everywhere(shards, k) && bundle_add(&bundle, k)) continue;
        Tensor *sum = first->replica->tensors[k];
        size_t count = 0;
        for (int i = 1; i < shards->count; i++) { // in device order; no gradient: no contribution
            const Tensor *copy = shards->items[i].replica->tensors[k];
            bool accumulate = sum->has_grad;
            if (!copy->has_grad) continue;
            float *grad = tape_make_grad(first->tape, sum);
            if (accumulate)
                terms[count++] = (DeviceTerm){grad, copy->device, copy->grad, tensor_count(copy)};
            else
                device_copy(tape->device, grad, copy->device, copy->grad, tensor_bytes(copy));
        }
        shards_accumulate(tape, terms, count);
    }
    bundle_send(&bundle);
    for (size_t k = 0; k < shards->tensor_count; k++) {
        Tensor *parameter = shards->tensors[k];
        if (parameter->requires_grad)
            deliver_sum(tape, shards->items[0].replica->tensors[k], parameter);
        tape_grad_done(tape, parameter); // the only contribution: the parameter is ready
    }
    profile_leave(tape->profile, phase);
}

// Allocates the copies on the devices with rows; the first device uses the originals.
static void allocate_copies(Tape *tape, ReplicaShards *shards) {
    for (int i = 0; i < shards->count; i++) {
        ReplicaShard *shard = &shards->items[i];
        shard->copies = tape_alloc(tape, shards->tensor_count * sizeof *shard->copies);
        for (size_t k = 0; k < shards->tensor_count; k++)
            shard->copies[k] = i == 0 ? shards->tensors[k]->data
                                      : tape_memory(shard->tape, tensor_bytes(shards->tensors[k]));
    }
}

static void fill_copies(Tape *tape, const ReplicaShards *shards) {
    Bundle bundle = bundle_open(tape, shards, BUNDLE_BROADCAST);
    DeviceCopy *copies = tape_alloc(tape, (size_t)shards->count * sizeof *copies);
    for (size_t k = 0; k < shards->tensor_count; k++) {
        const Tensor *original = shards->tensors[k];
        if (bundle_add(&bundle, k)) continue;
        size_t count = 0;
        for (int i = 1; i < shards->count; i++)
            copies[count++] =
                (DeviceCopy){shards->items[i].tape->device, shards->items[i].copies[k]};
        device_copy_to_all(copies, count, original->device, original->data, tensor_bytes(original));
    }
    bundle_send(&bundle);
}

Tensor *dp_replicate(Tape *tape, ReplicaShards *shards) {
    Phase phase = profile_enter(tape->profile, PHASE_REPLICATE);
    allocate_copies(tape, shards);
    fill_copies(tape, shards);
    replicate_install(shards);
    Tensor *token = shards_token(tape);
    tape_record(tape, "replicate", replicate_backward, token, shards->tensor_count, shards->tensors,
                shards);
    profile_leave(tape->profile, phase);
    return token;
}
