/* units.h: shared by the steps on fully sharded data parallel (21 and 22): a model cut into units,
 * and the memory of a unit while it is whole. The programs, not these functions, decide when a unit
 * is gathered, computes and is freed: that is the lesson.
 */
#ifndef TUTORIALS_UNITS_H
#define TUTORIALS_UNITS_H

#include "common/nn/module.h"
#include "ddp/group/process_group.h"
#include "tutorials/lesson.h"

typedef struct Unit { // consecutive layers, which are gathered together
    ProcessGroup *group;
    Module **layers;
    size_t layer_count;
    NamedTensors tensors;         // the layers' parameters
    size_t share, count;          // elements of a rank's part of them, rounded up; of all W parts
    Tensor *part;                 // [share]: the weights and the gradient that this rank keeps
    float *weights, *gradients;   // [W, share], one tensor after another; NULL: not whole
    struct Unit *previous, *next; // NULL: it is the first, the last
    PgWork *arriving, *leaving;   // step 22: all-gather, reduce-scatter in flight, or NULL
    struct Units *all;
} Unit;

typedef struct Units {
    const Lesson *lesson;
    ProcessGroup *group;
    Device *device;
    Unit *items;
    size_t count;
    Module *parts;  // the parts of all units: the parameters of an optimizer
    size_t whole;   // bytes of whole units now
    size_t kept;    // bytes on the device before the first step
    size_t steps;   // that have begun
    uint64_t moved; // bytes moved before the first counted step
} Units;

// Cuts a model whose layers run one after another into units of --unit-layers layers with
// parameters (the last may have fewer), each as step 20 cuts the whole model: a rank keeps its part
// and frees the layers' own memory. Another model ends the program. With --show, rank 0 prints in
// the first step each allocation, computation and free, and the bytes that are whole then.
Units *units_open(ProcessGroup *group, Module *model, const Lesson *lesson);
void units_close(Units *units); // frees units that are still whole, too

// Allocates the whole unit's weights or gradients, contents undefined, and makes its tensors point
// there. The padding behind the last tensor is 0.
typedef enum Whole { WEIGHTS = 1, GRADIENTS = 2 } Whole;
void unit_alloc(Unit *unit, Whole what);
// Frees that memory, if allocated; its tensors then have none. After GRADIENTS the part's gradient
// is valid.
void unit_free(Unit *unit, int what);

// The outputs of the unit's layers for x, or NULL after an error, which stays on the tape.
Tensor *unit_compute(const Unit *unit, Tape *tape, Tensor *x);
// Returns an alias of x. When backward reaches the alias, it calls the function and continues with
// x. Backward never reaches it if x needs no gradient.
Tensor *unit_on_backward(Unit *unit, Tape *tape, Tensor *x, void (*function)(Unit *unit));

// To be called before each step, which it counts. From the fourth step on the tape allocates no
// memory, so only whole units are allocated and freed.
void units_count(Units *units);
// Rank 0 prints "rank 0 keeps 203360 bytes, and at most 263168 more within a step; a step moves
// 457476". Nothing after fewer than four steps.
void units_print(const Units *units);

#endif
