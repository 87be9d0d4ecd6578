/* 02-whole-unit.h: gather, compute, free: a unit that is whole only while it computes.
 *
 * A unit has W parts of `share` floats, and this rank keeps part `rank` of its weights, and the
 * mean gradient of that part. The four functions are called around the unit's computation:
 *
 *     before_forward     weights = all ranks' parts, [W, share]
 *     after_forward      weights are freed
 *     before_backward    weights = all ranks' parts once more; gradients [W, share] = zeros
 *     after_backward     gradient = the mean of all ranks' gradients of this rank's part;
 *                        weights and gradients are freed
 *
 * Both arrays are device memory (device_alloc, device_free with the same number of bytes). Set the
 * pointer of a freed array to NULL, so that a later use crashes at once. Between forward and
 * backward other units compute and need the memory.
 *
 * Three collectives are enough, and none sends a rank more than it uses (ddp/group/collective.h).
 */
#ifndef TUTORIALS_WHOLE_UNIT_H
#define TUTORIALS_WHOLE_UNIT_H

#include "common/device/device.h"
#include "ddp/group/process_group.h"

typedef struct WholeUnit {
    Device *device;
    size_t share;
    const float *part;          // [share]: this rank's weights
    float *gradient;            // [share]: of the part
    float *weights, *gradients; // [W, share]: yours; NULL: not whole
} WholeUnit;

// Return 0, or -1 with err filled.
int before_forward(WholeUnit *unit, ProcessGroup *group, Error *err);
int before_backward(WholeUnit *unit, ProcessGroup *group, Error *err);
int after_backward(WholeUnit *unit, ProcessGroup *group, Error *err);
void after_forward(WholeUnit *unit, ProcessGroup *group);

#endif
