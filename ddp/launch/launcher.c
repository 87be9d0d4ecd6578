/* launcher.c: a job on this node, from its store to its exit status (ddp/launch/launcher.h).
 *
 * Opens what all attempts share (signals, output, heartbeat page, store), then starts the ranks and
 * watches over them (supervise.c), anew after a failure as often as --max-restarts allows.
 * Signals are blocked and read from a descriptor, so they are looked at in one place and interrupt
 * nothing. The store lives through all attempts; ranks keep their keys apart by the restart count.
 */
#include "ddp/launch/launcher.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/launch/env.h"
#include "ddp/launch/launch.h"
#include "ddp/launch/spawn.h"

enum { TOKEN_BYTES = 16 }; // 128 bits, written as hexadecimal digits

#define FLUSH_S   5.0 // for a console that is slow to take the last lines
#define PARTING_S 5.0 // for the other nodes to have read that all is done

static uint64_t after(double seconds) {
    return clock_ns() + (uint64_t)(seconds * 1e9);
}

// ---- Opening

// SIGHUP stays ignored if it is: that is what nohup does, and means.
static int open_signals(Launch *launch, Error *err) {
    struct sigaction hangup;
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGCHLD);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGQUIT);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        sigaddset(&wanted, SIGHUP);
    }
    // A child whose parent ignores SIGCHLD leaves no status behind; a console that closes is
    // noticed by its write failing.
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &wanted, &launch->old_mask);
    launch->signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    if (launch->signal_fd >= 0) return 0;
    return error_set(err, STATUS_FAILED, "cannot receive signals: %s", strerror(errno));
}

// The token keeps other users and other jobs out of the store. Nodes must share it.
static int make_token(Launch *launch, Error *err) {
    const char *given = getenv("DDPRUN_TOKEN");
    if (given && *given && launch->options->nodes > 1) {
        if (strlen(given) > STORE_TOKEN_MAX) {
            return error_set(err, STATUS_USAGE, "DDPRUN_TOKEN is longer than %d bytes",
                             STORE_TOKEN_MAX);
        }
        memcpy(launch->token, given, strlen(given) + 1);
        return 0;
    }
    if (launch->options->nodes > 1) {
        return error_set(err, STATUS_USAGE,
                         "with several nodes set DDPRUN_TOKEN to the same secret on each, for "
                         "example to the output of: openssl rand -hex 16");
    }
    unsigned char random[TOKEN_BYTES];
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        return error_set(err, STATUS_FAILED, "no random numbers: %s", strerror(errno));
    }
    for (size_t i = 0; i < sizeof random; i++) {
        snprintf(launch->token + 2 * i, 3, "%02x", (unsigned)random[i]);
    }
    return 0;
}

static int open_output(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    OutputOptions options = {.ranks = o->local_ranks,
                             .first_rank = o->node * o->local_ranks,
                             .log_dir = o->log_dir,
                             .redirects = o->redirects,
                             .tee = o->tee,
                             .shown = o->shown};
    launch->output = output_open(&options, err);
    if (!launch->output) return -1;
    launch->poll_entries =
        memory_zalloc((output_poll_max(launch->output) + 1) * sizeof *launch->poll_entries);
    return 0;
}

static int open_store(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    launch->port = o->master_port;
    if (o->node != 0) return 0;
    launch->server = store_serve(o->master_addr, o->master_port, launch->token, err);
    if (!launch->server) return -1;
    launch->port = store_server_port(launch->server);
    return 0;
}

static int launch_open(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    if (gethostname(launch->host, sizeof launch->host - 1) != 0) strcpy(launch->host, "?");
    launch->ranks = memory_zalloc((size_t)o->local_ranks * sizeof *launch->ranks);
    if (getrlimit(RLIMIT_NOFILE, &launch->old_descriptors) != 0) {
        return error_set(err, STATUS_FAILED, "getrlimit: %s", strerror(errno));
    }
    if (spawn_find_program(o->command[0], launch->program, err) != 0) return -1;
    if (make_token(launch, err) != 0 || open_output(launch, err) != 0) return -1;
    if (open_signals(launch, err) != 0) return -1;
    launch->guard = guard_open(err);
    if (!launch->guard) return -1;
    launch->board = heartbeat_board_open(o->local_ranks, err);
    if (!launch->board) return -1;
    return open_store(launch, err);
}

