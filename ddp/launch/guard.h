/* guard.h: a process that kills the ranks' descendants if the launcher dies of SIGKILL.
 *
 * In that case the kernel kills the ranks (PR_SET_PDEATHSIG), but not their children: in
 * `ddprun sh -c 'train_ddp; ...'` the trainer is the shell's child. The launcher writes to a pipe
 * which process groups it has started and which have ended. At end of file the guard kills all
 * groups that are left. Limit: a process that called setsid has left its group and survives.
 */
#ifndef DDP_LAUNCH_GUARD_H
#define DDP_LAUNCH_GUARD_H

#include <sys/types.h>

#include "common/base/error.h"

typedef struct Guard Guard;

// Forks the guard. Precondition: the process has one thread. NULL with err filled on failure.
Guard *guard_open(Error *err);
void guard_watch(Guard *guard, pid_t group); // called in the rank, before exec
// Precondition: the group's leader is not reaped yet. Afterwards its number may be reused.
void guard_release(Guard *guard, pid_t group);
void guard_close(Guard *guard); // and reaps the guard

#endif
