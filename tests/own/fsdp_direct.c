/* fsdp_direct.c: the shortest fully sharded wrapper. Collectives gather from the shards directly
 * into whole parameters, and reduce-scatter whole gradients directly into shards, so nothing is
 * copied. The next unit in forward is taken to be the next in the list.
 */
#include <stdlib.h>

#include "ddp/fsdp/own/own_fsdp.h"

typedef struct Parameter {
    Tensor *tensor;
    TensorShard shard;
    size_t own_rows, piece; // piece: floats of a shard, padding included
    size_t mine, at; // offset of the shard in the unit's shards; of the parameter in the whole unit
    bool has_grad;   // the whole gradient was written
    PgWork *gather, *reduce;
} Parameter;

typedef struct Unit {
    Parameter *parameters;
    size_t count, shard_floats, floats; // floats: of the whole unit
    float *shards, *shard_grads;        // [shard_floats]
    float *weights, *gradients;         // [floats], whole; NULL: not allocated
    bool whole;
} Unit;

typedef struct Fsdp {
    ProcessGroup *group;
    ReduceOp op;
    Device *device;
    Unit *units; // [count], the root unit last
    size_t count;
    Unit *ahead, *reducing; // units with a gather or a reduce-scatter in flight; NULL: none
} Fsdp;

static size_t whole_lines(size_t floats) {
    return (floats + 15) / 16 * 16;
}

static void take(const Fsdp *fsdp, const Unit *unit, float **memory) {
    if (!*memory) *memory = device_alloc(fsdp->device, unit->floats * sizeof(float));
}

static void give_back(const Fsdp *fsdp, const Unit *unit, float **memory) {
    device_free(fsdp->device, *memory, unit->floats * sizeof(float));
    *memory = NULL;
}

// ---- sharded and whole --------------------------------------------------------------------------

static void show_shard(const Unit *unit, Parameter *parameter) {
    Tensor *tensor = parameter->tensor;
    tensor->shape[0] = parameter->own_rows;
    tensor->data = unit->shards + parameter->mine;
    tensor->grad = tensor->requires_grad ? unit->shard_grads + parameter->mine : NULL;
    tensor->shard = &parameter->shard;
}

static void reshard(Fsdp *fsdp, Unit *unit) {
    for (size_t i = 0; i < unit->count; i++) show_shard(unit, &unit->parameters[i]);
    give_back(fsdp, unit, &unit->weights);
    unit->whole = false;
}

// ---- collectives --------------------------------------------------------------------------------

static int start_gather(Fsdp *fsdp, Unit *unit, Error *err) {
    if (unit->weights) return 0;
    take(fsdp, unit, &unit->weights);
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        const size_t piece = parameter->piece;
        const float *mine = unit->shards + parameter->mine;
        Collective all = pg_all_gather(mine, unit->weights + parameter->at, piece, PG_F32);
        parameter->gather = pg_start(fsdp->group, all, err);
        if (!parameter->gather) return -1;
    }
    return 0;
}

static int wait_for(PgWork **work, Error *err) {
    PgWork *waited = *work;
    *work = NULL;
    return waited ? pg_work_wait(waited, NULL, NULL, err) : 0;
}

static int gather(Fsdp *fsdp, Unit *unit, Error *err) {
    Unit *ahead = fsdp->ahead;
    fsdp->ahead = NULL;
    if (ahead && ahead != unit) { // the unit that was gathered ahead is not this unit
        for (size_t i = 0; i < ahead->count; i++)
            if (wait_for(&ahead->parameters[i].gather, err) != 0) return -1;
        give_back(fsdp, ahead, &ahead->weights);
    }
    if (unit->whole) return 0;
    if (start_gather(fsdp, unit, err) != 0) return -1;
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        if (wait_for(&parameter->gather, err) != 0) return -1;
        parameter->tensor->shape[0] = parameter->shard.rows;
        parameter->tensor->data = unit->weights + parameter->at;
        parameter->tensor->grad = NULL;
        parameter->tensor->shard = NULL;
    }
    unit->whole = true;
    return 0;
}

static int gather_ahead(Fsdp *fsdp, Unit *next, Error *err) {
    if (next->weights) return 0;
    fsdp->ahead = next;
    return start_gather(fsdp, next, err);
}

static int start_reduce(Fsdp *fsdp, Unit *unit, Error *err) {
    fsdp->reducing = unit;
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        const size_t piece = parameter->piece;
        if (!parameter->has_grad) continue;
        const float *whole = unit->gradients + parameter->at;
        float *mine = unit->shard_grads + parameter->mine;
        Collective sum = pg_reduce_scatter(whole, mine, piece, PG_F32, fsdp->op);
        parameter->reduce = pg_start(fsdp->group, sum, err);
        if (!parameter->reduce) return -1;
    }
    return 0;
}

static int finish_reduce(Fsdp *fsdp, Error *err) {
    Unit *unit = fsdp->reducing;
    if (!unit) return 0;
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        if (!parameter->has_grad) continue;
        if (wait_for(&parameter->reduce, err) != 0) return -1;
        parameter->tensor->has_grad = true;
        parameter->has_grad = false;
    }
    give_back(fsdp, unit, &unit->gradients);
    fsdp->reducing = NULL;
    return 0;
}

// ---- before and after a unit --------------------------------------------------------------------

static int own_before_forward(void *self, size_t number, Error *err) {
    Fsdp *fsdp = self;
    const size_t root = fsdp->count - 1, next = number == root ? 0 : number + 1;
    if (gather(fsdp, &fsdp->units[number], err) != 0) return -1;
    return next == root ? 0 : gather_ahead(fsdp, &fsdp->units[next], err);
}