static void launch_close(Launch *launch) {
    if (launch->output) output_flush(launch->output, FLUSH_S);
    output_close(launch->output);
    nodes_leave(launch->nodes);
    store_server_close(launch->server);
    heartbeat_board_close(launch->board);
    guard_close(launch->guard);
    if (launch->signal_fd >= 0) {
        close(launch->signal_fd);
        sigprocmask(SIG_SETMASK, &launch->old_mask, NULL);
    }
    free(launch->ranks);
    free(launch->poll_entries);
}

// ---- Starting the ranks

// Local rank r's share of the cores that the launcher may use; with more ranks than cores they take
// turns.
static void share_cores(int r, int ranks, cpu_set_t *share) {
    cpu_set_t all;
    CPU_ZERO(share);
    if (sched_getaffinity(0, sizeof all, &all) != 0) CPU_ZERO(&all);
    int cores = CPU_COUNT(&all), seen = 0;
    int begin = cores >= ranks ? r * cores / ranks : cores ? r % cores : 0;
    int end = cores >= ranks ? (r + 1) * cores / ranks : begin + 1;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (seen >= begin && seen < end) CPU_SET(core, share);
        seen++;
    }
}

static int start_rank(Launch *launch, int r, Error *err) {
    const LaunchOptions *o = launch->options;
    LaunchedRank *rank = &launch->ranks[r];
    *rank = (LaunchedRank){.rank = o->node * o->local_ranks + r, .local_rank = r};
    LaunchEnv facts = {.rank = rank->rank,
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
                       .fake_hosts = o->fake_hosts};
    char **environment = launch_env_make(&facts);
    cpu_set_t cores;
    share_cores(r, o->local_ranks, &cores);
    Spawn spawn = {.path = launch->program,
                   .argv = o->command,
                   .environment = environment,
                   .guard = launch->guard,
                   .inherited_fd = facts.heartbeat_fd,
                   .signal_mask = launch->old_mask,
                   .descriptors = launch->old_descriptors,
                   .cores = o->bind_cores ? &cores : NULL};
    int stdout_fd = -1, stderr_fd = -1;
    rank->pid = spawn_rank(&spawn, &stdout_fd, &stderr_fd, err);
    launch_env_free(environment);
    if (rank->pid < 0) return -1;
    rank->fate = RANK_ALIVE;
    rank->heard_ns = clock_ns();
    launch->alive++;

    output_attach(launch->output, r, stdout_fd, stderr_fd);
    return 0;
}

static int start_ranks(Launch *launch, Error *err) {
    for (int r = 0; r < launch->options->local_ranks; r++) {
        launch->ranks[r] = (LaunchedRank){.fate = RANK_ABSENT};
    }
    if (output_begin(launch->output, launch->attempt, err) != 0) return -1;
    for (int r = 0; r < launch->options->local_ranks; r++) {
        if (start_rank(launch, r, err) != 0) return error_prefix(err, "rank %d", r);
    }
    return 0;
}

// ---- Several nodes

// Reaches node 0's store, which may start later than this node; 0, or -1 with err, or the signal
// that came first.
static int join_nodes(Launch *launch, Error *err) {
    const LaunchOptions *o = launch->options;
    uint64_t deadline_ns = after(o->start_timeout_s);
    while (o->nodes > 1 && !launch->nodes) {
        Error attempt = {0};
        launch->nodes =
            nodes_join(o->nodes, o->node, o->master_addr, launch->port, launch->token, &attempt);
        launch->caught = launch_take_signal(launch);
        if (launch->caught) return launch->caught;
        if (!launch->nodes && (attempt.status != STATUS_FAILED || clock_ns() >= deadline_ns)) {
            error_set(err, attempt.status, "%s", attempt.message);
            return error_prefix(err, "node %d cannot reach node 0", o->node);
        }
    }
    return 0;
}

// Waits until all nodes have come to `point`, or something else ends the attempt. True: they have.
static bool meet_nodes(Launch *launch, const char *point, double patience_s) {
    uint64_t deadline_ns = after(patience_s);
    char text[1024];
    nodes_arrive(launch->nodes, point, launch->attempt);
    while (!nodes_all_arrived(launch->nodes, point, launch->attempt)) {
        launch_wait(launch, after(0.2));
        launch->caught = launch_take_signal(launch);
        if (launch->caught) {
            nodes_tell(launch->nodes, launch->attempt, true, "its ddprun received a signal");
            launch->cause = CAUSE_SIGNAL;
            return false;
        }
        NodesNews news = nodes_look(launch->nodes, launch->attempt, text, sizeof text);
        if (news == NODES_STOPPED) launch->no_restart = true;
        if (launch->cause == CAUSE_NONE && news != NODES_FINE) {
            output_say(launch->output, "%s", text);
            launch->cause = CAUSE_NODES;
            return false;
        }
        if (news == NODES_STOPPED || clock_ns() >= deadline_ns) return false;
    }
    return true;
}

