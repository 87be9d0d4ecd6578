/* fully_shard.c: units on the tape, and operations on all units of a model.
 *
 * A unit's forward replaces its module's. Around the module's own forward it records two identities
 * (identities.h):
 *
 *     forward     gather   "reduce_scatter"  module's forward  "all_gather"  free
 *     backward    reduce, free  <----------  its backward  <-------  gather
 *
 * If the input needs no gradient, fsdp_finish_backward reduces and frees. The order of gathers is
 * gather_ahead.c's, collectives are in moves.c, memory in units.c.
 */
#include "ddp/fsdp/fully_shard.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "ddp/agree_kernels.h"
#include "ddp/fsdp/fsdp_internal.h"
#include "ddp/fsdp/identities.h"
#include "ddp/verify_model.h"

FsdpConfig fsdp_config_default(void) {
    return (FsdpConfig){.overlap = true};
}

// ---- a unit's forward -----------------------------------------------------------------------

static int before_backward(UnitForward *self, Error *err) {
    return ahead_before_backward(self->unit, self->place, err);
}

static int after_backward(UnitForward *self, Error *err) {
    return ahead_after_backward(self->unit, err);
}

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    FsdpUnit *unit = self->state;
    const bool was_whole = unit->weights != NULL;
    UnitForward *saved = tape_alloc(tape, sizeof *saved);
    *saved = (UnitForward){.wrapper = "fully_shard",
                           .unit = unit,
                           .before_backward = before_backward,
                           .after_backward = after_backward};
    Error err = {0};
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    identities_exposed(tape, saved, phase, ahead_before_forward(unit, tape, &err), &err);
    if (tape->error.status != STATUS_OK) return NULL;
    x = identities_enter(tape, x, saved);
    self->state = unit->state;
    Tensor *y = unit->forward(self, tape, x);
    self->state = unit;
    y = identities_leave(tape, y, saved);
    if (ahead_after_forward(unit, tape, was_whole, &saved->place, &err) != 0)
        tape_fail(tape, saved->wrapper, "%s", err.message);
    return y;
}

static FsdpUnit *unit_of(Module *module) {
    CHECK(module->forward == forward, "a %s is no unit of fully_shard", module->type);
    return module->state;
}

Fsdp *fsdp_of(Module *module) {
    return unit_of(module)->fsdp;
}

// ---- closing ------------------------------------------------------------------------------------

// Gives the module back its own functions.
static void detach(FsdpUnit *unit) {
    Module *module = unit->module;
    module->forward = unit->forward;
    module->destroy = unit->destroy;
    module->state = unit->state;
    unit_close(unit);
}

// Module.destroy of the root and, before it has one, of each unit.
static void destroy(Module *self) {
    Fsdp *fsdp = fsdp_of(self);
    if (self != fsdp->root->module) return; // the root's destroy follows or has run
    moves_drop(fsdp);
    sync_state_close(&fsdp->buffers);
    for (size_t i = 0; i < fsdp->count; i++) detach(fsdp->units[i]);
    memory_close(fsdp);
    free(fsdp->last.units);
    free(fsdp->now.units);
    free(fsdp->left.units);
    free(fsdp->units);
    free(fsdp->optimizer.parts);
    free(fsdp);
    if (self->destroy) self->destroy(self); // its own
}

// ---- construction -------------------------------------------------------------------------------

// Frees the Fsdp of an inner unit, whose units the outer one has taken over.
static void adopt(Fsdp *outer, Fsdp *inner) {
    for (size_t i = 0; i < inner->count; i++) {
        inner->units[i]->fsdp = outer;
        outer->units = memory_grow(outer->units, outer->count + 1, sizeof(FsdpUnit *));
        outer->units[outer->count++] = inner->units[i];
    }
    sync_state_close(&inner->buffers);
    free(inner->units);
    free(inner->optimizer.parts);
    free(inner);
}

// Takes over the units inside of the module, in the order of the tree.
static void adopt_units(Fsdp *fsdp, const Module *module) {
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        if (child->forward == forward && fsdp_of(child) != fsdp) adopt(fsdp, fsdp_of(child));
        adopt_units(fsdp, child);
    }
}

static const char *unit_name(const Module *module) {
    return module->name[0] ? module->name : module->type;
}

// Compares the ranks' units: each parameter of the tree, whole, and whether an inner unit has it.
static int verify(Module *module, ProcessGroup *group, Error *err) {
    NamedTensors parameters = module_tensors(module, MODULE_PARAMETERS), buffers = {0};
    Tensor *whole = memory_zalloc((parameters.count + 1) * sizeof *whole);
    bool trained = false;
    for (size_t i = 0; i < parameters.count; i++) {
        NamedTensor *named = &parameters.items[i];
        const Tensor *tensor = named->tensor;
        const size_t length = strlen(named->name);
        if (tensor->shard) // compared, not looked up: a name that is too long is cut
            snprintf(named->name + length, sizeof named->name - length, " (of an inner unit)");
        whole[i] = tensor_whole(tensor);
        whole[i].device = whole[0].device;
        whole[i].requires_grad = tensor->requires_grad;
        whole[i].on_ready = tensor->on_ready;
        trained = trained || tensor->requires_grad;
        named->tensor = &whole[i];
    }
    // verify_model rejects a model without trained parameters; a unit may have none.
    int status = trained ? verify_model(&parameters, &buffers, group, err) : 0;
    named_tensors_free(&parameters);
    free(whole);
    return status == 0 ? 0 : error_prefix(err, "fully_shard of %s", unit_name(module));
}

