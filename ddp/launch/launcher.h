/* launcher.h: starts the ranks of a job on this node and supervises them until the last has ended
 * (torchrun's elastic agent without elasticity). ddprun.c is its command line.
 *
 *   - launcher_run returns only after every rank that it started has ended.
 *   - If a rank fails, all ranks are ended; the first line on stderr names the root cause: the rank
 *     that failed first, how, and in which phase, step and collective.
 *   - If ddprun is killed itself, the kernel kills its ranks, and guard.c their children.
 */
#ifndef DDP_LAUNCH_LAUNCHER_H
#define DDP_LAUNCH_LAUNCHER_H

#include "common/base/error.h"
#include "ddp/launch/launch_options.h"

// Runs the job and returns its exit status:
//
//   all ranks exited with 0          0
//   a rank failed                    the status of the first that did; 128 + number for a signal
//   a signal ended ddprun            128 + number
//   the ranks could not be started   err's status; err is filled
int launcher_run(const LaunchOptions *options, Error *err);

#endif
