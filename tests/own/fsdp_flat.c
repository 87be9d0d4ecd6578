/* fsdp_flat.c: a fully sharded wrapper with one collective for each unit. A unit's shards lie one
 * after the other in one flat array; the gathered arrays are unpacked into whole parameters, which
 * are allocated and freed each time. The next unit is taken to be the next in the list.
 */
#include <stdlib.h>
#include <string.h>

#include "ddp/fsdp/own/own_fsdp.h"

typedef struct Item { // one parameter
    Tensor *tensor;
    TensorShard shard;
    size_t rows, floats; // of the shard; floats with padding
    size_t in_piece;     // offset in the flat array; its W-fold: in the whole unit
    bool has_grad;
} Item;

typedef struct Unit {
    Item *items;
    size_t count, piece;         // piece: floats of the flat array
    float *shards, *shard_grads; // [piece]
    float *whole, *whole_grads;  // [W, piece], ordered by parameter; NULL: not allocated
    float *arriving, *leaving;   // [W, piece], ordered by rank
    PgWork *gather, *reduce;
} Unit;

typedef struct Fsdp {
    ProcessGroup *group;
    size_t world, rank, count;
    ReduceOp op;
    Device *device;
    Unit *units;               // [count], the root unit last
    float *arriving, *leaving; // shared by all units but the root
    Unit *ahead, *reducing;    // units with a collective in flight; NULL: none
} Fsdp;

static Unit *root_of(const Fsdp *fsdp) {
    return &fsdp->units[fsdp->count - 1];
}

static float *whole_alloc(const Fsdp *fsdp, const Unit *unit) {
    return device_alloc(fsdp->device, fsdp->world * unit->piece * sizeof(float));
}

static void whole_free(const Fsdp *fsdp, const Unit *unit, float **memory) {
    device_free(fsdp->device, *memory, fsdp->world * unit->piece * sizeof(float));
    *memory = NULL;
}

static void copy(const Fsdp *fsdp, float *to, const float *from, size_t floats) {
    if (floats > 0) device_copy(fsdp->device, to, fsdp->device, from, floats * sizeof *to);
}

// Points the parameters to their shards and frees the whole weights.
static void hide(Fsdp *fsdp, Unit *unit) {
    for (size_t i = 0; i < unit->count; i++) {
        Item *item = &unit->items[i];
        item->tensor->shape[0] = item->rows;
        item->tensor->data = unit->shards + item->in_piece;
        item->tensor->grad =
            item->tensor->requires_grad ? unit->shard_grads + item->in_piece : NULL;
        item->tensor->shard = &item->shard;
    }
    if (unit->whole) whole_free(fsdp, unit, &unit->whole);
}

// ---- gather -------------------------------------------------------------------------------------

static int start_gather(Fsdp *fsdp, Unit *unit, Error *err) {
    if (unit->whole || unit->gather || unit->piece == 0) return 0;
    unit->arriving = unit == root_of(fsdp) ? whole_alloc(fsdp, unit) : fsdp->arriving;
    float *mine = unit->arriving + fsdp->rank * unit->piece;
    copy(fsdp, mine, unit->shards, unit->piece);
    Collective gather = pg_all_gather(mine, unit->arriving, unit->piece, PG_F32);
    unit->gather = pg_start(fsdp->group, pg_of_bucket(gather, (size_t)(unit - fsdp->units)), err);
    fsdp->ahead = unit;
    return unit->gather ? 0 : -1;
}

// Waits for the all-gather in flight.
static int end_gather(Fsdp *fsdp, Error *err) {
    Unit *unit = fsdp->ahead;
    fsdp->ahead = NULL;
    if (!unit || !unit->gather) return 0;
    PgWork *work = unit->gather;
    unit->gather = NULL;
    return pg_work_wait(work, NULL, NULL, err);
}

static int show(Fsdp *fsdp, Unit *unit, Error *err) {
    if (unit->whole || unit->piece == 0) return 0;
    if (fsdp->ahead != unit && end_gather(fsdp, err) != 0) return -1;
    if (start_gather(fsdp, unit, err) != 0 || end_gather(fsdp, err) != 0) return -1;
    unit->whole = whole_alloc(fsdp, unit);
    for (size_t i = 0; i < unit->count; i++) {
        Item *item = &unit->items[i];
        float *to = unit->whole + fsdp->world * item->in_piece;
        for (size_t r = 0; r < fsdp->world; r++)
            copy(fsdp, to + r * item->floats, unit->arriving + r * unit->piece + item->in_piece,
                 item->floats);
        item->tensor->shape[0] = item->shard.rows;
        item->tensor->data = to;
        item->tensor->grad = NULL;
        item->tensor->shard = NULL;
    }
    if (unit == root_of(fsdp)) whole_free(fsdp, unit, &unit->arriving);
    return 0;
}

