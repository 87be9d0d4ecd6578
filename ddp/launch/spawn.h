/* spawn.h: starts one rank: fork, prepare, exec.
 *
 * A rank leads its own process group, is killed by the kernel if the launcher dies, reads
 * /dev/null, writes into two pipes, and inherits no descriptor but the heartbeat page's. Between
 * fork and exec only async-signal-safe functions are called, because the launcher's store has a
 * thread; the parent allocates all memory that the child needs.
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
    int inherited_fd;          // the heartbeat page: the only inherited descriptor
    sigset_t signal_mask;      // of the launcher at its start
    struct rlimit descriptors; // RLIMIT_NOFILE of the launcher at its start
    const cpu_set_t *cores;    // the rank's affinity; NULL: the launcher's
} Spawn;

// Searches the program as execvp does, then in ddprun's own folder. Returns 0, or -1 with err
// filled (STATUS_USAGE).
int spawn_find_program(const char *name, char path[PATH_MAX], Error *err);

typedef struct Spawned {
    pid_t pid;
    int stdout_fd, stderr_fd; // the read ends of its two pipes
    int start_fd;             // for poll, and for spawn_poll
} Spawned;

// Forks the rank and returns before its exec. 0, or -1 with err filled if fork failed.
int spawn_rank(const Spawn *spawn, Spawned *spawned, Error *err);

typedef enum SpawnState {
    SPAWN_STARTING, // before exec
    SPAWN_RUNS,     // exec succeeded; or the rank was killed before
    SPAWN_FAILED,   // exec failed, and the rank exits: err says why
} SpawnState;

// The state of the rank with this start_fd; never blocks. path: the program, for err.
SpawnState spawn_poll(int start_fd, const char *path, Error *err);

#endif
