/* gather_ahead.c: which unit is gathered when.
 *
 *     forward    unit t: wait for its weights; start gathering unit t + 1 of the last forward
 *                after the root's: start gathering the last unit again, beside the loss
 *     backward   unit t: wait for its weights; start gathering unit t - 1 of this forward
 *                after it: start reducing its gradients, free its weights and gradients
 *     step       if unshard_in_step: update the root and the unit after it; start gathering both
 *                and update the others
 *
 * A wrong prediction costs a gather and nothing else: the weights that were not asked for are
 * dropped. All ranks predict the same, because they run the same forwards.
 */
#include "common/base/memory.h"
#include "ddp/fsdp/fsdp_internal.h"

static void append(FsdpOrder *order, FsdpUnit *unit) {
    if (order->count == order->capacity)
        order->units = memory_grow(order->units, ++order->capacity, sizeof(FsdpUnit *));
    order->units[order->count++] = unit;
}

static int gather_ahead(const Fsdp *fsdp, FsdpUnit *next, Error *err) {
    return fsdp->root->config.overlap && next ? unit_start_gather(next, false, err) : 0;
}

// ---- forward ----------------------------------------------------------------------------------

static void begin_order(Fsdp *fsdp) {
    const FsdpOrder before = fsdp->last;
    fsdp->last = fsdp->now;
    fsdp->now = before;
    fsdp->now.count = 0;
}

static int before_forward(UnitForward *self, Error *err) {
    FsdpUnit *unit = self->unit;
    Fsdp *fsdp = unit->fsdp;
    // After an error other ranks may still read the memory that a gather would write.
    if (tape_error(self->tape, err) != 0 || pg_check_sound(fsdp->group, err) != 0) return -1;
    if (memory_open(fsdp, err) != 0) return -1;
    if (unit == fsdp->root) begin_order(fsdp);
    append(&fsdp->now, unit);
    self->was_whole = unit->weights != NULL;
    if (unit_gather(unit, err) != 0) return -1;
    const size_t place = fsdp->now.count;
    const bool predicted = place < fsdp->last.count && fsdp->last.units[place - 1] == unit;
    return gather_ahead(fsdp, predicted ? fsdp->last.units[place] : NULL, err);
}

static bool reshards(const FsdpUnit *unit) {
    const FsdpReshard how = unit->config.reshard_after_forward;
    return how == FSDP_RESHARD_ALWAYS || (how == FSDP_RESHARD_DEFAULT && unit != unit->fsdp->root);
}

// Returns the unit that a backward must gather first, or NULL.
static FsdpUnit *first_in_backward(const FsdpOrder *left) {
    for (size_t i = left->count; i-- > 0;)
        if (!left->units[i]->weights && left->units[i]->count > 0) return left->units[i];
    return NULL;
}

// A forward without recording leaves a unit whole only if it was whole before.
static int after_forward(UnitForward *self, Error *err) {
    FsdpUnit *unit = self->unit;
    Fsdp *fsdp = unit->fsdp;
    const Tape *tape = self->tape;
    if (tape->recording ? reshards(unit) : !self->was_whole) unit_reshard(unit);
    if (!tape->recording) return 0;
    self->place = fsdp->left.count;
    append(&fsdp->left, unit);
    if (unit != fsdp->root || tape->error.status != STATUS_OK) return 0;
    return gather_ahead(fsdp, first_in_backward(&fsdp->left), err);
}

// ---- backward ---------------------------------------------------------------------------------

static int before_backward(UnitForward *self, Error *err) {
    FsdpUnit *unit = self->unit;
    const FsdpOrder *left = &unit->fsdp->left;
    if (unit_gather(unit, err) != 0) return -1;
    unit_show_gradients(unit);
    return gather_ahead(unit->fsdp, self->place > 0 ? left->units[self->place - 1] : NULL, err);
}

// Whether no use of its parameters is still to contribute: false in a unit that was used twice.
static bool is_complete(const FsdpUnit *unit) {
    for (size_t i = 0; i < unit->count; i++)
        if (unit->parameters[i].tensor->pending_uses > 0) return false;
    return true;
}

static int after_backward(UnitForward *self, Error *err) {
    FsdpUnit *unit = self->unit;
    const bool reduces = unit->gradients && unit->fsdp->sync && is_complete(unit);
    unit_reshard(unit);
    return reduces ? unit_start_reduce(unit, err) : 0;
}

const UnitCalls AHEAD_CALLS = {"fully_shard", before_forward, after_forward, before_backward,
                               after_backward};

// ---- step -------------------------------------------------------------------------------------

static bool owns(const FsdpUnit *unit, const Tensor *tensor) {
    for (size_t i = 0; i < unit->count; i++)
        if (unit->parameters[i].tensor == tensor) return true;
    return false;
}

// Updates the parameters of the root and of the unit `second`, or those of the others.
static void apply_to(Fsdp *fsdp, const FsdpUnit *second, bool others) {
    Optimizer *optimizer = fsdp->optimizer.sharding.optimizer;
    OptimizerPart *parts = fsdp->optimizer.parts;
    for (size_t i = 0; i < optimizer->parameters.count; i++) {
        const Tensor *tensor = optimizer->parameters.items[i].tensor;
        const bool first = owns(fsdp->root, tensor) || owns(second, tensor);
        parts[i].count = first == others ? 0 : tensor_count(tensor);
    }
    optimizer_apply(optimizer);
    for (size_t i = 0; i < optimizer->parameters.count; i++)
        parts[i].count = tensor_count(optimizer->parameters.items[i].tensor);
}

// `now` is the order of the last forward. Nothing is reduced between a step and a backward.
void ahead_step(Fsdp *fsdp) {
    Error ignored = {0}; // the group's: the next gather returns it, too
    FsdpUnit *second = fsdp->now.count > 1 ? fsdp->now.units[1] : fsdp->root;
    apply_to(fsdp, second, false);
    if (unit_start_gather(fsdp->root, false, &ignored) == 0 && second != fsdp->root)
        (void)unit_start_gather(second, true, &ignored);
    apply_to(fsdp, second, true);
}