// All ranks here ended well: now those of the other nodes.
static void await_other_nodes(Launch *launch) {
    if (!launch->nodes || meet_nodes(launch, "done", launch->options->exit_timeout_s)) return;
    if (launch->cause != CAUSE_NONE) return;
    const char *why = "not all nodes ended in time";
    output_say(launch->output, "%s", why);
    nodes_tell(launch->nodes, launch->attempt, true, why);
    launch->cause = CAUSE_NODES;
}

// Node 0's store must not go before the others know how the job ended.
static void part_from_nodes(Launch *launch) {
    if (!launch->nodes) return;
    uint64_t deadline_ns = after(PARTING_S);
    nodes_arrive(launch->nodes, "parted", 0);
    while (launch->options->node == 0 && clock_ns() < deadline_ns &&
           !nodes_all_arrived(launch->nodes, "parted", 0)) {
        launch_wait(launch, after(0.1));
    }
}

// ---- Attempts

static int exit_status(const Launch *launch) {
    const LaunchedRank *root = launch->root >= 0 ? &launch->ranks[launch->root] : NULL;
    switch (launch->cause) {
    case CAUSE_NONE:
        return STATUS_OK;
    case CAUSE_SIGNAL:
        return 128 + launch->caught;
    case CAUSE_DEATH:
        return root->fate == RANK_KILLED ? 128 + root->code : root->code;
    default:
        return STATUS_FAILED;
    }
}

static int run_attempt(Launch *launch, Error *err) {
    launch->stage = LAUNCH_RUNNING;
    launch->cause = CAUSE_NONE;
    launch->root = -1;
    launch->alive = 0;
    launch->first_good_end_ns = launch->looked_ns = 0;
    heartbeat_board_clear(launch->board);
    bool started = start_ranks(launch, err) == 0;
    if (!started) launch_end_ranks(launch, CAUSE_DEATH, SIGTERM);
    launch_supervise(launch);
    output_end(launch->output);
    if (!started) {
        nodes_tell(launch->nodes, launch->attempt, true, err->message);
        return -1;
    }
    if (launch->cause == CAUSE_NONE) await_other_nodes(launch);
    if (launch->cause != CAUSE_NONE) report_others(launch);
    return 0;
}

static bool may_restart(const Launch *launch) {
    return launch->cause != CAUSE_NONE && launch->cause != CAUSE_SIGNAL && !launch->caught &&
           !launch->no_restart && launch->alive == 0 &&
           launch->attempt < launch->options->max_restarts;
}

static int run_attempts(Launch *launch, Error *err) {
    for (;; launch->attempt++) {
        if (run_attempt(launch, err) != 0) return err->status;
        if (!may_restart(launch)) return exit_status(launch);
        double patience_s = launch->options->grace_s + 60;
        if (launch->nodes && !meet_nodes(launch, "ended", patience_s)) return exit_status(launch);
        output_say(launch->output, "restarting all ranks (restart %d of %d)", launch->attempt + 1,
                   launch->options->max_restarts);
    }
}

int launcher_run(const LaunchOptions *options, Error *err) {
    Launch *launch = memory_zalloc(sizeof *launch);
    launch->options = options;
    launch->signal_fd = -1;
    launch->root = -1;
    int status = launch_open(launch, err) == 0 ? join_nodes(launch, err) : -1;
    if (status > 0) {
        status = 128 + launch->caught;
    } else if (status == 0) {
        status = run_attempts(launch, err);
        part_from_nodes(launch);
    } else {
        status = err->status;
    }
    if (launch->output) output_flush(launch->output, FLUSH_S);
    int lost = launch->output ? output_lost(launch->output) : 0;
    if (status == 0 && lost) {
        error_set(err, STATUS_FAILED, "lines on standard output were lost: %s", strerror(lost));
        status = STATUS_FAILED;
    }
    launch_close(launch);
    free(launch);
    return status;
}
