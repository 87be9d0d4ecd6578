/* identities.h: a unit's forward, between two operations on the tape. Each is the identity of every
 * tensor of the unit's input or output, and its backward calls the wrapper:
 *
 *     forward   before_forward   "reduce_scatter"  module's forward  "all_gather"  after_forward
 *     backward                     after_backward <------------------  before_backward
 *
 * A tensor that needs no gradient records nothing.
 */
#ifndef DDP_FSDP_IDENTITIES_H
#define DDP_FSDP_IDENTITIES_H

#include "common/nn/module.h"
#include "common/nn/tape.h"

typedef struct UnitForward UnitForward;
// Returns 0, or -1 with err filled. All but after_forward are charged as exposed communication.
typedef int UnitCall(UnitForward *self, Error *err);

typedef struct UnitCalls {
    const char *wrapper; // for errors
    UnitCall *before_forward;
    UnitCall *after_forward; // also after a forward that failed (tape->error)
    // For each tensor of the output, and of the input.
    UnitCall *before_backward, *after_backward;
} UnitCalls;

struct UnitForward { // one forward of a unit, from tape_alloc
    const UnitCalls *calls;
    void *unit; // the module's state
    const Tape *tape;
    bool was_whole; // before the forward
    size_t place;   // among the recorded forwards
    // The input's tensors, and their identities, which the module sees.
    Tensor **inputs, **inside; // [count]
    size_t count;
};

// A module's own functions and state, which a wrapper has replaced.
typedef struct ModuleOwn {
    Tensor *(*forward)(Module *self, Tape *tape, Tensor *x);
    void (*destroy)(Module *self);
    void *state;
} ModuleOwn;

// Module.forward of a unit.
Tensor *identities_forward(Module *self, Tape *tape, Tensor *x, const UnitCalls *calls,
                           const ModuleOwn *own);

#endif
