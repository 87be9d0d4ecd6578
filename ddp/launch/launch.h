/* launch.h: what the launcher's files share: the state of one job on this node.
 *
 * launcher.c opens it and makes attempts, the first and the restarts; meet.c waits for the other
 * nodes; start.c starts the ranks of an attempt; supervise.c sees them to their end; look.c looks
 * for ranks that are silent; report.c puts what happened into words. One thread uses it.
 */
#ifndef DDP_LAUNCH_LAUNCH_H
#define DDP_LAUNCH_LAUNCH_H

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

#include "ddp/launch/guard.h"
#include "ddp/launch/launcher.h"
#include "ddp/launch/nodes.h"
#include "ddp/launch/output.h"
#include "ddp/rendezvous/heartbeat.h"
#include "ddp/store/store.h"

enum { STARTS_AT_A_TIME = 16 }; // ranks that are forked and do not run their program yet

typedef enum RankFate { RANK_ABSENT, RANK_ALIVE, RANK_EXITED, RANK_KILLED } RankFate;

typedef struct LaunchedRank {
    int rank, local_rank;
    pid_t pid;    // also the number of its process group
    int start_fd; // what spawn_look reads until the rank's program runs; afterwards -1
    RankFate fate;
    int code; // the exit status, or the number of the signal that killed the rank
    bool core_dumped;
    uint64_t ended_ns;
    struct timespec ended_at; // the same moment on the wall clock
    bool stopped;             // by SIGSTOP or the like
    uint64_t stopped_ns;
    struct timespec stopped_at;
    uint64_t beat_ns;  // the time in its last heartbeat that was seen; 0: none was seen yet
    uint64_t heard_ns; // when that one was seen; before the first, when the rank was started
    int sent;          // the last signal that the launcher sent it while it was alive; 0: none
} LaunchedRank;

typedef enum LaunchStage {
    LAUNCH_RUNNING,  // ranks run, and more may be started
    LAUNCH_DOUBTING, // something failed: a moment for other deaths to be seen, before judging
    LAUNCH_ENDING,   // signalled; SIGKILL when the grace is over
    LAUNCH_KILLING,  // SIGKILL is sent; what remains cannot be killed
} LaunchStage;

typedef enum LaunchCause {
    CAUSE_NONE,
    CAUSE_DEATH,   // the root rank exited with a failure or was killed
    CAUSE_STOPPED, // the root rank is stopped
    CAUSE_SILENT,  // the root rank's heartbeat stands still
    CAUSE_LATE,    // the root rank did not end after the others had
    CAUSE_NODES,   // something happened on another node
    CAUSE_START,   // a rank could not be started: start_error says why
    CAUSE_SIGNAL,  // the launcher was told to end
} LaunchCause;

typedef struct Launch {
    const LaunchOptions *options;
    char program[PATH_MAX];
    char host[72];
    char token[STORE_TOKEN_MAX + 1];
    int port;
    LaunchedRank *ranks; // [options->local_ranks]
    Output *output;
    HeartbeatBoard *board;
    Guard *guard;
    StoreServer *server; // on node 0
    Nodes *nodes;        // NULL if there is one node only
    int signal_fd;
    sigset_t old_mask;
    struct rlimit old_descriptors;
    struct pollfd *poll_entries;

    // This attempt:
    int attempt;
    LaunchStage stage;
    uint64_t looked_ns; // when the heartbeats were last looked at
    uint64_t act_at_ns; // when the stage is over
    int started;        // how many ranks have been forked: the local ranks 0 .. started - 1
    int starting;       // how many of these do not run their program yet
    int alive;          // how many have not ended
    Error start_error;
    uint64_t first_good_end_ns; // 0: no rank has ended well yet
    LaunchCause cause;
    int root;        // the local rank that failed first; -1: none has
    int caught;      // the signal by which the launcher was told to end; 0: none
    bool no_restart; // another node's launcher was told to end the job
} Launch;

// Forks as many ranks as may start at a time, while there are some left and nothing has failed.
void launch_start_some(Launch *launch);
// Looks whether local rank r runs its program by now; if it cannot run it, ends the attempt.
void launch_watch_start(Launch *launch, int r);

// Waits until all nodes are there. Returns 0; or -1 with err filled, which names those that are
// missing; or the number of a signal that came first.
int launch_meet_nodes(Launch *launch, Error *err);
// Waits until every node has come to `point` of this attempt. False: something else has ended it.
bool launch_gather_nodes(Launch *launch, const char *point, double patience_s);
// Waits for the other nodes' ranks to end, after all ranks here have ended well.
void launch_await_nodes(Launch *launch);
// Waits a moment on node 0, whose store must not go before the others know how the job ended.
void launch_part_from_nodes(Launch *launch);

// Waits for something to happen, at most until `until_ns` and the next look at the heartbeats, and
// moves output on.
void launch_wait(Launch *launch, uint64_t until_ns);
// Takes signals sent to the launcher; returns one of them, 0 if there is none.
int launch_take_signal(Launch *launch);
// Sees the ranks of this attempt to their end, whatever it takes. Afterwards cause says how it
// went.
void launch_supervise(Launch *launch);
// Ends all ranks because of `cause`.
void launch_end_ranks(Launch *launch, LaunchCause cause, int signal_number);
// Reports that local rank `root` has failed, and ends all ranks because of it.
void launch_fail(Launch *launch, LaunchCause cause, int root);
// Looks whether a rank has fallen silent or is late, or another node has failed: if so, ends all.
void launch_look(Launch *launch);

// Writes a signal's name, "SIGKILL", or "signal 99" where there is none. Returns text.
const char *report_signal(int number, char text[24]);
// Says which rank failed, how, when, and what it was doing: the first line after a failure.
void report_root(Launch *launch);
// Says what became of the other ranks.
void report_others(Launch *launch);

#endif
