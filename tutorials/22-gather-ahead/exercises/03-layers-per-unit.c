/* 03-layers-per-unit.c: latency against memory. The task is in 03-layers-per-unit.h. */
#include "tutorials/22-gather-ahead/exercises/03-layers-per-unit.h"

// SOLUTION BEGIN
static double forward_s(UnitCosts c, size_t k) {
    double bytes = 4.0 * (double)k * (double)c.floats / (double)c.world;
    double gather = (double)(c.world - 1) * (c.latency_s + bytes / c.bytes_per_s);
    double compute = (double)k * c.compute_s, longer = gather > compute ? gather : compute;
    return gather + (double)(c.layers / k - 1) * longer + compute;
}

size_t layers_per_unit(UnitCosts costs) {
    size_t best = 0;
    for (size_t k = 1; k <= costs.layers; k++) {
        size_t whole = 4 * k * costs.floats, units = costs.layers / k;
        if (costs.layers % k != 0 || (units > 1 ? 4 : 2) * whole > costs.limit_bytes) continue;
        if (best == 0 || forward_s(costs, k) < forward_s(costs, best)) best = k;
    }
    return best;
}
// SOLUTION END
