/* identities.c: see identities.h. */
#include "ddp/fsdp/identities.h"

#include "common/nn/tuple.h"

void identities_exposed(Tape *tape, const UnitForward *saved, Phase before, int status,
                        const Error *err) {
    profile_leave(tape->profile, before);
    if (status != 0) tape_fail(tape, saved->wrapper, "%s", err->message);
}

// Lends an input's gradient, to which later users have contributed, to its identity, so that the
// module's operations add to it in place, with the rounding that they have without a unit.
static void lend_gradients(const UnitForward *saved) {
    for (size_t i = 0; i < saved->count; i++) {
        Tensor *input = saved->inputs[i], *inside = saved->inside[i];
        if (inside == input || !input->has_grad || inside->pending_uses == 0) continue;
        inside->grad = input->grad;
        inside->has_grad = true;
        input->grad = NULL;
        input->has_grad = false;
    }
}

static void gather_backward(Tape *tape, TapeNode *node) {
    UnitForward *saved = node->saved;
    Error err = {0};
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    identities_exposed(tape, saved, phase, saved->before_backward(saved, &err), &err);
    tape_pass_gradient(tape, node, node->inputs[0], true);
    lend_gradients(saved);
}

static void reduce_backward(Tape *tape, TapeNode *node) {
    UnitForward *saved = node->saved;
    Error err = {0};
    tape_pass_gradient(tape, node, node->inputs[0], true);
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    identities_exposed(tape, saved, phase, saved->after_backward(saved, &err), &err);
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

Tensor *identities_enter(Tape *tape, Tensor *x, UnitForward *saved) {
    saved->inputs = list_leaves(tape, x, &saved->count);
    saved->inside = list_leaves(tape, x, &saved->count);
    record_identities(tape, "reduce_scatter", reduce_backward, saved->inside, saved->count, saved);
    return tuple_with_leaves(tape, x, saved->inside);
}

Tensor *identities_leave(Tape *tape, Tensor *y, UnitForward *saved) {
    size_t count;
    if (!y) return NULL;
    Tensor **leaves = list_leaves(tape, y, &count);
    record_identities(tape, "all_gather", gather_backward, leaves, count, saved);
    return tuple_with_leaves(tape, y, leaves);
}
