/* replicate.c: the module to every device; in backward, the sum of the replicas' gradients.
 *
 * There is one true copy of every parameter, on devices[0]. Each forward copies it to the others,
 * and nothing of a copy outlives the step. Replica 0 is not a copy: its tensors have headers of
 * their own (the main tape and the replica's count uses separately), but point to the module's
 * memory. So what batch norm writes to replica 0's buffers stays, and what it writes elsewhere is
 * lost: PyTorch's rule for running statistics.
 *
 * The gradient of a parameter is ((g0 + g1) + g2) + ..., in device order whatever finished first,
 * and that sum is then added to a gradient that was already there (a second use in the step, or an
 * earlier backward). g0 is computed right into the parameter's own gradient memory if it is free.
 */
#include "dp/replicate.h"

#include <stdlib.h>

#include "common/base/memory.h"
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

void replica_close(Replica *replica) {
    module_close(replica->module);
    free(replica->tensors);
    *replica = (Replica){0};
}

void replicate_install(const Pieces *pieces) {
    for (int i = 0; i < pieces->count; i++) {
        for (size_t k = 0; k < pieces->tensor_count; k++) {
            const Tensor *original = pieces->tensors[k];
            Tensor *copy = pieces->items[i].replica->tensors[k];
            copy->data = pieces->items[i].copies[k];
            // Without a graph there is nothing to differentiate: PyTorch detaches the copies.
            copy->requires_grad = original->requires_grad && pieces->items[i].tape->recording;
            copy->has_grad = false;
            copy->grad = i == 0 && !original->has_grad ? original->grad : NULL;
        }
    }
}

// Has every replica a gradient of tensor k? Only then can these travel in a bundle, which adds up
// what every replica sent.
static bool is_everywhere(const Pieces *pieces, size_t k) {
    for (int i = 0; i < pieces->count; i++)
        if (!pieces->items[i].replica->tensors[k]->has_grad) return false;
    return true;
}

// Adds up the gradients of tensor k in replica 0's, one replica after the other; those that have
// none are left out.
static void sum_alone(Tape *tape, const Pieces *pieces, size_t k) {
    const Piece *first = &pieces->items[0];
    Tensor *sum = first->replica->tensors[k];
    for (int i = 1; i < pieces->count; i++) {
        const Tensor *copy = pieces->items[i].replica->tensors[k];
        if (!copy->has_grad) continue;
        bool accumulate = sum->has_grad;
        pieces_add_gradient(tape, tape_make_grad(first->tape, sum), copy->device, copy->grad,
                            tensor_count(copy), accumulate);
    }
}

// Without a gradient from any replica the parameter's stays as it is: None stays None.
static void deliver_sum(Tape *tape, const Tensor *sum, Tensor *parameter) {
    bool accumulate;
    if (!sum->has_grad) return;
    float *grad = tape_grad(tape, parameter, &accumulate);
    if (accumulate || grad != sum->grad) // else g0 was computed right into it
        pieces_add_gradient(tape, grad, sum->device, sum->grad, tensor_count(sum), accumulate);
}

static void replicate_backward(Tape *tape, Node *node) {
    const Pieces *pieces = node->saved;
    Phase phase = profile_enter(tape->profile, PHASE_REDUCE);
    Bundle bundle = bundle_open(tape, pieces, BUNDLE_REDUCE);
    for (size_t k = 0; k < pieces->tensor_count; k++)
        if (!is_everywhere(pieces, k) || !bundle_add(&bundle, k)) sum_alone(tape, pieces, k);
    bundle_send(&bundle);
    for (size_t k = 0; k < pieces->tensor_count; k++) {
        Tensor *parameter = pieces->tensors[k];
        if (parameter->requires_grad)
            deliver_sum(tape, pieces->items[0].replica->tensors[k], parameter);
        tape_grad_done(tape, parameter); // now, and once, the parameter is ready
    }
    profile_leave(tape->profile, phase);
}

// Room for the copies on the devices that got rows; the first device has the originals.
static void allocate_copies(Tape *tape, Pieces *pieces) {
    for (int i = 0; i < pieces->count; i++) {
        Piece *piece = &pieces->items[i];
        piece->copies = tape_alloc(tape, pieces->tensor_count * sizeof *piece->copies);
        for (size_t k = 0; k < pieces->tensor_count; k++)
            piece->copies[k] = i == 0 ? pieces->tensors[k]->data
                                      : tape_memory(piece->tape, tensor_bytes(pieces->tensors[k]));
    }
}

static void fill_copies(Tape *tape, const Pieces *pieces) {
    Bundle bundle = bundle_open(tape, pieces, BUNDLE_BROADCAST);
    for (size_t k = 0; k < pieces->tensor_count; k++) {
        const Tensor *original = pieces->tensors[k];
        if (bundle_add(&bundle, k)) continue;
        for (int i = 1; i < pieces->count; i++)
            device_copy(pieces->items[i].tape->device, pieces->items[i].copies[k], original->device,
                        original->data, tensor_bytes(original));
    }
    bundle_send(&bundle);
}

Tensor *dp_replicate(Tape *tape, Pieces *pieces) {
    Phase phase = profile_enter(tape->profile, PHASE_REPLICATE);
    allocate_copies(tape, pieces);
    fill_copies(tape, pieces);
    replicate_install(pieces);
    Tensor *token = pieces_token(tape);
    tape_record(tape, "replicate", replicate_backward, token, pieces->tensor_count, pieces->tensors,
                pieces);
    profile_leave(tape->profile, phase);
    return token;
}
