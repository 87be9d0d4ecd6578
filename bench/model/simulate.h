/* simulate.h: the same step message by message, by SimGrid (simgrid.org), where it is installed.
 *
 * The algebra of step_model.h knows no queues: it assumes that all devices begin an all-reduce
 * together and that nothing is in the way. Here every device is an actor that sleeps until its
 * gradients are ready and then sends and receives each message of the algorithm, and SimGrid says
 * when a message arrives. So the simulation judges the algebra, and shows what it leaves out, as
 * a device that is slower than the others.
 */
#ifndef BENCH_MODEL_SIMULATE_H
#define BENCH_MODEL_SIMULATE_H

#include "bench/model/step_model.h"
#include "common/base/error.h"

// SimGrid sends a hundred thousand messages a second or two. A ring of W devices sends 2 W (W - 1)
// of them for a bucket, so a step of a large ring would take minutes: it is refused.
enum { SIMULATED_MESSAGES_MAX = 5000000 };

// Simulates one step in a process of its own. *seconds receives how long the step takes. Returns 0,
// or -1 with err filled (STATUS_SKIPPED without SimGrid).
int simulate_step(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                  double *seconds, Error *err);

#endif
