/* launcher.c: a job on this node, from its store to its exit status (ddp/launch/launcher.h).
 *
 * Opens the resources that all attempts share (signals, output, heartbeat page, store), waits for
 * the other nodes (nodes.c), then starts and supervises the ranks (supervise.c); after a
 * failure again, at most --max-restarts times, and with elastic nodes in each generation
 * (elastic.h). Signals are blocked and read from a descriptor, so
 * they are handled in one place and interrupt no call. The store outlives the attempts; ranks
 * separate their keys by the restart count.
 */
#include "ddp/launch/launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "ddp/launch/elastic.h"
#include "ddp/rendezvous/rendezvous_internal.h"
#include "ddp/store/net.h"

#define FLUSH_S 10.0 // time-out of the last flush to a slow console

// ---- Opening

// SIGHUP stays ignored if nohup has ignored it.
static int open_signals(Launch *launch, Error *err) {
    struct sigaction hangup;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGQUIT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&wanted, SIGHUP);
    // If SIGCHLD were ignored, the kernel would drop the children's statuses. A closed console is
    // reported by write's EPIPE.
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &wanted, &launch->old_mask);
    launch->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signal_fd >= 0) return 0;
    return error_set(err, STATUS_FAILED, "cannot receive signals: %s", strerror(errno));
}

// The token authenticates the clients of the store: this job only. All nodes must share it.
static int make_token(Launch *launch, Error *err) {
    if (launch->options->nodes == 1) return store_make_token(launch->token, err);
    if (init_read_token(launch->token, err) != 0) return -1;
    if (launch->token[0]) return 0;
    return error_set(err, STATUS_USAGE,
                     "with several nodes set DDPRUN_TOKEN to the same secret on each, for example "
                     "to the output of: openssl rand -hex 16");
}

static int launch_open(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    machine_name(launch->host, sizeof launch->host);
    launch->ranks = memory_zalloc((size_t)o->local_ranks * sizeof *launch->ranks);
    if (getrlimit(RLIMIT_NOFILE, &launch->old_descriptors) != 0)
        return error_set(err, STATUS_FAILED, "getrlimit: %s", strerror(errno));
    if (launcher_find_program(o->command[0], launch->program, err) != 0) return -1;
    if (make_token(launch, err) != 0) return -1;
    launch->output = output_open(o, err);
    if (!launch->output) return -1;
    if (open_signals(launch, err) != 0 || guard_open(&launch->guard, err) != 0) return -1;
    if (heartbeat_board_open(&launch->board, o->local_ranks, err) != 0) return -1;
    launch->port = o->master_port;
    if (o->node != 0) return net_check_host(o->master_addr, err); // a wrong name is not retried
    launch->server = store_serve(o->master_addr, o->master_port, launch->token, err);
    if (!launch->server) return -1;
    launch->port = store_server_port(launch->server);
    return 0;
}

static void launch_close(Launch *launch) {
    output_close(launch->output);
    store_close(launch->store);
    store_server_close(launch->server);
    heartbeat_board_close(&launch->board);
    guard_close(&launch->guard);
    elastic_close(launch);
    free(launch->others);
    free(launch->ranks);
    free(launch);
}

// ---- Attempts

static int exit_status(const Launch *launch) {
    if (launch->cause == CAUSE_NONE) return STATUS_OK;
    if (launch->cause == CAUSE_SIGNAL) return 128 + launch->caught;
    if (launch->cause != CAUSE_DEATH) return STATUS_FAILED;
    const LaunchedRank *root = &launch->ranks[launch->root];
    return root->fate == RANK_KILLED ? 128 + root->code : root->code;
}

static int prepare_attempt(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    const int first_rank = launch->node * o->local_ranks;
    launch->stage = LAUNCH_RUNNING;
    launch->cause = CAUSE_NONE;
    launch->root = -1;
    launch->alive = launch->started = launch->starting = 0;
    launch->first_good_end_ns = launch->checked_ns = 0;
    heartbeat_board_clear(&launch->board);
    for (int r = 0; r < o->local_ranks; r++)
        launch->ranks[r] = (LaunchedRank){
            .rank = first_rank + r, .local_rank = r, .start_fd = -1, .fate = RANK_ABSENT};
    return output_begin(launch->output, launch->attempt, first_rank, err);
}

static int run_attempt(Launch *launch, Error *err) {
    bool prepared = prepare_attempt(launch, err) == 0;
    if (prepared) launch_supervise(launch);
    output_end(launch->output);
    if (launch->cause == CAUSE_START)
        error_set(err, launch->start_error.status, "%s", launch->start_error.message);
    if (!prepared || launch->cause == CAUSE_START) {
        launch_publish_end(launch, END_STOPPED, err->message);
        return -1;
    }
    if (launch->cause == CAUSE_NONE) launch_await_nodes(launch);
    if (launch->cause != CAUSE_NONE) report_others(launch);
    return 0;
}

static bool may_restart(const Launch *launch) {
    return launch->cause != CAUSE_NONE && launch->cause != CAUSE_SIGNAL && !launch->caught &&
           !launch->no_restart && launch->alive == 0 &&
           launch->attempt < launch->options->max_restarts;
}

// False: no further attempt.
static bool next_attempt(Launch *launch, Error *err) {
    if (launch->elastic) return elastic_next(launch, err);
    if (!may_restart(launch) || !launch_end_together(launch)) return false;
    output_say(launch->output, "restarting all ranks (restart %d of %d)", ++launch->attempt,
               launch->options->max_restarts);
    return true;
}

static int run_attempts(Launch *launch, Error *err) {
    launch_say_threads(launch);
    do {
        if (run_attempt(launch, err) != 0) return err->status;
    } while (next_attempt(launch, err));
    return err->status != 0 ? err->status : exit_status(launch);
}

int launcher_run(const LaunchOptions *options, Error *err) {
    Launch *launch = memory_zalloc(sizeof *launch);
    launch->options = options;
    launch->root = -1;
    int status = launch_open(launch, err) == 0 ? launch_rendezvous_nodes(launch, err) : -1;
    if (status > 0)
        status = 128 + launch->caught;
    else
        status = status == 0 ? run_attempts(launch, err) : err->status;
    launch_drain_nodes(launch);
    int lost = launch->output ? output_flush(launch->output, FLUSH_S) : 0;
    if (status == 0 && lost) {
        char why[FILE_CAUSE_ROOM];
        error_set(err, STATUS_FAILED, "lines on standard output were lost: %s",
                  file_cause(lost, why));
        status = STATUS_FAILED;
    }
    launch_close(launch);
    return status;
}
