/* identities.c: see identities.h. */
#include "ddp/fsdp/identities.h"

#include "common/base/profile.h"
#include "common/nn/tuple.h"

static void call(Tape *tape, UnitForward *saved, UnitCall *function) {
    Error err = {0};
    if (function(saved, &err) != 0) tape_fail(tape, saved->calls->wrapper, "%s", err.message);
}

static void call_exposed(Tape *tape, UnitForward *saved, UnitCall *function) {
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    call(tape, saved, function);
    profile_leave(tape->profile, phase);
}

// Lends an input's gradient, to which later users have contributed, to its identity, so that the
// module's operations add to it in place, with the rounding that they have without a unit.
static void lend_gradients(Tape *tape, const UnitForward *saved) {
    for (size_t i = 0; i < saved->count; i++) {
        Tensor *input = saved->inputs[i], *inside = saved->inside[i];
        if (inside != input && input->has_grad && inside->pending_uses > 0)
            (void)tape_grad_take(tape, &(TapeNode){.output = input}, inside);
    }
}

static void gather_backward(Tape *tape, TapeNode *node) {
    UnitForward *saved = node->saved;
    call_exposed(tape, saved, saved->calls->before_backward);
    tape_pass_gradient(tape, node, node->inputs[0], true);
    lend_gradients(tape, saved);
}

static void reduce_backward(Tape *tape, TapeNode *node) {
    UnitForward *saved = node->saved;
    tape_pass_gradient(tape, node, node->inputs[0], true);
    call_exposed(tape, saved, saved->calls->after_backward);
}

// Puts an identity in place of each of the tensors[count] that needs a gradient. The others stay:
// a batch may be gone when backward runs.
static void record_identities(Tape *tape, const char *op, void (*backward)(Tape *, TapeNode *),
                              Tensor **tensors, size_t count, UnitForward *saved) {
    for (size_t i = 0; i < count; i++) {
        Tensor *x = tensors[i];
        if (!x || !x->requires_grad) continue;
        tensors[i] = tape_alias(tape, x);
        tape_backward_reads(tape_record(tape, op, backward, tensors[i], 1, &x, saved), 0);
    }
}

// Returns the tensor, or the tensors of the tuple: [*count], the tape's.
static Tensor **list_leaves(Tape *tape, Tensor *x, size_t *count) {
    *count = tuple_leaves(x, NULL);
    Tensor **leaves = tape_alloc(tape, *count * sizeof(Tensor *));
    tuple_leaves(x, leaves);
    return leaves;
}

static Tensor *enter(Tape *tape, Tensor *x, UnitForward *saved) {
    saved->inputs = list_leaves(tape, x, &saved->count);
    saved->inside = list_leaves(tape, x, &saved->count);
    record_identities(tape, "reduce_scatter", reduce_backward, saved->inside, saved->count, saved);
    return tuple_with_leaves(tape, x, saved->inside);
}

static Tensor *leave(Tape *tape, Tensor *y, UnitForward *saved) {
    size_t count;
    Tensor **leaves = list_leaves(tape, y, &count);
    record_identities(tape, "all_gather", gather_backward, leaves, count, saved);
    return tuple_with_leaves(tape, y, leaves);
}

Tensor *identities_forward(Module *self, Tape *tape, Tensor *x, const UnitCalls *calls,
                           const ModuleOwn *own) {
    UnitForward *saved = tape_alloc(tape, sizeof *saved);
    *saved = (UnitForward){.calls = calls, .unit = self->state, .tape = tape};
    call_exposed(tape, saved, calls->before_forward);
    if (tape->error.status != STATUS_OK) return NULL;
    x = enter(tape, x, saved);
    self->state = own->state;
    Tensor *y = own->forward(self, tape, x);
    self->state = saved->unit;
    y = leave(tape, y, saved);
    call(tape, saved, calls->after_forward);
    return tape->error.status == STATUS_OK ? y : NULL;
}
