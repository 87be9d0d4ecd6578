/* simulate.h: simulates the step of step_model.h message by message with SimGrid (simgrid.org),
 * where that is installed.
 *
 * The formulas of step_model.h have no queues: they assume that all devices begin an all-reduce
 * together and that no message waits for another. Here every device is an actor that sleeps until
 * its gradients are ready and then sends and receives each message of the algorithm; SimGrid
 * computes the arrival times. The simulation validates the formulas, and covers effects that they
 * leave out, such as one slow device.
 */
#ifndef BENCH_MODEL_SIMULATE_H
#define BENCH_MODEL_SIMULATE_H

#include "bench/model/step_model.h"
#include "common/base/error.h"

// SimGrid sends a hundred thousand messages a second or two. A ring of W devices sends 2 W (W - 1)
// of them for a bucket, so a step of a large ring would take minutes: bench_scale leaves it out.
enum { SIMULATED_MESSAGES_MAX = 5000000 };

// Simulates one step in a process of its own. *seconds receives how long the step takes. Returns 0,
// or -1 with err filled (STATUS_SKIPPED without SimGrid).
typedef int SimulateStep(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                         double *seconds, Error *err);
SimulateStep simulate_step;
// The symbol of the module libstep_simulation.so (simulate.c), which simulate_step loads.
extern SimulateStep *const simulate_by_simgrid;

#endif
