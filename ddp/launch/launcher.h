/* launcher.h: starts the ranks of a job on this node, and sees them to their end (torchrun's
 * elastic agent, without the elastic part). ddprun.c is its command line.
 *
 * The promise: launcher_run returns only when every rank it started is gone, whatever happened. If
 * one rank fails, all are ended, and the first thing said on stderr is which one failed first, how,
 * and what it was doing. If ddprun itself is killed, the kernel kills the ranks.
 */
#ifndef DDP_LAUNCH_LAUNCHER_H
#define DDP_LAUNCH_LAUNCHER_H

#include <stdbool.h>

#include "common/base/error.h"

enum { LAUNCH_RANKS_MAX = 1024 }; // on one node

typedef struct LaunchOptions {
    int local_ranks;         // on each node
    int nodes, node;         // this one is `node` of `nodes`
    const char *master_addr; // node 0 serves the store there
    int master_port;         // 0: any free one (one node only)
    int max_restarts;
    double monitor_s;       // how often silent ranks and other nodes are looked at
    double grace_s;         // between SIGTERM and SIGKILL
    double exit_timeout_s;  // the last rank must end this long after the first that ended well
    double heartbeat_s;     // a rank silent for longer has failed; 0: never (ddp/launch/look.c)
    double start_timeout_s; // for the nodes to find each other, and then the ranks
    const char *log_dir;    // NULL: no log files
    const char *redirects, *tee, *shown; // in torchrun's notation: ddp/launch/output.h
    bool bind_cores;                     // each rank to its own share of the cores
    bool fake_hosts;                     // ranks may share a GPU: ddp/launch/env.h
    char *const *command;                // argv of every rank, ends with NULL
} LaunchOptions;

// Returns the job's exit status: 0 if all ranks ended with 0; the status of the rank that failed
// first (128 + number for a signal); 128 + number of a signal that ended ddprun. If the ranks could
// not be started, err is filled and its status returned.
int launcher_run(const LaunchOptions *options, Error *err);

#endif
