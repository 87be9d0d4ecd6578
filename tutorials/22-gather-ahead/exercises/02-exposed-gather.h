/* 02-exposed-gather.h: the time for which the device waits for weights, computed in advance.
 *
 * A forward and a backward over `units` units. Unit u computes forward_s[u] seconds in forward and
 * backward_s[u] in backward, and its all-gather takes gather_s[u]. One all-gather runs at a time,
 * beside the computation, which it does not slow down. (Reduce-scatters are not counted.)
 *
 *     forward    unit 0, 1, ..., units - 1: computes as soon as its weights are gathered and the
 *                unit before it has computed
 *     backward   follows at once, units - 1, ..., 1, 0, each gathered again; but the last unit is
 *                kept, so that its backward needs no all-gather
 *
 * Without `ahead` a unit's all-gather begins when the unit would compute. With it, the all-gather
 * of the next unit, and of no other, begins when a unit begins to compute. The first one, unit 0's
 * in forward, begins at time 0, and no computation hides it.
 *
 *     2 units, forward 3, backward 6, gather 4, each:
 *     without    4 + 3 + 4 + 3 + 6 + 4 + 6: the device waits 12
 *     ahead      4 + 3 + 1 + 3 + 6 + 0 + 6: it waits 5
 */
#ifndef TUTORIALS_EXPOSED_GATHER_H
#define TUTORIALS_EXPOSED_GATHER_H

#include <stdbool.h>
#include <stddef.h>

// Returns the seconds for which the device waits, in forward and backward. units may be 0.
double exposed_gather_s(const double *forward_s, const double *backward_s, const double *gather_s,
                        size_t units, bool ahead);

#endif
