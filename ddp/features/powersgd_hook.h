/* powersgd_hook.h: PowerSGD (Vogels et al. 2019): low-rank compression of gradients.
 *
 * A gradient as a matrix M [n, m] is approximated by P Q', P [n, r], Q [m, r]: one step of the
 * power iteration finds the r dominant directions of the ranks' mean. P and Q are all-reduced: n r
 * + m r numbers instead of n m. Error feedback: each rank keeps the error M - P Q' and adds it to
 * its next gradient. Warm start: an iteration begins with the last Q. With both, a small r
 * suffices. Vectors, and matrices that hardly shrink, are all-reduced uncompressed.
 *
 * State is kept per parameter, in PyTorch per bucket; the random numbers are per parameter, too, so
 * both survive a rebuild of the buckets. Checkpoints contain it: errors are each rank's own, all
 * else is equal on all ranks. Not with a gradient scaler: a step with an overflow is skipped, but
 * its errors, infinite or NaN, are kept (as in PyTorch).
 */
#ifndef DDP_FEATURES_POWERSGD_HOOK_H
#define DDP_FEATURES_POWERSGD_HOOK_H

#include "ddp/comm_hook.h"

typedef struct Reducer Reducer; // ddp_reducer gives a wrapped model's

typedef struct PowerSgdConfig {
    size_t rank;                     // r (default: 1)
    size_t start_iteration;          // before it an uncompressed all-reduce (default: 1000)
    double min_compression_rate;     // M is compressed if (n + m) r times this < n m (default: 2)
    bool error_feedback, warm_start; // default: true
    uint64_t seed;                   // of the first Q, equal on all ranks (default: 0)
} PowerSgdConfig;

PowerSgdConfig power_sgd_config_default(void);

typedef struct PowerSgd PowerSgd;

// Creates the state for the reducer's parameters and group, the caller's. NULL with PyTorch's error
// if error feedback or warm start would begin before the buckets are rebuilt.
PowerSgd *power_sgd_create(Reducer *reducer, const PowerSgdConfig *config, Error *err);
void power_sgd_close(PowerSgd *state); // before the device is closed; NULL does nothing
// The state remains the caller's and must outlive the hook.
CommHook power_sgd_hook(PowerSgd *state);
int64_t power_sgd_iteration(const PowerSgd *state);

#endif
