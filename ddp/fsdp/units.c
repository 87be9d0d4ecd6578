/* units.c: cuts parameters into shards, and shows a parameter's Tensor as its shard or as the whole
 * tensor.
 *
 * Invariant: unit->weights is NULL exactly while all tensors of the unit are shards.
 */
#include <string.h>

#include "common/base/memory.h"
#include "ddp/fsdp/fsdp_internal.h"

// ---- creation ---------------------------------------------------------------------------------

// Whether every use of the parameter is an operand of a product, which autocast rounds.
static bool is_operand(const Module *module, const Tensor *parameter) {
    const bool product = strcmp(module->type, "Linear") == 0 || strcmp(module->type, "Conv2d") == 0;
    for (int i = 0; product && i < module->parameter_count; i++) {
        const ModuleTensor *entry = &module->parameters[i];
        if (&entry->tensor == parameter) return entry->ties == 0 && parameter->ndim > 1;
    }
    for (int i = 0; i < module->child_count; i++)
        if (is_operand(module->children[i], parameter)) return true;
    return false;
}

static size_t whole_lines(size_t floats) {
    return memory_whole_lines(floats * sizeof(float)) / sizeof(float);
}

// Describes the rows of rank `rank`, by torch.chunk's rule, and the parameter's place in the unit.
static void plan_parameter(FsdpUnit *unit, const NamedTensor *named, ProcessGroup *group) {
    FsdpParameter *parameter = &unit->parameters[unit->count++];
    const Tensor *tensor = named->tensor;
    const size_t world = (size_t)pg_size(group), rank = (size_t)pg_rank(group);
    const size_t rows = tensor->shape[0], chunk = (rows + world - 1) / world;
    const size_t first = rank * chunk < rows ? rank * chunk : rows;
    *parameter = (FsdpParameter){.tensor = named->tensor,
                                 .shard = {.first = first, .rows = rows},
                                 .own_rows = rows - first < chunk ? rows - first : chunk,
                                 .padded = rows ? tensor_count(tensor) / rows * chunk : 0,
                                 .shard_at = unit->shard_floats,
                                 .whole_at = unit->whole_floats,
                                 .gather_at = unit->piece_words};
    memcpy(parameter->name, named->name, sizeof parameter->name);
    parameter->half =
        unit->config.precision != PRECISION_F32 && is_operand(unit->module, named->tensor);
    unit->shard_floats += parameter->padded;
    unit->whole_floats += whole_lines(world * parameter->padded);
    unit->piece_words += parameter->half ? (parameter->padded + 1) / 2 : parameter->padded;
    unit->trained = unit->trained || tensor->requires_grad;
}

// Shows the shard: its memory and its rows. The gradient's flag is the caller's.
static void show_shard(const FsdpUnit *unit, FsdpParameter *parameter) {
    Tensor *tensor = parameter->tensor;
    tensor->shape[0] = parameter->own_rows;
    tensor->data = unit->shards + parameter->shard_at;
    tensor->grad = tensor->requires_grad ? unit->shard_grads + parameter->shard_at : NULL;
    tensor->shard = &parameter->shard;
}

// Cuts the shard out of the whole tensor, if that has contents.
static void copy_shard(const FsdpUnit *unit, const FsdpParameter *parameter) {
    Tensor shard = *parameter->tensor;
    shard.shape[0] = parameter->own_rows;
    shard.shard = &parameter->shard;
    if (!device_is_dry(shard.device))
        device_copy(unit->config.device, unit->shards + parameter->shard_at, shard.device,
                    tensor_f32(&shard) + tensor_first(&shard), tensor_bytes(&shard));
}

FsdpUnit *unit_create(Module *module, ProcessGroup *group, const FsdpConfig *config) {
    FsdpUnit *unit = memory_zalloc(sizeof *unit);
    NamedTensors all = module_tensors(module, MODULE_PARAMETERS), free_ones = {0};
    *unit = (FsdpUnit){.module = module, .config = *config};
    unit->parameters = memory_zalloc((all.count + 1) * sizeof *unit->parameters);
    free_ones.items = memory_zalloc((all.count + 1) * sizeof *free_ones.items);
    for (size_t i = 0; i < all.count; i++) {
        const NamedTensor *named = &all.items[i];
        if (named->tensor->shard || !module_holds_ties(module, named->tensor)) continue;
        free_ones.items[free_ones.count++] = *named;
        plan_parameter(unit, named, group);
    }
    if (!unit->config.device && unit->count > 0)
        unit->config.device = unit->parameters[0].tensor->device;
    Device *device = unit->config.device;
    if (unit->count > 0) {
        const size_t bytes = unit->shard_floats * sizeof(float);
        unit->shards = device_alloc(device, bytes);
        device_kernels(device)->elementwise->fill(unit->shards, 0, unit->shard_floats);
        if (unit->trained) unit->shard_grads = device_alloc(device, bytes);
    }
    for (size_t i = 0; i < unit->count; i++) copy_shard(unit, &unit->parameters[i]);
    module_release_grads(module, &free_ones);
    module_release_data(module, &free_ones);
    for (size_t i = 0; i < unit->count; i++) {
        unit->parameters[i].tensor->device = device;
        show_shard(unit, &unit->parameters[i]);
    }
    named_tensors_free(&free_ones);
    named_tensors_free(&all);
    return unit;
}

void unit_close(FsdpUnit *unit) {
    const size_t bytes = unit->shard_floats * sizeof(float);
    if (unit->shards) device_free(unit->config.device, unit->shards, bytes);
    if (unit->shard_grads) device_free(unit->config.device, unit->shard_grads, bytes);
    free(unit->parameters);
    free(unit);
}

