/* launch_options.h: what ddprun's command line says, as the launcher's files read it. */
#ifndef DDP_LAUNCH_LAUNCH_OPTIONS_H
#define DDP_LAUNCH_LAUNCH_OPTIONS_H

#include <stdbool.h>

enum { LAUNCH_RANKS_MAX = 1024 }; // on one node

// Times are in seconds. The texts and argv are the caller's, and live as long as the job.
typedef struct LaunchOptions {
    int local_ranks;         // on each node
    int nodes, node;         // this is node `node` of `nodes`
    const char *master_addr; // node 0 serves the store at this address
    int master_port;         // 0: any free port (one node only)
    int max_restarts;
    double monitor_s;       // interval of the health checks (ddp/launch/heartbeat_monitor.c)
    double grace_s;         // from SIGTERM to SIGKILL
    double exit_timeout_s;  // from the first successful exit to the last exit
    double heartbeat_s;     // a rank without a heartbeat for longer has failed; 0: no time-out
    double start_timeout_s; // of the nodes' rendezvous, and of the ranks'
    const char *log_dir, *redirects, *tee, *shown; // ddp/launch/output_routing.h
    bool bind_cores;                               // each rank to its own share of the cores
    bool fake_hosts;                               // ranks may share a GPU: ddp/launch/launch_env.h
    char *const *command;                          // argv of every rank, ends with NULL
} LaunchOptions;

#endif
