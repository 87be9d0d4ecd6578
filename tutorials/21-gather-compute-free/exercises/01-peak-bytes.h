/* 01-peak-bytes.h: a rank's peak memory, computed before the model runs.
 *
 * A model has `units` units, and unit u has parameters[u] floats. Each is cut into W parts of equal
 * length, rounded up; so a whole unit has the length of W parts, which may be more than
 * parameters[u]. With AdamW a rank keeps, for its part of each unit, the weights, the gradient and
 * two floats of state for each weight. In addition, temporarily:
 *
 *     forward of unit u     u's whole weights, which are freed when it has computed
 *     backward of unit u    u's whole weights and whole gradients, freed when it has computed
 *
 * Units are gathered one at a time, in forward from the first to the last, in backward from the
 * last to the first. If keeps_weights[u], unit u's whole weights are not freed after forward: they
 * stay until its own backward is over (PyTorch's reshard_after_forward=False).
 *
 *     2 ranks, units of 10 and 7 floats, none is kept:
 *     parts of 5 and 4 floats: 16 * (5 + 4) bytes, and in unit 0's backward 2 * 4 * 10: 224 bytes
 */
#ifndef TUTORIALS_PEAK_BYTES_H
#define TUTORIALS_PEAK_BYTES_H

#include <stdbool.h>
#include <stddef.h>

// Returns the peak of a rank's bytes in a step. units may be 0.
size_t fully_sharded_peak(const size_t *parameters, const bool *keeps_weights, size_t units,
                          size_t world);

#endif
