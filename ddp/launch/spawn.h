/* spawn.h: starting one rank: fork, prepare, exec.
 *
 * A rank is the leader of a process group of its own, is killed by the kernel when the launcher
 * dies, reads /dev/null, writes into two pipes, and inherits no other descriptor but the heartbeat
 * page's. Between fork and exec only async-signal-safe calls are made, because the launcher's store
 * has a thread; all memory the child needs is prepared before.
 */
#ifndef DDP_LAUNCH_SPAWN_H
#define DDP_LAUNCH_SPAWN_H

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "ddp/launch/guard.h"

typedef struct Spawn {
    const char *path; // from spawn_find_program
    char *const *argv;
    char *const *environment;
    Guard *guard;
    int inherited_fd;          // the heartbeat page, the one descriptor that the rank inherits
    sigset_t signal_mask;      // the mask that the launcher was started with
    struct rlimit descriptors; // the limit of open files that the launcher was started with
    const cpu_set_t *cores;    // where the rank may run; NULL: where the launcher may
} Spawn;

// Finds the program as execvp does, and then beside this one. Returns 0, or -1 with err
// (STATUS_USAGE) saying what is wrong.
int spawn_find_program(const char *name, char path[PATH_MAX], Error *err);

typedef struct Spawned {
    pid_t pid;
    int stdout_fd, stderr_fd; // the read ends of its two pipes
    int start_fd;             // for poll, and for spawn_look
} Spawned;

// Forks the rank, which then becomes its program by itself. -1 with err filled if it could not be
// forked.
int spawn_rank(const Spawn *spawn, Spawned *spawned, Error *err);

typedef enum SpawnState {
    SPAWN_STARTING, // nothing is known yet
    SPAWN_RUNS,     // the program runs; or the rank was killed before
    SPAWN_FAILED,   // the rank ends, because its program cannot be run: err says why
} SpawnState;

// Looks, without waiting, what has become of the rank with this start_fd. path: its program's.
SpawnState spawn_look(int start_fd, const char *path, Error *err);

#endif
