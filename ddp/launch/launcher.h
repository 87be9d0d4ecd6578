/* launcher.h: starts the ranks of a job on this node and supervises them until the last has ended
 * (torchrun's elastic agent). ddprun.c is its command line.
 *
 *   - launcher_run returns only after every rank that it started has ended.
 *   - If a rank fails, all ranks are ended; the first line on stderr names the root cause: the rank
 *     that failed first, how, and in which phase, step and collective.
 *   - If ddprun is killed itself, the kernel kills its ranks, and guard.c their children.
 */
#ifndef DDP_LAUNCH_LAUNCHER_H
#define DDP_LAUNCH_LAUNCHER_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/error.h"

enum { LAUNCH_RANKS_MAX = 1024 }; // on one node

// The command line of ddprun. Times are in seconds. The texts and argv are the caller's and must
// outlive the job.
typedef struct LaunchOptions {
    int local_ranks;         // on each node
    int nodes, node;         // this is node `node` of `nodes`
    int min_nodes;           // < nodes: from min_nodes to `nodes`, which come and go (elastic.h)
    const char *master_addr; // node 0 serves the store at this address
    int master_port;         // 0: any free port (one node only)
    int max_restarts;
    double monitor_s;       // interval of the health checks (ddp/launch/heartbeat_monitor.c)
    double grace_s;         // from SIGTERM to SIGKILL
    double exit_timeout_s;  // from the first successful exit to the last exit
    double heartbeat_s;     // a rank without a heartbeat for longer has failed; 0: no time-out
    double start_timeout_s; // of the nodes' rendezvous, and of the ranks'
    double last_call_s;     // wait for more nodes when min_nodes are ready (elastic.h)
    const char *log_dir, *redirects, *tee, *shown; // ddp/launch/output_routing.c; NULL: not given
    bool bind_cores;                               // each rank to its own share of the cores
    bool fake_hosts;                               // ranks may share a GPU: ddp/launch/launch_env.c
    char *const *command;                          // argv of every rank, ends with NULL
} LaunchOptions;

// Runs the job and returns its exit status. The process is to end with it: the signals that
// ddprun takes stay blocked.
//
//   all ranks exited with 0          0
//   a rank failed                    the status of the first that did; 128 + number for a signal
//   a signal ended ddprun            128 + number
//   the ranks could not be started   err's status; err is filled
int launcher_run(const LaunchOptions *options, Error *err);

// Searches the program as execvp does, then in ddprun's own folder. Returns 0, or -1 with err
// filled (STATUS_USAGE).
int launcher_find_program(const char *name, char path[PATH_MAX], Error *err);

#endif
