/* guard.h: a small process that outlives the launcher by a moment, for the one death that it
 * cannot answer: its own by SIGKILL.
 *
 * The kernel kills the ranks then (PR_SET_PDEATHSIG), but not what the ranks have started: in
 * `ddprun sh -c 'train_ddp; ...'` the trainer is the shell's child. The guard reads from a pipe
 * which process groups the launcher has started and which have ended. When the pipe closes while
 * some are left, the launcher is dead, and the guard kills them.
 * A process that gave itself a session of its own (setsid) belongs to no group that is watched, and
 * gets away.
 */
#ifndef DDP_LAUNCH_GUARD_H
#define DDP_LAUNCH_GUARD_H

#include <sys/types.h>

#include "common/base/error.h"

typedef struct Guard Guard;

// Forks the guard: to be called while the process has one thread.
Guard *guard_open(Error *err);
void guard_watch(Guard *guard, pid_t group); // called by the rank itself, before its program runs
// To be called before the group's leader is reaped, because afterwards its number may be given to
// another process.
void guard_release(Guard *guard, pid_t group);
void guard_close(Guard *guard); // waits for the guard's end, which follows at once

#endif