// ---- reduce -------------------------------------------------------------------------------------

static int end_reduce(Fsdp *fsdp, Error *err) {
    Unit *unit = fsdp->reducing;
    fsdp->reducing = NULL;
    if (!unit) return 0;
    PgWork *work = unit->reduce;
    unit->reduce = NULL;
    if (pg_work_wait(work, NULL, NULL, err) != 0) return -1;
    copy(fsdp, unit->shard_grads, unit->leaving + fsdp->rank * unit->piece, unit->piece);
    for (size_t i = 0; i < unit->count; i++) {
        if (unit->items[i].has_grad) unit->items[i].tensor->has_grad = true;
        unit->items[i].has_grad = false;
    }
    if (unit == root_of(fsdp)) whole_free(fsdp, unit, &unit->leaving);
    return 0;
}

static int start_reduce(Fsdp *fsdp, Unit *unit, Error *err) {
    if (end_reduce(fsdp, err) != 0) return -1;
    unit->leaving = unit == root_of(fsdp) ? whole_alloc(fsdp, unit) : fsdp->leaving;
    for (size_t r = 0; r < fsdp->world; r++)
        for (size_t i = 0; i < unit->count; i++) {
            const Item *item = &unit->items[i];
            float *to = unit->leaving + r * unit->piece + item->in_piece;
            const float *from = unit->whole_grads + fsdp->world * item->in_piece + r * item->floats;
            if (item->has_grad) copy(fsdp, to, from, item->floats);
        }
    whole_free(fsdp, unit, &unit->whole_grads);
    Collective sum = pg_reduce_scatter(unit->leaving, unit->leaving + fsdp->rank * unit->piece,
                                       unit->piece, PG_F32, fsdp->op);
    unit->reduce = pg_start(fsdp->group, pg_of_bucket(sum, (size_t)(unit - fsdp->units)), err);
    if (unit->reduce) fsdp->reducing = unit;
    return unit->reduce ? 0 : -1;
}

// ---- functions of OwnFsdp -----------------------------------------------------------------------

static int flat_before_forward(void *self, size_t u, Error *err) {
    Fsdp *fsdp = self;
    const size_t next = u == fsdp->count - 1 ? 0 : u + 1;
    if (show(fsdp, &fsdp->units[u], err) != 0) return -1;
    return next == fsdp->count - 1 ? 0 : start_gather(fsdp, &fsdp->units[next], err);
}

static int flat_after_forward(void *self, size_t u, bool backward_follows, Error *err) {
    Fsdp *fsdp = self;
    const bool root = u == fsdp->count - 1;
    if (root && !backward_follows && end_gather(fsdp, err) != 0) return -1;
    if (!root || !backward_follows) hide(fsdp, &fsdp->units[u]);
    return 0;
}

static int flat_before_backward(void *self, size_t u, Error *err) {
    Fsdp *fsdp = self;
    Unit *unit = &fsdp->units[u];
    if (show(fsdp, unit, err) != 0) return -1;
    if (!unit->whole_grads) unit->whole_grads = whole_alloc(fsdp, unit);
    for (size_t i = 0; i < unit->count; i++) {
        Item *item = &unit->items[i];
        if (!item->tensor->requires_grad) continue;
        item->tensor->grad = unit->whole_grads + fsdp->world * item->in_piece;
        item->tensor->has_grad = item->has_grad;
    }
    return u == 0 ? 0 : start_gather(fsdp, &fsdp->units[u - 1], err);
}

static int flat_after_backward(void *self, size_t u, bool complete, Error *err) {
    Fsdp *fsdp = self;
    Unit *unit = &fsdp->units[u];
    bool any = false;
    for (size_t i = 0; i < unit->count; i++) {
        Item *item = &unit->items[i];
        if (!item->tensor->requires_grad) continue;
        item->has_grad = item->tensor->has_grad;
        item->tensor->has_grad = false;
        any = any || item->has_grad;
    }
    hide(fsdp, unit);
    if (complete && any) return start_reduce(fsdp, unit, err);
    if (complete && unit->whole_grads) whole_free(fsdp, unit, &unit->whole_grads);
    return 0;
}

