/* 03-layers-per-unit.h: the best number of layers of a unit.
 *
 * A model has `layers` equal layers of `floats` parameters each, and computes one in `compute_s`
 * seconds in forward. A unit may have k layers, for every k that divides `layers`. On W ranks the
 * all-gather of a unit takes W - 1 rounds, each with one latency and one W-th of its bytes:
 *
 *     gather(k) = (W - 1) (latency_s + 4 k floats / W / bytes_per_s)
 *
 * With the next unit gathered ahead, and k compute_s for the computation of a unit, a forward takes
 *
 *     gather(k) + (layers / k - 1) max(gather(k), k compute_s) + k compute_s
 *
 * Small units have a latency each; the all-gather of a single unit is not hidden at all. Memory: in
 * backward there are two units' whole weights and two units' whole gradients at a time (with one
 * unit: one of each). They must not exceed limit_bytes.
 */
#ifndef TUTORIALS_LAYERS_PER_UNIT_H
#define TUTORIALS_LAYERS_PER_UNIT_H

#include <stddef.h>

typedef struct UnitCosts {
    size_t layers, floats, world;
    double compute_s, latency_s, bytes_per_s;
    size_t limit_bytes;
} UnitCosts;

// Returns the k that fits and has the shortest forward, the smallest among equals; 0: none fits.
size_t layers_per_unit(UnitCosts costs);

#endif
