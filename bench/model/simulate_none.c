/* simulate_none.c: what stands in for simulate.c where SimGrid is not installed. */
#include "bench/model/simulate.h"

bool simulate_available(void) {
    return false;
}

static int refuse(Error *err) {
    return error_set(err, STATUS_SKIPPED, "this build has no SimGrid (package libsimgrid-dev)");
}

int simulate_dp(const StepProfile *profile, const Cluster *cluster, double *seconds, Error *err) {
    (void)profile, (void)cluster, (void)seconds;
    return refuse(err);
}

int simulate_ddp(const StepProfile *profile, const Cluster *cluster, double *seconds, Error *err) {
    (void)profile, (void)cluster, (void)seconds;
    return refuse(err);
}
