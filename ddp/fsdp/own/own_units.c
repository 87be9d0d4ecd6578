/* own_units.c: see own_units.h. A unit's forward replaces its module's, as fully_shard's does. */
#include "ddp/fsdp/own/own_units.h"

#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/own/own_file.h"
#include "ddp/fsdp/identities.h"

enum { NAME_MAX = 48 };

typedef struct OwnUnit {
    OwnUnits *all;
    size_t number;
    char name[NAME_MAX];
    Module *module;
    ModuleOwn own;
    bool in_backward; // before_backward has been called, and after_backward not yet
} OwnUnit;

struct OwnUnits {
    const OwnFsdp *file;
    void *self; // the file's state
    OwnUnit *units;
    OwnFsdpUnit *listed; // the file's view of the units
    size_t count;        // of both; the root is the last
    bool holds;          // own_units_hold_gradients
};

// ---- the file's functions -----------------------------------------------------------------------

static bool is_called(const OwnUnit *unit) {
    const OwnUnits *all = unit->all;
    return all->listed[unit->number].parameters.count > 0 || unit->number == all->count - 1;
}

static int check_status(int status, const char *function, Error *err) {
    return status == 0 ? 0 : own_file_failed("own_fsdp", function, err);
}

static int before_backward(UnitForward *saved, Error *err) {
    OwnUnit *unit = saved->unit;
    const OwnUnits *all = unit->all;
    if (unit->in_backward || !is_called(unit)) return 0;
    unit->in_backward = true;
    return check_status(all->file->before_backward(all->self, unit->number, err), "before_backward",
                        err);
}

// last: no later backward of the step adds to the gradients.
static int leave_backward(OwnUnit *unit, bool last, Error *err) {
    const OwnUnits *all = unit->all;
    const NamedTensors *parameters = &all->listed[unit->number].parameters;
    bool complete = last;
    if (!unit->in_backward) return 0;
    unit->in_backward = false;
    for (size_t i = 0; i < parameters->count; i++)
        if (parameters->items[i].tensor->pending_uses > 0) complete = false;
    return check_status(all->file->after_backward(all->self, unit->number, complete, err),
                        "after_backward", err);
}

static int after_backward(UnitForward *saved, Error *err) {
    OwnUnit *unit = saved->unit;
    return leave_backward(unit, !unit->all->holds, err);
}

// Calls after_backward of the units whose input needs no gradient, the root's last.
static int leave_units(OwnUnits *all, bool last, Error *err) {
    const size_t root = all->count - 1;
    for (size_t i = root; i-- > 0;)
        if (leave_backward(&all->units[i], last, err) != 0) return -1;
    return leave_backward(&all->units[root], last, err);
}

// The root's ends a backward that was not finished, as gradients were held.
static int before_forward(UnitForward *saved, Error *err) {
    const OwnUnit *unit = saved->unit;
    OwnUnits *all = unit->all;
    if (unit->number == all->count - 1 && leave_units(all, false, err) != 0) return -1;
    if (!is_called(unit)) return 0;
    return check_status(all->file->before_forward(all->self, unit->number, err), "before_forward",
                        err);
}

static int after_forward(UnitForward *saved, Error *err) {
    const OwnUnit *unit = saved->unit;
    const OwnUnits *all = unit->all;
    const Tape *tape = saved->tape;
    if (tape->error.status != STATUS_OK || !is_called(unit)) return 0;
    const Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    int status = all->file->after_forward(all->self, unit->number, tape->recording, err);
    profile_leave(tape->profile, phase);
    return check_status(status, "after_forward", err);
}

void own_units_hold_gradients(OwnUnits *units, bool hold) {
    units->holds = hold;
}

int own_units_finish(OwnUnits *units, Error *err) {
    if (leave_units(units, true, err) != 0) return -1;
    return check_status(units->file->finish_backward(units->self, err), "finish_backward", err);
}

// ---- a unit's forward ---------------------------------------------------------------------------

static const UnitCalls CALLS = {"own_fsdp", before_forward, after_forward, before_backward,
                                after_backward};

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    const OwnUnit *unit = self->state;
    return identities_forward(self, tape, x, &CALLS, &unit->own);
}

// ---- opening and closing ------------------------------------------------------------------------

static bool lists(const NamedTensors *list, const Tensor *tensor) {
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].tensor == tensor) return true;
    return false;
}

static bool is_taken(const OwnUnits *all, const Tensor *parameter) {
    for (size_t u = 0; u < all->count; u++)
        if (lists(&all->listed[u].parameters, parameter)) return true;
    return false;
}

// The module's parameters that no unit has and that no module outside shares, by their names in the
// model. The list is kept, so it has room for the module's parameters, not for the model's.
static NamedTensors free_parameters(const OwnUnits *all, Module *root, Module *module) {
    NamedTensors every = module_tensors(root, MODULE_PARAMETERS), mine = {0};
    NamedTensors inside = module_tensors(module, MODULE_PARAMETERS);
    mine.items = memory_zalloc((inside.count + 1) * sizeof *mine.items);
    for (size_t i = 0; i < every.count; i++) {
        const Tensor *tensor = every.items[i].tensor;
        if (lists(&inside, tensor) && !is_taken(all, tensor) && module_holds_ties(module, tensor))
            mine.items[mine.count++] = every.items[i];
    }
    named_tensors_free(&every);
    named_tensors_free(&inside);
    return mine;
}

static void add_unit(OwnUnits *all, Module *root, Module *module) {
    const NamedTensors parameters = free_parameters(all, root, module);
    const size_t number = all->count++;
    OwnUnit *unit = &all->units[number];
    *unit = (OwnUnit){.all = all,
                      .number = number,
                      .module = module,
                      .own = {.forward = module->forward, .state = module->state}};
    snprintf(unit->name, sizeof unit->name, "%s %zu", module->type, number);
    all->listed[number] = (OwnFsdpUnit){unit->name, parameters};
    module->forward = forward;
    module->state = unit;
}

OwnUnits *own_units_open(Module *root, Module *const *modules, size_t count, const OwnFsdp *file,
                         ProcessGroup *group, ReduceOp op, Error *err) {
    OwnUnits *all = memory_zalloc(sizeof *all);
    all->file = file;
    all->units = memory_zalloc((count + 1) * sizeof *all->units);
    all->listed = memory_zalloc((count + 1) * sizeof *all->listed);
    for (size_t i = 0; i < count; i++) add_unit(all, root, modules[i]);
    add_unit(all, root, root);
    all->self = file->open(root, all->listed, all->count, group, op, err);
    if (all->self) return all;
    own_units_close(all);
    (void)own_file_failed("own_fsdp", "open", err);
    return NULL;
}

void own_units_close(OwnUnits *units) {
    if (!units) return;
    if (units->self) units->file->close(units->self);
    for (size_t i = 0; i < units->count; i++) {
        units->units[i].module->forward = units->units[i].own.forward;
        units->units[i].module->state = units->units[i].own.state;
        named_tensors_free(&units->listed[i].parameters);
    }
    free(units->units);
    free(units->listed);
    free(units);
}
