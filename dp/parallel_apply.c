/* parallel_apply.c: runs the replicas' forwards in parallel; in backward, their tapes.
 *
 * Replica i runs on device i's thread and records on device i's tape; replica 0, too, although the
 * calling thread is idle, so that all replicas take the same time. PyTorch starts and joins a
 * thread per replica in every forward; here each device has a permanent thread.
 *
 * A replica's error does not stop the others. When all have ended, the lowest replica's error is
 * reported, as in PyTorch, so that the error does not depend on timing.
 */
#include "dp/operations.h"

#include "common/base/clock.h"
#include "common/base/profile.h"
#include "common/nn/ops.h"

// PyTorch's default timeout of a process group.
static const double DEADLINE_S = 30 * 60;

static void run_on_all(ReplicaShards *shards, void (*run)(void *shard)) {
    for (int i = 0; i < shards->count; i++)
        device_submit(shards->items[i].replica->device, run, &shards->items[i]);
    // After a timeout the program ends here: the replica still uses memory that a return would
    // free.
    Error err = {0};
    for (int i = 0; i < shards->count; i++)
        if (device_wait(shards->items[i].replica->device, DEADLINE_S, &err) != 0) error_exit(&err);
}

static void report_error(Tape *tape, const ReplicaShards *shards) {
    for (int i = 0; i < shards->count && tape->error.status == STATUS_OK; i++) {
        const Tape *fork = shards->items[i].tape;
        if (fork->error.status == STATUS_OK) continue;
        error_set(&tape->error, fork->error.status, "Caught error in replica %d on device %s: %s",
                  i, fork->device->name, fork->error.message);
    }
}

// ---- on the devices' threads -------------------------------------------------------------------

static void run_forward(void *argument) {
    ReplicaShard *shard = argument;
    const Replica *replica = shard->replica;
    uint64_t begin_ns = clock_ns();
    shard->y = op_float32(shard->tape, module_forward(replica->module, shard->tape, shard->x));
    CHECK(shard->y || shard->tape->error.status != STATUS_OK, "a %s returned nothing",
          replica->module->type);
    trace_span(replica->trace, replica->track, "forward", -1, begin_ns, clock_ns());
}

// Precondition: gather's backward has set the gradients of the outputs that the loss depends on. An
// error is left on the replica's tape.
static void run_backward(void *argument) {
    ReplicaShard *shard = argument;
    uint64_t begin_ns = clock_ns();
    if (shard->y->has_grad || shard->y->items) tape_backward(shard->tape, shard->y, NULL);
    trace_span(shard->replica->trace, shard->replica->track, "backward", -1, begin_ns, clock_ns());
}

// ---- on the calling thread ---------------------------------------------------------------------

static void parallel_apply_backward(Tape *tape, TapeNode *node) {
    ReplicaShards *shards = node->saved;
    run_on_all(shards, run_backward);
    shards->in_backward = false;
    report_error(tape, shards);
    for (size_t i = 0; i < node->input_count; i++) {
        bool accumulate;
        tape_grad(tape, node->inputs[i], &accumulate); // a token's gradient has no elements
        tape_grad_done(tape, node->inputs[i]);
    }
}

Tensor *dp_parallel_apply(Tape *tape, Tensor *inputs, Tensor *replicas, ReplicaShards *shards) {
    if (!inputs || !replicas) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_FORWARD);
    run_on_all(shards, run_forward);
    report_error(tape, shards);
    profile_leave(tape->profile, phase);
    if (tape->error.status != STATUS_OK) return NULL;
    Tensor *token = shards_token(tape);
    tape_record(tape, "parallel_apply", parallel_apply_backward, token, 2,
                (Tensor *[]){inputs, replicas}, shards);
    return token;
}