// ---- memory of all units ------------------------------------------------------------------------

// Slots are reused, so that after the first steps nothing is allocated.
float *slot_take(Fsdp *fsdp, const FsdpUnit *unit) {
    const size_t floats = unit == fsdp->root ? unit->whole_floats : fsdp->slot_floats;
    for (size_t i = 0; i < fsdp->slot_count; i++) {
        FsdpSlot *slot = &fsdp->slots[i];
        if (slot->in_use || slot->floats != floats) continue;
        slot->in_use = true;
        return slot->memory;
    }
    fsdp->slots = memory_grow(fsdp->slots, fsdp->slot_count + 1, sizeof *fsdp->slots);
    FsdpSlot *slot = &fsdp->slots[fsdp->slot_count++];
    *slot = (FsdpSlot){device_alloc(fsdp->device, floats * sizeof(float)), floats, true};
    return slot->memory;
}

void slot_return(Fsdp *fsdp, const float *memory) {
    for (size_t i = 0; i < fsdp->slot_count; i++)
        if (fsdp->slots[i].memory == memory) fsdp->slots[i].in_use = false;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

// Pieces of the largest unit but the root fit; of a root without units inside, 1 MiB.
static void choose_rooms(Fsdp *fsdp) {
    enum { LEAST = 1 << 18 };
    const FsdpUnit *root = fsdp->root;
    size_t most = 0;
    for (size_t i = 0; i < fsdp->count; i++) {
        const FsdpUnit *unit = fsdp->units[i];
        fsdp->units[i]->number = i;
        most = larger(most, unit->count);
        if (unit == root) continue;
        fsdp->slot_floats = larger(fsdp->slot_floats, unit->whole_floats);
        fsdp->gather_room = larger(fsdp->gather_room, unit->piece_words);
        if (unit->trained) fsdp->reduce_room = larger(fsdp->reduce_room, unit->shard_floats);
    }
    const size_t alone = root->shard_floats < LEAST ? root->shard_floats : LEAST;
    if (fsdp->gather_room == 0) fsdp->gather_room = larger(alone, 1);
    if (fsdp->reduce_room == 0) fsdp->reduce_room = larger(alone, 1);
    fsdp->slices = memory_zalloc((most + 1) * sizeof *fsdp->slices);
}

static size_t room_bytes(const Fsdp *fsdp, size_t room) {
    return (size_t)pg_size(fsdp->group) * room * sizeof(float);
}

int memory_open(Fsdp *fsdp, Error *err) {
    if (fsdp->arriving) return 0;
    choose_rooms(fsdp);
    fsdp->arriving = pg_shared_alloc(fsdp->group, room_bytes(fsdp, fsdp->gather_room), err);
    if (!fsdp->arriving) return -1;
    device_count(fsdp->device, room_bytes(fsdp, fsdp->gather_room));
    fsdp->leaving = pg_shared_alloc(fsdp->group, room_bytes(fsdp, fsdp->reduce_room), err);
    if (!fsdp->leaving) return -1;
    device_count(fsdp->device, room_bytes(fsdp, fsdp->reduce_room));
    return 0;
}

// pg_close frees the shared memory.
void memory_close(Fsdp *fsdp) {
    for (size_t i = 0; i < fsdp->slot_count; i++)
        device_free(fsdp->device, fsdp->slots[i].memory, fsdp->slots[i].floats * sizeof(float));
    if (fsdp->arriving) device_uncount(fsdp->device, room_bytes(fsdp, fsdp->gather_room));
    if (fsdp->leaving) device_uncount(fsdp->device, room_bytes(fsdp, fsdp->reduce_room));
    free(fsdp->slots);
    free(fsdp->slices);
}

// ---- the two states -----------------------------------------------------------------------------

// In forward, has_grad stays the shard's, so that zero_grad before backward clears the shard's
// gradient.
void unit_show_whole(FsdpUnit *unit) {
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        Tensor *tensor = parameter->tensor;
        tensor->shape[0] = parameter->shard.rows;
        tensor->data = unit->weights + parameter->whole_at;
        tensor->grad = NULL;
        tensor->shard = NULL;
    }
}

void unit_show_gradients(FsdpUnit *unit) {
    if (!unit->trained || unit->shows_gradients) return;
    if (!unit->gradients) unit->gradients = slot_take(unit->fsdp, unit);
    for (size_t i = 0; i < unit->count; i++) {
        FsdpParameter *parameter = &unit->parameters[i];
        Tensor *tensor = parameter->tensor;
        if (!tensor->requires_grad) continue;
        parameter->shard_has_grad = tensor->has_grad;
        tensor->has_grad = parameter->whole_has_grad;
        tensor->grad = unit->gradients + parameter->whole_at;
    }
    unit->shows_gradients = true;
}

void unit_reshard(FsdpUnit *unit) {
    if (!unit->weights) return;
    for (size_t i = 0; i < unit->count; i++) {
        FsdpParameter *parameter = &unit->parameters[i];
        Tensor *tensor = parameter->tensor;
        if (unit->shows_gradients && tensor->requires_grad) {
            parameter->whole_has_grad = tensor->has_grad;
            tensor->has_grad = parameter->shard_has_grad;
        }
        show_shard(unit, parameter);
    }
    unit->shows_gradients = false;
    slot_return(unit->fsdp, unit->weights);
    unit->weights = NULL;
}