// Returns the name of a parameter outside of inner units that is a shard already; NULL: none.
static const char *sharded_outside(Module *module) {
    const char *name = NULL;
    for (int i = 0; i < module->parameter_count && !name; i++)
        if (module_parameter(module, i)->shard) name = module->parameters[i].name;
    for (int i = 0; i < module->child_count && !name; i++)
        if (module->children[i]->forward != forward) name = sharded_outside(module->children[i]);
    return name;
}

static int check_module(Module *module, Error *err) {
    if (!module->forward)
        return error_set(err, STATUS_FAILED,
                         "fully_shard does not support %s: a %s has no forward of its own, its "
                         "parent runs its children",
                         unit_name(module), module->type);
    if (module->forward == forward)
        return error_set(err, STATUS_FAILED, "fully_shard has already been applied to %s",
                         unit_name(module));
    const char *sharded = sharded_outside(module);
    if (sharded)
        return error_set(err, STATUS_FAILED,
                         "fully_shard of %s: an outer unit has its %s already -- call fully_shard "
                         "for inner modules first, for the root last",
                         unit_name(module), sharded);
    NamedTensors parameters = module_tensors(module, MODULE_PARAMETERS);
    int status = 0;
    for (size_t i = 0; i < parameters.count && status == 0; i++)
        if (parameters.items[i].tensor->ndim == 0)
            status = error_set(err, STATUS_FAILED,
                               "fully_shard doesn't support scalar parameters. Change %s to a 1D "
                               "tensor with numel equal to 1.",
                               parameters.items[i].name);
    named_tensors_free(&parameters);
    return status;
}

// Moves the buffers to the device of the shards, where they are broadcast.
static void move_buffers(Module *module, Fsdp *fsdp) {
    for (int i = 0; i < module->buffer_count; i++) {
        ModuleTensor *entry = &module->buffers[i];
        Tensor *tensor = &entry->tensor;
        Device *from = tensor->device;
        if (from == fsdp->device) continue;
        const size_t bytes = tensor_bytes(tensor);
        void *data = device_alloc(fsdp->device, bytes);
        if (!device_is_dry(from)) device_copy(fsdp->device, data, from, tensor->data, bytes);
        device_free(from, tensor->data, bytes);
        tensor->device = fsdp->device;
        tensor->data = data;
    }
    for (int i = 0; i < module->child_count; i++) move_buffers(module->children[i], fsdp);
}

// The device of the unit or, if it has no parameter, of a unit inside.
static Device *device_of(const Fsdp *fsdp) {
    for (size_t i = fsdp->count; i-- > 0;)
        if (fsdp->units[i]->config.device) return fsdp->units[i]->config.device;
    return NULL;
}

int fully_shard(Module *module, ProcessGroup *group, const FsdpConfig *config, Error *err) {
    if (check_module(module, err) != 0 || verify(module, group, err) != 0) return -1;
    if (agree_kernels(module, group, err) != 0) return -1;
    Fsdp *fsdp = memory_zalloc(sizeof *fsdp);
    FsdpUnit *unit = unit_create(module, group, config);
    *fsdp = (Fsdp){.group = group, .root = unit, .sync = true};
    unit->fsdp = fsdp;
    adopt_units(fsdp, module);
    fsdp->units = memory_grow(fsdp->units, fsdp->count + 1, sizeof(FsdpUnit *));
    fsdp->units[fsdp->count++] = unit;
    fsdp->device = device_of(fsdp);
    if (fsdp->device) move_buffers(module, fsdp);
    unit->forward = module->forward;
    unit->destroy = module->destroy;
    unit->state = module->state;
    module->forward = forward;
    module->destroy = destroy;
    module->state = unit;
    fsdp->buffers =
        sync_state_open(module_tensors(module, MODULE_BUFFERS), group, SYNC_STATE_BYTES);
    return 0;
}

// ---- all units ----------------------------------------------------------------------------------

static int finish_units(Fsdp *fsdp, Error *err) {
    for (size_t i = 0; i < fsdp->count; i++) unit_reshard(fsdp->units[i]);
    for (size_t i = fsdp->count; fsdp->sync && i-- > 0;)
        if (fsdp->units[i]->gradients && unit_start_reduce(fsdp->units[i], err) != 0) return -1;
    return reduce_finish(fsdp, err);
}

int fsdp_finish_backward(Module *root, Profile *profile, Error *err) {
    Phase phase = profile_enter(profile, PHASE_EXPOSED);
    Fsdp *fsdp = fsdp_of(root);
    int status = finish_units(fsdp, err);
    fsdp->left.count = 0;
    profile_leave(profile, phase);
    return status;
}

bool fsdp_set_requires_gradient_sync(Module *root, bool sync) {
    Fsdp *fsdp = fsdp_of(root);
    bool before = fsdp->sync;
    fsdp->sync = sync;
    return before;
}

int fsdp_sync_buffers(Module *root, Error *err) {
    return sync_state_run(&fsdp_of(root)->buffers, 0, err);
}

ProcessGroup *fsdp_group(Module *root) {
    return fsdp_of(root)->group;
}

size_t fsdp_unit_count(Module *root) {
    return fsdp_of(root)->count;
}

FsdpUnitSize fsdp_unit_size(Module *root, size_t unit) {
    const FsdpUnit *of = fsdp_of(root)->units[unit];
    return (FsdpUnitSize){.shard = of->shard_floats, .whole = of->whole_floats};
}
