/* own_units.h: divides a model into units and calls a user's OwnFsdp around them (own_fsdp.h). */
#ifndef DDP_FSDP_OWN_OWN_UNITS_H
#define DDP_FSDP_OWN_OWN_UNITS_H

#include "ddp/fsdp/own/own_fsdp.h"

typedef struct OwnUnits OwnUnits;

// Makes modules[count] and the root units, in place, and calls open. The modules are in the model's
// order, without the root; `file` must outlive the units. Collective. Returns NULL with err filled
// after an error of open.
OwnUnits *own_units_open(Module *root, Module *const *modules, size_t count, const OwnFsdp *file,
                         ProcessGroup *group, ReduceOp op, Error *err);

// hold true: the following backwards keep the gradients (`complete` is false), until hold false.
void own_units_hold_gradients(OwnUnits *units, bool hold);

// After a backward: calls after_backward of units whose input needs no gradient, then
// finish_backward. Collective. 0, or -1 with err filled.
int own_units_finish(OwnUnits *units, Error *err);

// Calls close and gives the modules back their own functions. NULL: no effect.
void own_units_close(OwnUnits *units);

#endif