static int own_after_forward(void *self, size_t number, bool backward_follows, Error *err) {
    Fsdp *fsdp = self;
    (void)err;
    if (number == fsdp->count - 1 && backward_follows) return 0;
    reshard(fsdp, &fsdp->units[number]);
    return 0;
}

static int own_before_backward(void *self, size_t number, Error *err) {
    Fsdp *fsdp = self;
    Unit *unit = &fsdp->units[number];
    if (gather(fsdp, unit, err) != 0) return -1;
    take(fsdp, unit, &unit->gradients);
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        if (!parameter->tensor->requires_grad) continue;
        parameter->tensor->grad = unit->gradients + parameter->at;
        parameter->tensor->has_grad = parameter->has_grad;
    }
    return number == 0 ? 0 : gather_ahead(fsdp, &fsdp->units[number - 1], err);
}

static int own_after_backward(void *self, size_t number, bool complete, Error *err) {
    Fsdp *fsdp = self;
    Unit *unit = &fsdp->units[number];
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        if (!parameter->tensor->requires_grad) continue;
        parameter->has_grad = parameter->tensor->has_grad;
        parameter->tensor->has_grad = false;
    }
    reshard(fsdp, unit);
    if (!complete) return 0;
    if (finish_reduce(fsdp, err) != 0) return -1;
    return start_reduce(fsdp, unit, err);
}

static int own_finish_backward(void *self, Error *err) {
    Fsdp *fsdp = self;
    if (finish_reduce(fsdp, err) != 0) return -1;
    reshard(fsdp, &fsdp->units[fsdp->count - 1]);
    return 0;
}

// ---- open and close -----------------------------------------------------------------------------

static void own_close(void *self) {
    Fsdp *fsdp = self;
    for (size_t u = 0; u < fsdp->count; u++) {
        Unit *unit = &fsdp->units[u];
        for (size_t i = 0; i < unit->count; i++) {
            Parameter *parameter = &unit->parameters[i];
            (void)wait_for(&parameter->gather, &(Error){0});
            (void)wait_for(&parameter->reduce, &(Error){0});
            parameter->tensor->data = parameter->tensor->grad = NULL;
            parameter->tensor->shard = NULL;
        }
        give_back(fsdp, unit, &unit->weights);
        give_back(fsdp, unit, &unit->gradients);
        device_free(fsdp->device, unit->shards, unit->shard_floats * sizeof(float));
        device_free(fsdp->device, unit->shard_grads, unit->shard_floats * sizeof(float));
        free(unit->parameters);
    }
    free(fsdp->units);
    free(fsdp);
}

// Computes the layout of the unit's shards.
static void plan(Unit *unit, const OwnFsdpUnit *listed, ProcessGroup *group) {
    const size_t world = (size_t)pg_size(group), rank = (size_t)pg_rank(group);
    unit->count = listed->parameters.count;
    unit->parameters = calloc(unit->count + 1, sizeof *unit->parameters);
    for (size_t i = 0; i < unit->count; i++) {
        Parameter *parameter = &unit->parameters[i];
        Tensor *tensor = listed->parameters.items[i].tensor;
        const size_t rows = tensor->shape[0], chunk = (rows + world - 1) / world;
        const size_t first = rank * chunk < rows ? rank * chunk : rows;
        parameter->tensor = tensor;
        parameter->shard = (TensorShard){.first = first, .rows = rows};
        parameter->own_rows = rows - first < chunk ? rows - first : chunk;
        parameter->piece = tensor_count(tensor) / rows * chunk;
        parameter->mine = unit->shard_floats;
        parameter->at = unit->floats;
        unit->shard_floats += parameter->piece;
        unit->floats += whole_lines(world * parameter->piece);
    }
}

// Copies this rank's rows of rank 0's weights into the shards, and frees the whole parameters.
static int shard(Fsdp *fsdp, Unit *unit, Module *model, const NamedTensors *parameters,
                 Error *err) {
    const size_t bytes = unit->shard_floats * sizeof(float);
    unit->shards = device_alloc(fsdp->device, bytes);
    unit->shard_grads = device_alloc(fsdp->device, bytes);
    for (size_t i = 0; i < unit->count; i++) {
        const Parameter *parameter = &unit->parameters[i];
        Tensor *tensor = parameter->tensor;
        const size_t row = tensor_count(tensor) / tensor->shape[0];
        Collective weights = pg_broadcast(tensor->data, tensor_count(tensor), PG_F32, 0);
        if (pg_run(fsdp->group, weights, err) != 0) return -1;
        device_copy(fsdp->device, unit->shards + parameter->mine, fsdp->device,
                    (float *)tensor->data + parameter->shard.first * row,
                    parameter->own_rows * row * sizeof(float));
    }
    module_release_grads(model, parameters);
    module_release_data(model, parameters);
    reshard(fsdp, unit);
    return 0;
}

static void *own_open(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                      ReduceOp op, Error *err) {
    Fsdp *fsdp = calloc(1, sizeof *fsdp);
    *fsdp = (Fsdp){.group = group, .op = op, .count = count};
    fsdp->units = calloc(count, sizeof *fsdp->units);
    for (size_t u = 0; u < count; u++) {
        plan(&fsdp->units[u], &units[u], group);
        if (units[u].parameters.count > 0)
            fsdp->device = units[u].parameters.items[0].tensor->device;
    }
    for (size_t u = 0; u < count; u++)
        if (shard(fsdp, &fsdp->units[u], model, &units[u].parameters, err) != 0) return NULL;
    return fsdp;
}

const OwnFsdp own_fsdp = {
    OWN_FSDP_VERSION,    own_open,           own_before_forward,  own_after_forward,
    own_before_backward, own_after_backward, own_finish_backward, own_close};
