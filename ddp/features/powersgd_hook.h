/* powersgd_hook.h: PowerSGD (Vogels et al. 2019): gradients travel as products of thin matrices.
 *
 * A gradient seen as a matrix M [n, m] is replaced by P Q' with P [n, r] and Q [m, r]: one step of
 * the power iteration finds the r directions in which the ranks' mean is largest, and only P and Q
 * are all-reduced, n r + m r numbers in place of n m. What is lost is remembered on each rank and
 * added to its next gradient (error feedback), and the next iteration starts from the last Q (warm
 * start): with both, small r do. Vectors, and matrices that would hardly shrink, travel as they
 * are.
 *
 * State is kept per parameter, not per bucket as in PyTorch, and random numbers are a parameter's,
 * too, so that it survives other buckets. Checkpoints hold it (hook_state.h): the errors are each
 * rank's own, all else is the same on all ranks. It must not be used with a gradient scaler: a step
 * with an overflow is skipped, but its errors, which are no numbers, stay (as in PyTorch).
 */
#ifndef DDP_FEATURES_POWERSGD_HOOK_H
#define DDP_FEATURES_POWERSGD_HOOK_H

#include "ddp/reducer.h"

typedef struct PowerSgdConfig {
    size_t rank;                     // r (default: 1)
    uint64_t start_iteration;        // before it, a plain all-reduce (default: 1000)
    double min_compression_rate;     // M is compressed if (n + m) r times this < n m (default: 2)
    bool error_feedback, warm_start; // default: true
    uint64_t seed;                   // of the first Q, equal on all ranks (default: 0)
} PowerSgdConfig;

PowerSgdConfig power_sgd_config_default(void);

typedef struct PowerSgd PowerSgd;

// For the reducer's parameters and group. NULL with PyTorch's error if error feedback or a warm
// start is wanted before the buckets are settled.
PowerSgd *power_sgd_create(Reducer *reducer, const PowerSgdConfig *config, Error *err);
void power_sgd_close(PowerSgd *state); // comes before closing the device; NULL is fine
// The state stays the caller's, and outlives the hook.
CommHook power_sgd_hook(PowerSgd *state);
int64_t power_sgd_iteration(const PowerSgd *state);

#endif
