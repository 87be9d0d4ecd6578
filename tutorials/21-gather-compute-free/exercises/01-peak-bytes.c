/* 01-peak-bytes.c: shards, and the units that are whole at a time. The task is in 01-peak-bytes.h.
 */
#include "tutorials/21-gather-compute-free/exercises/01-peak-bytes.h"

// SOLUTION BEGIN
size_t fully_sharded_peak(const size_t *parameters, const bool *keeps_weights, size_t units,
                          size_t world) {
    size_t parts = 0, kept = 0, most = 0;
    for (size_t u = 0; u < units; u++) {
        size_t share = (parameters[u] + world - 1) / world, whole = 4 * world * share;
        parts += 16 * share;
        if (kept + 2 * whole > most) most = kept + 2 * whole; // in u's backward
        if (keeps_weights[u]) kept += whole;
    }
    return parts + most;
}
// SOLUTION END