static int flat_finish_backward(void *self, Error *err) {
    Fsdp *fsdp = self;
    if (end_gather(fsdp, err) != 0 || end_reduce(fsdp, err) != 0) return -1;
    hide(fsdp, root_of(fsdp));
    return 0;
}

static void flat_close(void *self) {
    Fsdp *fsdp = self;
    (void)end_gather(fsdp, &(Error){0});
    (void)end_reduce(fsdp, &(Error){0});
    for (size_t u = 0; u < fsdp->count; u++) {
        Unit *unit = &fsdp->units[u];
        hide(fsdp, unit);
        if (unit->whole_grads) whole_free(fsdp, unit, &unit->whole_grads);
        device_free(fsdp->device, unit->shards, unit->piece * sizeof(float));
        device_free(fsdp->device, unit->shard_grads, unit->piece * sizeof(float));
        for (size_t i = 0; i < unit->count; i++) {
            unit->items[i].tensor->data = unit->items[i].tensor->grad = NULL;
            unit->items[i].tensor->shard = NULL;
        }
        free(unit->items);
    }
    free(fsdp->units);
    free(fsdp);
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// Lists the unit's parameters and copies rows of rank 0's weights into the shards of all ranks.
static int cut(Fsdp *fsdp, Unit *unit, Module *model, const NamedTensors *list, Error *err) {
    unit->items = calloc(list->count + 1, sizeof *unit->items);
    for (; unit->count < list->count; unit->count++) {
        Tensor *tensor = list->items[unit->count].tensor;
        const size_t n = tensor->shape[0], c = (n + fsdp->world - 1) / fsdp->world;
        const size_t first = smaller(fsdp->rank * c, n), last = smaller(first + c, n);
        unit->items[unit->count] = (Item){.tensor = tensor,
                                          .shard = {.first = first, .rows = n},
                                          .rows = last - first,
                                          .floats = tensor_count(tensor) / n * c,
                                          .in_piece = unit->piece};
        unit->piece += unit->items[unit->count].floats;
        fsdp->device = tensor->device;
    }
    if (unit->piece == 0) return 0;
    unit->shards = device_alloc(fsdp->device, unit->piece * sizeof(float));
    unit->shard_grads = device_alloc(fsdp->device, unit->piece * sizeof(float));
    float *padded = whole_alloc(fsdp, unit);
    for (size_t i = 0; i < unit->count; i++) {
        const Item *item = &unit->items[i];
        copy(fsdp, padded, item->tensor->data, tensor_count(item->tensor));
        if (pg_run(fsdp->group,
                   pg_scatter(padded, unit->shards + item->in_piece, item->floats, PG_F32, 0),
                   err) != 0)
            return -1;
    }
    whole_free(fsdp, unit, &padded);
    module_release_grads(model, list);
    module_release_data(model, list);
    hide(fsdp, unit);
    return 0;
}

static void *flat_open(Module *model, const OwnFsdpUnit *units, size_t count, ProcessGroup *group,
                       ReduceOp op, Error *err) {
    Fsdp *fsdp = calloc(1, sizeof *fsdp);
    *fsdp = (Fsdp){.group = group,
                   .world = (size_t)pg_size(group),
                   .rank = (size_t)pg_rank(group),
                   .count = count,
                   .op = op};
    fsdp->units = calloc(count, sizeof *fsdp->units);
    size_t most = 1;
    for (size_t u = 0; u < count; u++) {
        if (cut(fsdp, &fsdp->units[u], model, &units[u].parameters, err) != 0) return NULL;
        if (u < count - 1 && fsdp->units[u].piece > most) most = fsdp->units[u].piece;
    }
    fsdp->arriving = pg_shared_alloc(group, fsdp->world * most * sizeof(float), err);
    if (!fsdp->arriving) return NULL;
    fsdp->leaving = pg_shared_alloc(group, fsdp->world * most * sizeof(float), err);
    return fsdp->leaving ? fsdp : NULL;
}

const OwnFsdp own_fsdp = {
    OWN_FSDP_VERSION,     flat_open,           flat_before_forward,  flat_after_forward,
    flat_before_backward, flat_after_backward, flat_finish_backward, flat_close};
