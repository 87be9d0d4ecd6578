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

ChunkRows chunk_rows(size_t rows, int world, int rank) {
    const size_t chunk = (rows + (size_t)world - 1) / (size_t)world;
    const size_t first = smaller((size_t)rank * chunk, rows);
    return (ChunkRows){first, smaller(rows - first, chunk)};
}

// Describes this rank's rows of the parameter, and appends it to the unit's memory and pieces.
static void add_parameter(FsdpUnit *unit, Tensor *tensor, bool half, ProcessGroup *group) {
    const int world = pg_size(group);
    const size_t rows = tensor->shape[0], most = chunk_rows(rows, world, 0).count;
    const ChunkRows own = chunk_rows(rows, world, pg_rank(group));
    const size_t padded = rows ? tensor_count(tensor) / rows * most : 0;
    unit->parameters[unit->count++] = (FsdpParameter){.tensor = tensor,
                                                      .shard = {.first = own.first, .rows = rows},
                                                      .own_rows = own.count,
                                                      .padded = padded,
                                                      .half = half,
                                                      .shard_at = unit->shard_floats,
                                                      .whole_at = unit->whole_floats};
    unit->shard_floats += padded;
    unit->whole_floats += whole_lines((size_t)world * padded);
    unit->piece_words += half ? (padded + 1) / 2 : padded;
    unit->trained = unit->trained || tensor->requires_grad;
}

// The module's parameters that no inner unit has and no module outside shares.
static NamedTensors free_parameters(Module *module) {
    NamedTensors found = module_tensors(module, MODULE_PARAMETERS);
    size_t count = 0;
    for (size_t i = 0; i < found.count; i++)
        if (!found.items[i].tensor->shard && module_holds_ties(module, found.items[i].tensor))
            found.items[count++] = found.items[i];
    found.count = count;
    return found;
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
    NamedTensors mine = free_parameters(module);
    *unit = (FsdpUnit){.module = module, .config = *config};
    unit->parameters = memory_zalloc((mine.count + 1) * sizeof *unit->parameters);
    for (int half = 0; half < 2; half++)
        for (size_t i = 0; i < mine.count; i++) {
            Tensor *tensor = mine.items[i].tensor;
            const bool rounded = config->precision != PRECISION_F32 && is_operand(module, tensor);
            if (rounded == half) add_parameter(unit, tensor, half, group);
        }
    if (unit->count > 0) {
        Device *device = config->device ? config->device : mine.items[0].tensor->device;
        const size_t bytes = unit->shard_floats * sizeof(float);
        unit->config.device = device;
        unit->shards = device_alloc(device, bytes);
        device_kernels(device)->elementwise->fill(unit->shards, 0, unit->shard_floats);
        if (unit->trained) unit->shard_grads = device_alloc(device, bytes);
    }
    for (size_t i = 0; i < unit->count; i++) copy_shard(unit, &unit->parameters[i]);
    module_release_grads(module, &mine);
    module_release_data(module, &mine);
    for (size_t i = 0; i < unit->count; i++) {
        unit->parameters[i].tensor->device = unit->config.device;
        show_shard(unit, &unit->parameters[i]);
    }
    named_tensors_free(&mine);
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

// Pieces of the largest unit but the root fit; of a root without units inside, 1 MiB.
static void choose_rooms(Fsdp *fsdp) {
    enum { ALONE = 1 << 18 };
    const size_t alone = larger(smaller(fsdp->root->shard_floats, ALONE), 1);
    size_t most = fsdp->root->count;
    for (size_t i = 0; i < fsdp->count - 1; i++) {
        const FsdpUnit *unit = fsdp->units[i];
        most = larger(most, unit->count);
        fsdp->slot_floats = larger(fsdp->slot_floats, unit->whole_floats);
        fsdp->gather_room = larger(fsdp->gather_room, unit->piece_words);
        if (unit->trained) fsdp->reduce_room = larger(fsdp->reduce_room, unit->shard_floats);
    }
    fsdp->gather_room = whole_lines(fsdp->gather_room ? fsdp->gather_room : alone);
    if (fsdp->reduce_room == 0) fsdp->reduce_room = alone;
    fsdp->slices = memory_zalloc((most + 1) * sizeof *fsdp->slices);
}

static size_t rooms_bytes(const Fsdp *fsdp) {
    return (size_t)pg_size(fsdp->group) * (fsdp->gather_room + fsdp->reduce_room) * sizeof(float);
}

int memory_open(Fsdp *fsdp, Error *err) {
    if (fsdp->arriving) return 0;
    choose_rooms(fsdp);
    fsdp->arriving = pg_shared_alloc(fsdp->group, rooms_bytes(fsdp), err);
    if (!fsdp->arriving) return -1;
    fsdp->leaving = fsdp->arriving + (size_t)pg_size(fsdp->group) * fsdp->gather_room;
    device_count(fsdp->device, rooms_bytes(fsdp));
    return 0;
}

// pg_close frees the shared memory.
void memory_close(Fsdp *fsdp) {
    for (size_t i = 0; i < fsdp->slot_count; i++)
        device_free(fsdp->device, fsdp->slots[i].memory, fsdp->slots[i].floats * sizeof(float));
    if (fsdp->arriving) device_uncount(fsdp->device, rooms_bytes(fsdp));
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

static void swap_has_grad(FsdpUnit *unit) {
    for (size_t i = 0; i < unit->count; i++) {
        FsdpParameter *parameter = &unit->parameters[i];
        const bool shown = parameter->tensor->has_grad;
        parameter->tensor->has_grad = parameter->hidden_has_grad;
        parameter->hidden_has_grad = shown;
    }
}

void unit_show_gradients(FsdpUnit *unit) {
    if (!unit->trained || unit->shows_gradients) return;
    if (!unit->gradients) unit->gradients = slot_take(unit->fsdp, unit);
    for (size_t i = 0; i < unit->count; i++) {
        const FsdpParameter *parameter = &unit->parameters[i];
        if (parameter->tensor->requires_grad)
            parameter->tensor->grad = unit->gradients + parameter->whole_at;
    }
    swap_has_grad(unit);
    unit->shows_gradients = true;
}

void unit_reshard(FsdpUnit *unit) {
    if (!unit->weights) return;
    for (size_t i = 0; i < unit->count; i++) show_shard(unit, &unit->parameters[i]);
    if (unit->shows_gradients) swap_has_grad(unit);
    unit->shows_gradients = false;
    slot_return(unit->fsdp, unit->weights);
    unit->weights = NULL;
}
