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

// Is SimGrid compiled in?
bool simulate_available(void);

// Seconds of one step, simulated in a process of its own. Returns 0, or -1 with err filled
// (STATUS_SKIPPED without SimGrid). A ring of W devices sends 2 W (W - 1) messages for a bucket:
// rings of more than 1,024 devices are refused.
int simulate_dp(const StepProfile *profile, const Cluster *cluster, double *seconds, Error *err);
int simulate_ddp(const StepProfile *profile, const Cluster *cluster, double *seconds, Error *err);

#endif
