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

typedef struct Guard {
    pid_t pid; // 0: not open
    int fd;    // the pipe's write end
} Guard;

// Forks the guard. Precondition: the process has one thread. 0, or -1 with err filled.
int guard_open(Guard *guard, Error *err);
// Watches process group `message`, before its leader's exec; or releases group -message, before its
// leader is reaped, because its number may be reused afterwards.
void guard_tell(const Guard *guard, pid_t message);
void guard_close(Guard *guard); // and reaps the guard

#endif
