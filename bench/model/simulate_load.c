/* simulate_load.c: loads the module that contains simulate.c. SimGrid's libraries take 20 ms of
 * processor time of every start, so a program loads them for its first simulation.
 */
#include "bench/model/simulate.h"
#include "common/base/shared_object.h"

int simulate_step(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                  double *seconds, Error *err) {
    SimulateStep *const *step =
        shared_object_find("libstep_simulation.so", "simulate_by_simgrid", err);
    return step ? (*step)(profile, cluster, strategy, seconds, err) : -1;
}
