/* simulate_none.c: replaces simulate.c where SimGrid is not installed. */
#include "bench/model/simulate.h"

int simulate_step(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                  double *seconds, Error *err) {
    (void)profile, (void)cluster, (void)strategy, (void)seconds;
    return error_set(err, STATUS_SKIPPED, "this build has no SimGrid (package libsimgrid-dev)");
}
