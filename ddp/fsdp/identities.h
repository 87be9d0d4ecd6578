/* identities.h: the two operations on the tape around a unit's forward. Each is the identity of
 * every tensor of the unit's input or output, and its backward acts:
 *
 *     forward     "reduce_scatter"  the unit's forward   "all_gather"
 *     backward    after_backward <-----------------------  before_backward
 *
 * A tensor that needs no gradient records nothing.
 */
#ifndef DDP_FSDP_IDENTITIES_H
#define DDP_FSDP_IDENTITIES_H

#include "common/base/profile.h"
#include "common/nn/tape.h"

typedef struct UnitForward UnitForward;
struct UnitForward {     // one forward of a unit, from tape_alloc
    const char *wrapper; // for errors
    void *unit;
    size_t place; // among the recorded forwards
    // Called for each tensor of the output and of the input. 0, or -1 with err filled.
    int (*before_backward)(UnitForward *self, Error *err);
    int (*after_backward)(UnitForward *self, Error *err);
    // Set by identities_enter: the input's tensors, and their identities, which the module sees.
    Tensor **inputs, **inside; // [count]
    size_t count;
};

// Returns the input that the module sees; the output that the caller sees. y NULL: an error is on
// the tape.
Tensor *identities_enter(Tape *tape, Tensor *x, UnitForward *saved);
Tensor *identities_leave(Tape *tape, Tensor *y, UnitForward *saved);

// Ends exposed communication, which began in `before`: charges its time, and reports its error.
void identities_exposed(Tape *tape, const UnitForward *saved, Phase before, int status,
                        const Error *err);

#endif
