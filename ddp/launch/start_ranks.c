/* start_ranks.c: starts the ranks of an attempt, at most STARTS_AT_A_TIME at a time
 * (ddp/launch/launch.h).
 *
 * fork returns at once; exec may take long, if the file is read over a network. The supervision's
 * loop polls the starting ranks with everything else, so that signals and deaths are handled while
 * ranks are still to be started; after a failure those are not started.
 */
#include <sched.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "ddp/launch/launch.h"
#include "ddp/launch/launch_env.h"
#include "ddp/launch/spawn.h"

#define START_S 60.0 // time-out of exec: the program may be on a network's file system

static char **make_environment(const Launch *launch, int r) {
    const LaunchOptions *o = launch->options;
    LaunchEnv facts = {.rank = launch->ranks[r].rank,
                       .local_rank = r,
                       .world_size = o->nodes * o->local_ranks,
                       .local_world_size = o->local_ranks,
                       .node = o->node,
                       .nodes = o->nodes,
                       .master_addr = o->master_addr,
                       .master_port = launch->port,
                       .restart_count = launch->attempt,
                       .max_restarts = o->max_restarts,
                       .token = launch->token,
                       .heartbeat_fd = heartbeat_board_fd(launch->board),
                       .fake_hosts = o->fake_hosts,
                       .terminal_columns = output_bar_columns(launch->output, r)};
    return launch_env_make(&facts);
}

static int start_rank(Launch *launch, int r, Error *err) {
    const LaunchOptions *o = launch->options;
    LaunchedRank *rank = &launch->ranks[r];
    cpu_set_t all, cores; // the launcher's affinity, and this rank's share of it
    if (sched_getaffinity(0, sizeof all, &all) != 0) CPU_ZERO(&all);
    cores_share(&all, r, o->local_ranks, &cores);
    char **environment = make_environment(launch, r);
    Spawn spawn = {.path = launch->program,
                   .argv = o->command,
                   .environment = environment,
                   .guard = launch->guard,
                   .inherited_fd = heartbeat_board_fd(launch->board),
                   .signal_mask = launch->old_mask,
                   .descriptors = launch->old_descriptors,
                   .cores = o->bind_cores ? &cores : NULL};
    Spawned spawned;
    int status = spawn_rank(&spawn, &spawned, err);
    launch_env_free(environment);
    if (status != 0) return -1;
    rank->pid = spawned.pid;
    rank->start_fd = spawned.start_fd;
    rank->fate = RANK_ALIVE;
    rank->heard_ns = clock_ns();
    launch->alive++;
    launch->starting++;
    output_connect(launch->output, r, spawned.stdout_fd, spawned.stderr_fd);
    return 0;
}

static void fail_start(Launch *launch, int r, const Error *cause) {
    error_set(&launch->start_error, cause->status, "rank %d: %s", launch->ranks[r].rank,
              cause->message); // error_set keeps the first error
    if (launch->stage == LAUNCH_RUNNING) launch_end_ranks(launch, CAUSE_START, SIGTERM);
}

void launch_watch_start(Launch *launch, int r) {
    LaunchedRank *rank = &launch->ranks[r];
    if (rank->start_fd < 0) return;
    Error err = {0};
    bool late = clock_ns() - rank->heard_ns > (uint64_t)(START_S * 1e9);
    SpawnState state = spawn_poll(rank->start_fd, launch->program, &err);
    if (state == SPAWN_STARTING && !late) return;
    if (state == SPAWN_STARTING)
        error_set(&err, STATUS_FAILED, "%s has not begun to run after %g s", launch->program,
                  START_S);
    close(rank->start_fd);
    rank->start_fd = -1;
    launch->starting--;
    if (err.status != 0) fail_start(launch, r, &err);
}

void launch_start_some(Launch *launch) {
    while (launch->stage == LAUNCH_RUNNING && launch->started < launch->options->local_ranks &&
           launch->starting < STARTS_AT_A_TIME) {
        Error err = {0};
        int r = launch->started++;
        if (start_rank(launch, r, &err) != 0) fail_start(launch, r, &err);
    }
}
