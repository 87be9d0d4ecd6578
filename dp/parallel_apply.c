/* parallel_apply.c: the replicas' forwards, in parallel; in backward, their tapes, in parallel.
 *
 * Replica i runs on device i's thread and records on device i's tape. Replica 0 does too, although
 * the calling thread is free: all replicas are then alike, and so are their times. PyTorch starts
 * and joins a thread per replica in every forward; a device's thread here is started once.
 *
 * A replica that fails does not stop the others. When all have ended, the error of the lowest one
 * is reported, as in PyTorch: which error that is must not depend on who was faster.
 */
#include "dp/parallel_apply.h"

#include "common/base/clock.h"
#include "common/nn/ops.h"

// PyTorch's default timeout of a process group.
static const double DEADLINE_S = 30 * 60;

static void run_on_all(Pieces *pieces, void (*run)(void *piece)) {
    for (int i = 0; i < pieces->count; i++)
        device_submit(pieces->items[i].replica->device, run, &pieces->items[i]);
    // If a replica never ends, the program must end here: the replica still uses memory that would
    // be freed on the way back.
    Error err = {0};
    for (int i = 0; i < pieces->count; i++)
        if (device_wait(pieces->items[i].replica->device, DEADLINE_S, &err) != 0) error_exit(&err);
}

static void report_error(Tape *tape, const Pieces *pieces) {
    for (int i = 0; i < pieces->count && tape->error.status == STATUS_OK; i++) {
        const Tape *fork = pieces->items[i].tape;
        if (fork->error.status == STATUS_OK) continue;
        error_set(&tape->error, fork->error.status, "Caught error in replica %d on device %s: %s",
                  i, fork->device->name, fork->error.message);
    }
}

// ---- on the devices' threads -------------------------------------------------------------------

static void run_forward(void *argument) {
    Piece *piece = argument;
    const Replica *replica = piece->replica;
    uint64_t begin_ns = clock_ns();
    piece->y = op_float32(piece->tape, module_forward(replica->module, piece->tape, piece->x));
    CHECK(piece->y || piece->tape->error.status != STATUS_OK, "a %s returned nothing",
          replica->module->type);
    trace_span(replica->trace, replica->track, "forward", -1, begin_ns, clock_ns());
}

// gather's backward has filled the gradients of the outputs that the loss uses. An error stays on
// the tape.
static void run_backward(void *argument) {
    Piece *piece = argument;
    uint64_t begin_ns = clock_ns();
    if (piece->y->has_grad || piece->y->items) tape_backward_from(piece->tape, piece->y, NULL);
    trace_span(piece->replica->trace, piece->replica->track, "backward", -1, begin_ns, clock_ns());
}

// ---- on the calling thread ---------------------------------------------------------------------

static void parallel_apply_backward(Tape *tape, Node *node) {
    Pieces *pieces = node->saved;
    run_on_all(pieces, run_backward);
    pieces->in_backward = false;
    report_error(tape, pieces);
    for (size_t i = 0; i < node->input_count; i++) {
        bool accumulate;
        tape_grad(tape, node->inputs[i], &accumulate); // it is a token's: there is nothing to write
        tape_grad_done(tape, node->inputs[i]);
    }
}

Tensor *dp_parallel_apply(Tape *tape, Tensor *inputs, Tensor *replicas, Pieces *pieces) {
    if (!inputs || !replicas) return NULL;
    Phase phase = profile_enter(tape->profile, PHASE_FORWARD);
    run_on_all(pieces, run_forward);
    report_error(tape, pieces);
    profile_leave(tape->profile, phase);
    if (tape->error.status != STATUS_OK) return NULL;
    Tensor *token = pieces_token(tape);
    tape_record(tape, "parallel_apply", parallel_apply_backward, token, 2,
                (Tensor *[]){inputs, replicas}, pieces);
    return token;
}
