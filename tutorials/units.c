/* units.c: cutting a model into units, and their memory. */
#include "tutorials/units.h"

#include <stdio.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/nn/layers.h"
#include "common/nn/tape.h"

// ---- cutting ------------------------------------------------------------------------------------

static bool is_sequence(const Module *model) {
    Module *sequence = layer_sequential("");
    const bool is = model->forward == sequence->forward;
    module_close(sequence);
    return is;
}

// Appends the layer's parameters to the unit's.
static size_t add_layer(Unit *unit, Module *layer) {
    NamedTensors more = module_tensors(layer, MODULE_PARAMETERS);
    NamedTensors *all = &unit->tensors;
    const size_t added = more.count;
    all->items = memory_grow(all->items, all->count + added + 1, sizeof *all->items);
    for (size_t k = 0; k < added; k++) all->items[all->count + k] = more.items[k];
    all->count += added;
    named_tensors_free(&more);
    unit->layer_count++;
    return added > 0;
}

// "fc1": the last layer with parameters.
static const char *name_of(const Unit *unit) {
    size_t i = unit->layer_count - 1;
    while (i > 0 && unit->layers[i]->parameter_count == 0) i--;
    return unit->layers[i]->name;
}

// Keeps this rank's part of the unit, and frees the whole.
static void cut(Units *units, Unit *unit) {
    const size_t world = (size_t)pg_size(units->group);
    unit->share = (lesson_count(&unit->tensors) + world - 1) / world;
    unit->count = world * unit->share;
    Module *part = module_add(units->parts, name_of(unit), module_create("Part", NULL));
    unit->part = module_add_parameter(part, units->device, "part", 1, &unit->share);
    float *flat = memory_zalloc(unit->count * sizeof *flat);
    lesson_flatten(&unit->tensors, WEIGHTS_IN, flat);
    memcpy(unit->part->data, flat + (size_t)pg_rank(units->group) * unit->share,
           tensor_bytes(unit->part));
    free(flat);
    for (size_t i = 0; i < unit->layer_count; i++) {
        module_release_data(unit->layers[i], &unit->tensors);
        module_release_grads(unit->layers[i], &unit->tensors);
    }
}

Units *units_open(ProcessGroup *group, Module *model, const Lesson *lesson) {
    lesson_need(is_sequence(model), model->type,
                "is no row of layers: take --model mlp or convnet");
    Units *units = memory_zalloc(sizeof *units);
    const size_t count = (size_t)model->child_count;
    *units = (Units){.lesson = lesson, .group = group, .parts = module_create("Parts", NULL)};
    units->items = memory_zalloc((count + 1) * sizeof *units->items);
    for (size_t i = 0; i < count; units->count++) {
        Unit *unit = &units->items[units->count];
        *unit = (Unit){.group = group, .layers = model->children + i, .all = units};
        for (size_t with = 0; i < count && with < lesson->unit_layers; i++)
            with += add_layer(unit, model->children[i]);
        while (i < count && model->children[i]->parameter_count == 0)
            add_layer(unit, model->children[i++]);
        units->device = unit->tensors.items[0].tensor->device;
        cut(units, unit);
    }
    for (size_t u = 1; u < units->count; u++) {
        units->items[u].previous = &units->items[u - 1];
        units->items[u - 1].next = &units->items[u];
    }
    return units;
}

void units_close(Units *units) {
    for (size_t i = 0; i < units->count; i++) {
        unit_free(&units->items[i], WEIGHTS | GRADIENTS);
        named_tensors_free(&units->items[i].tensors);
    }
    module_close(units->parts);
    free(units->items);
    free(units);
}

// ---- whole for a while --------------------------------------------------------------------------

// Records and prints an allocation or a free of the unit's memory.
static void show(Unit *unit, const char *event, const char *what, size_t more, size_t less) {
    Units *all = unit->all;
    all->whole = all->whole + more - less;
    lesson_show(all->lesson, "%s %s %-9s %7zu bytes are whole\n", event, name_of(unit), what,
                all->whole);
}

void unit_alloc(Unit *unit, Whole what) {
    const size_t bytes = unit->count * sizeof(float);
    float *whole = device_alloc(unit->part->device, bytes), *at = whole;
    for (size_t k = 0; k < unit->tensors.count; k++) {
        Tensor *tensor = unit->tensors.items[k].tensor;
        if (what == WEIGHTS)
            tensor->data = at;
        else
            tensor->grad = at;
        at += tensor_count(tensor);
    }
    memset(at, 0, (size_t)(whole + unit->count - at) * sizeof *at);
    *(what == WEIGHTS ? &unit->weights : &unit->gradients) = whole;
    show(unit, "+", what == WEIGHTS ? "weights" : "gradients", bytes, 0);
}

static void free_one(Unit *unit, float **whole, const char *what) {
    const size_t bytes = unit->count * sizeof(float);
    if (!*whole) return;
    device_free(unit->part->device, *whole, bytes);
    *whole = NULL;
    show(unit, "-", what, 0, bytes);
}

void unit_free(Unit *unit, int what) {
    for (size_t k = 0; k < unit->tensors.count; k++) {
        Tensor *tensor = unit->tensors.items[k].tensor;
        if (what & WEIGHTS) tensor->data = NULL;
        if (what & GRADIENTS) tensor->grad = NULL;
    }
    if (what & WEIGHTS) free_one(unit, &unit->weights, "weights");
    if (!(what & GRADIENTS) || !unit->gradients) return;
    unit->part->has_grad = true;
    free_one(unit, &unit->gradients, "gradients");
}

// ---- computing ----------------------------------------------------------------------------------

Tensor *unit_compute(const Unit *unit, Tape *tape, Tensor *x) {
    lesson_show(unit->all->lesson, "  %s computes\n", name_of(unit));
    for (size_t i = 0; i < unit->layer_count; i++) x = module_forward(unit->layers[i], tape, x);
    return x;
}

typedef struct OnBackward {
    Unit *unit;
    void (*function)(Unit *unit);
} OnBackward;

static void pass_by(Tape *tape, TapeNode *node) {
    const OnBackward *on = node->saved;
    on->function(on->unit);
    tape_pass_gradient(tape, node, node->inputs[0], true);
}

Tensor *unit_on_backward(Unit *unit, Tape *tape, Tensor *x, void (*function)(Unit *unit)) {
    if (!x) return NULL;
    OnBackward *on = tape_alloc(tape, sizeof *on);
    *on = (OnBackward){unit, function};
    Tensor *same = tape_alias(tape, x);
    tape_record(tape, "on_backward", pass_by, same, 1, &x, on);
    return same;
}

// ---- the account --------------------------------------------------------------------------------

enum { FIRST_COUNTED = 3 }; // the first steps let the tape grow

void units_count(Units *units) {
    if (units->steps == 0) units->kept = units->device->bytes;
    if (units->steps++ != FIRST_COUNTED) return;
    device_reset_peak(units->device);
    units->moved = pg_moved_bytes(units->group);
}

void units_print(const Units *units) {
    if (pg_rank(units->group) > 0 || units->steps <= FIRST_COUNTED) return;
    printf("rank 0 keeps %zu bytes, and at most %zu more within a step; a step moves %zu\n",
           units->kept, units->device->peak_bytes - units->device->bytes,
           (size_t)(pg_moved_bytes(units->group) - units->moved) / (units->steps - FIRST_COUNTED));
}
