/* sharded.c: symptoms of wrong units in fully sharded data parallel (steps 21 and 22). */
#include <stdio.h>

#include "common/nn/layers.h"
#include "tutorials/symptoms/symptoms.h"
#include "tutorials/units.h"

enum { LAYERS = 8, WIDTH = 32 };

typedef struct ShardedModel {
    Module *model; // LAYERS equal layers
    Lesson lesson; // for units_open, with its unit_layers
    Units *units;
} ShardedModel;

static void open_model(ShardedModel *m, const SymptomRank *me, size_t layers_per_unit) {
    char name[MODULE_NAME];
    *m = (ShardedModel){.model = layer_sequential("Model"), .lesson.unit_layers = layers_per_unit};
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        module_add(m->model, name, layer_linear(me->device, WIDTH, WIDTH));
    }
    m->units = units_open(me->group, m->model, &m->lesson);
}

static void close_model(ShardedModel *m) {
    units_close(m->units);
    module_close(m->model);
}

// The collectives of a forward: step 21's gather and free, without the computation. 0, or -1.
static int gather_each(const ShardedModel *m, SymptomRank *me) {
    for (size_t i = 0; i < m->units->count; i++) {
        Unit *unit = &m->units->items[i];
        unit_alloc(unit, WEIGHTS);
        Collective parts = pg_all_gather(unit->part->data, unit->weights, unit->share, PG_F32);
        if (pg_run(me->group, parts, &me->err) != 0) return -1;
        unit_free(unit, WEIGHTS);
    }
    return 0;
}

// The mistake: one unit of all layers, so that sharding saves nothing while it computes.
static double huge_unit(SymptomRank *me) {
    ShardedModel m;
    open_model(&m, me, me->broken ? LAYERS : 1);
    const size_t before = me->device->bytes;
    const double whole = LAYERS * (WIDTH * WIDTH + WIDTH) * sizeof(float);
    device_reset_peak(me->device);
    must_do(gather_each(&m, me), &me->err);
    double most = (double)(me->device->peak_bytes - before) / whole;
    close_model(&m);
    return most;
}

// The mistake: a unit for each small layer, and each unit is a collective with its latency.
static double small_units(SymptomRank *me) {
    ShardedModel m;
    open_model(&m, me, me->broken ? 1 : LAYERS / 2);
    const uint64_t before = pg_sequence(me->group);
    must_do(gather_each(&m, me), &me->err);
    double count = (double)(pg_sequence(me->group) - before);
    close_model(&m);
    return count;
}

// The mistake: rank 1 has cut the model into other units than rank 0.
static double other_units(SymptomRank *me) {
    ShardedModel m;
    open_model(&m, me, me->broken && me->rank > 0 ? 2 : 1);
    int done = gather_each(&m, me) == 0;
    close_model(&m);
    return done;
}

const Symptom SYMPTOMS_OF_SHARDING[] = {
    {"huge-unit", "largest share of the weights that is whole at once", 0, 0.2, 2, huge_unit, 0},
    {"small-units", "all-gathers in a forward of 8 small layers", 1, 2, 2, small_units, 0},
    {"other-units", "completed forwards, of 1", 1, 1, 2, other_units, 0},
    {0}};
