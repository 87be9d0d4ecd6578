/* fully_shard.c: units on the tape, and operations on all units of a model.
 *
 * A unit's forward replaces its module's, which it calls between two identities (identities.h). If
 * the input needs no gradient, fsdp_finish_backward reduces and frees. The order of gathers is
 * gather_ahead.c's, collectives are in moves.c, memory in units.c.
 */
#include "ddp/fsdp/fully_shard.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "ddp/agree_kernels.h"
#include "ddp/fsdp/fsdp_internal.h"
#include "ddp/verify_model.h"

FsdpConfig fsdp_config_default(void) {
    return (FsdpConfig){.overlap = true};
}

// ---- a unit ---------------------------------------------------------------------------------

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    const FsdpUnit *unit = self->state;
    return identities_forward(self, tape, x, &AHEAD_CALLS, &unit->own);
}

Fsdp *fsdp_of(Module *module) {
    CHECK(module->forward == forward, "a %s is no unit of fully_shard", module->type);
    const FsdpUnit *unit = module->state;
    return unit->fsdp;
}

// ---- closing ------------------------------------------------------------------------------------

// Restores the module's own state and functions, which its destroy needs.
static void detach(FsdpUnit *unit) {
    Module *module = unit->module;
    module->destroy = unit->own.destroy;
    module->state = unit->own.state;
    unit_close(unit);
}

static void close_fsdp(Fsdp *fsdp) {
    sync_state_close(&fsdp->buffers);
    free(fsdp->last.units);
    free(fsdp->now.units);
    free(fsdp->left.units);
    free(fsdp->units);
    free(fsdp->optimizer.parts);
    pg_release(fsdp->group);
    free(fsdp);
}

// Module.destroy of the root and, before it has one, of each unit.
static void destroy(Module *self) {
    Fsdp *fsdp = fsdp_of(self);
    if (self != fsdp->root->module) return; // the root's destroy follows or has run
    moves_drop(fsdp);
    for (size_t i = 0; i < fsdp->count; i++) detach(fsdp->units[i]);
    memory_close(fsdp);
    close_fsdp(fsdp);
    if (self->destroy) self->destroy(self); // its own
}

// ---- construction -------------------------------------------------------------------------------

static void add_unit(Fsdp *fsdp, FsdpUnit *unit) {
    unit->fsdp = fsdp;
    unit->number = fsdp->count;
    if (!fsdp->device) fsdp->device = unit->config.device;
    fsdp->units = memory_grow(fsdp->units, fsdp->count + 1, sizeof(FsdpUnit *));
    fsdp->units[fsdp->count++] = unit;
}

// Takes over the units inside of the module, in the order of the tree, and frees their own Fsdp.
static void adopt_units(Fsdp *fsdp, const Module *module) {
    for (int i = 0; i < module->child_count; i++) {
        Module *child = module->children[i];
        Fsdp *inner = child->forward == forward ? fsdp_of(child) : fsdp;
        if (inner != fsdp) {
            for (size_t u = 0; u < inner->count; u++) add_unit(fsdp, inner->units[u]);
            close_fsdp(inner);
        }
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
    const char *scalar = NULL;
    bool trained = false;
    for (size_t i = 0; i < parameters.count; i++) {
        NamedTensor *named = &parameters.items[i];
        const size_t length = strlen(named->name);
        whole[i] = *named->tensor;
        if (whole[i].ndim == 0) scalar = named->name;
        if (whole[i].shard) { // compared, not looked up: a name that is too long is cut
            snprintf(named->name + length, sizeof named->name - length, " (of an inner unit)");
            whole[i].shape[0] = whole[i].shard->rows;
            whole[i].shard = NULL;
        }
        whole[i].device = whole[0].device;
        trained = trained || whole[i].requires_grad;
        named->tensor = &whole[i];
    }
    int status = 0;
    if (scalar)
        status = error_set(err, STATUS_FAILED,
                           "fully_shard doesn't support scalar parameters. Change %s to a 1D "
                           "tensor with numel equal to 1.",
                           scalar);
    // verify_model rejects a model without trained parameters; a unit may have none.
    else if (trained && verify_model(&parameters, &buffers, group, err) != 0)
        status = error_prefix(err, "fully_shard of %s", unit_name(module));
    named_tensors_free(&parameters);
    free(whole);
    return status;
}

// Returns the name of a parameter outside of inner units that is sharded already, or NULL.
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
    return 0;
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

int fully_shard(Module *module, ProcessGroup *group, const FsdpConfig *config, Error *err) {
    if (check_module(module, err) != 0 || verify(module, group, err) != 0) return -1;
    if (agree_kernels(module, group, err) != 0) return -1;
    Fsdp *fsdp = memory_zalloc(sizeof *fsdp);
    FsdpUnit *unit = unit_create(module, group, config);
    *fsdp = (Fsdp){.group = group, .root = unit, .sync = true};
    pg_hold(group);
    adopt_units(fsdp, module);
    add_unit(fsdp, unit);
    if (fsdp->device) move_buffers(module, fsdp);
    unit->own = (ModuleOwn){module->forward, module->destroy, module->state};
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
