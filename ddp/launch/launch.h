/* launch.h: the state of one job on this node, shared by the launcher's files. One thread uses it.
 *
 *   launcher.c           opens the state; runs the first attempt and the restarts
 *   nodes.c              waits for the other nodes' launchers, and detects their end; elastic.h:
 *                        nodes that come and go
 *   spawn.c              starts the ranks of an attempt; launch_env.c: their variables
 *   supervise.c          supervises them until the last has ended
 *   heartbeat_monitor.c  detects ranks that are stopped, silent or late
 *   failure_report.c     reports a failed attempt
 *   guard.c              kills the ranks' descendants if the launcher dies of SIGKILL
 */
#ifndef DDP_LAUNCH_LAUNCH_H
#define DDP_LAUNCH_LAUNCH_H

#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

#include "ddp/launch/launcher.h"
#include "ddp/launch/output.h"
#include "ddp/rendezvous/heartbeat.h"
#include "ddp/store/store.h"

typedef struct Guard {
    pid_t pid; // 0: not open
    int fd;    // the pipe's write end
} Guard;

enum { STARTS_AT_A_TIME = 16 }; // ranks between fork and exec at a time

typedef enum RankFate { RANK_ABSENT, RANK_ALIVE, RANK_EXITED, RANK_KILLED } RankFate;

typedef struct LaunchedRank {
    int rank, local_rank;
    pid_t pid;    // also the number of its process group
    int start_fd; // pipe that is closed when the rank's program runs; then -1
    RankFate fate;
    int code; // the exit status, or the number of the signal that killed the rank
    bool failed, core_dumped;
    uint64_t ended_ns;
    struct timespec ended_at; // the same moment on the wall clock
    bool stopped;             // by a signal, as SIGSTOP
    uint64_t stopped_ns;
    struct timespec stopped_at;
    uint64_t beat_ns;  // time stamp of the last heartbeat; 0: none yet
    uint64_t heard_ns; // when the launcher saw it; before the first: the start
    int sent;          // last signal that the launcher sent to it alive; 0: none
} LaunchedRank;

typedef enum LaunchStage {
    LAUNCH_RUNNING,  // ranks run or are started
    LAUNCH_DOUBTING, // a rank failed: collects further deaths before the root is named
    LAUNCH_ENDING,   // ranks are signalled; SIGKILL after the grace time
    LAUNCH_KILLING,  // SIGKILL is sent; a rank that remains cannot be killed
} LaunchStage;

typedef enum LaunchCause {
    CAUSE_NONE,
    CAUSE_DEATH,   // the root rank exited with a failure or was killed
    CAUSE_STOPPED, // the root rank is stopped
    CAUSE_SILENT,  // the root rank's heartbeat timed out
    CAUSE_LATE,    // the root rank runs longer than --exit-timeout after the first
    CAUSE_NODES,   // another node ended the attempt
    CAUSE_START,   // a rank could not be started: start_error
    CAUSE_SIGNAL,  // the launcher received a signal
} LaunchCause;

// How an attempt ended, as the nodes publish it.
typedef enum LaunchEnd {
    END_NONE,    // it has not ended
    END_FAILED,  // a rank failed, or a launcher died: restart, if --max-restarts allows it
    END_CHANGED, // a node left or asks to join: the next generation (elastic.h)
    END_STOPPED, // a launcher received a signal, or node 0 is lost: no restart
} LaunchEnd;

// The launcher of another node, as node 0 sees it.
typedef struct OtherNode {
    int64_t beats;
    uint64_t changed_ns; // when beats last changed; 0: never
} OtherNode;

typedef struct Launch {
    const LaunchOptions *options;
    char program[PATH_MAX];
    char host[72];
    char token[STORE_TOKEN_MAX + 1];
    int port;
    LaunchedRank *ranks; // [options->local_ranks]
    Output *output;
    HeartbeatBoard board;
    Guard guard;
    StoreServer *server;     // on node 0
    Store *store;            // of the nodes' launchers; NULL with one node
    OtherNode *others;       // [options->nodes]; used on node 0
    struct Elastic *elastic; // NULL: the nodes are fixed
    uint64_t next_beat_ns;   // when this launcher beats again
    uint64_t answered_ns;    // when node 0's store last answered a beat
    int signal_fd;
    sigset_t old_mask;
    struct rlimit old_descriptors;

    // This attempt:
    int attempt;     // with elastic nodes: the generation
    int node, nodes; // this is node `node` of `nodes`
    LaunchStage stage;
    uint64_t checked_ns; // last health check; 0: none yet
    uint64_t act_at_ns;  // deadline of the stage
    int started;         // ranks forked: the local ranks 0 .. started - 1
    int starting;        // of these, ranks that do not run their program yet
    int alive;           // ranks that have not ended
    Error start_error;
    uint64_t first_good_end_ns; // first exit with status 0; 0: none yet
    LaunchCause cause;
    int root;        // local rank that failed first; -1: none
    int caught;      // signal that the launcher received; 0: none
    bool no_restart; // another node's launcher received a signal
} Launch;

// Reports on stderr which thread variables each rank gets with value 1, as torchrun does: ranks
// that each use all cores slow each other down. Precedes the first launch_env_set.
void launch_say_threads(Launch *launch);
// Sets the variables of this rank in the launcher's own environment, which the rank inherits.
void launch_env_set(const Launch *launch, int local_rank);

// Forks the guard. Precondition: the process has one thread. 0, or -1 with err filled.
int guard_open(Guard *guard, Error *err);
// Watches process group `message`, before its leader's exec; or releases group -message, before its
// leader is reaped, because its number may be reused afterwards.
void guard_tell(const Guard *guard, pid_t message);
void guard_close(Guard *guard); // and reaps the guard

// Forks ranks until STARTS_AT_A_TIME of them are starting; forks none after a failure.
void launch_start_some(Launch *launch);
// Checks whether local rank r runs its program by now; ends the attempt if it cannot.
void launch_watch_start(Launch *launch, int r);

// Waits for all nodes' launchers. Returns 0; the number of a signal received meanwhile; or -1 with
// err filled, which names the missing nodes.
int launch_rendezvous_nodes(Launch *launch, Error *err);
// Ends all ranks if another node has ended the attempt. Calls the store at most once a second;
// blocks for at most a second per call.
void launch_check_nodes(Launch *launch);
// Publishes the end of this attempt and its reason, unless a node has done so.
void launch_publish_end(Launch *launch, LaunchEnd end, const char *why);
// Shows the other nodes that this launcher is alive, at most once a second. launch_check_nodes does
// so while the ranks run.
void launch_beat(Launch *launch);
// Waits for the other nodes' ranks, after all ranks of this node have exited with 0.
void launch_await_nodes(Launch *launch);
// Waits until all nodes have ended the attempt. False: time-out, a signal, or another node stopped.
// For fixed nodes; with elastic ones: elastic_next.
bool launch_end_together(Launch *launch);
// On node 0: keeps the store open until the other nodes have read how the job ended, for at most
// NODES_PARTING_S.
void launch_drain_nodes(Launch *launch);

// Polls output, signals and starting ranks, at most until `until_ns` or the next health check, and
// forwards output.
void launch_wait(Launch *launch, uint64_t until_ns);
// Dequeues the launcher's pending signals. Returns the last one other than SIGCHLD, or 0.
int launch_take_signal(Launch *launch);
// Supervises the ranks of this attempt until all have ended or cannot be killed; sets cause.
void launch_supervise(Launch *launch);
// Sets the cause and sends the signal to all ranks; SIGKILL follows after the grace time.
void launch_end_ranks(Launch *launch, LaunchCause cause, int signal_number);
// Reports local rank `root` as the root of the failure, and ends all ranks.
void launch_fail(Launch *launch, LaunchCause cause, int root);
// Ends all ranks if one is stopped, silent or late, or another node has ended the attempt.
void launch_check_health(Launch *launch);

// Writes a signal's name, "SIGKILL", or "signal 99" if it has no name. Returns text.
const char *report_signal(int number, char text[24]);
// Writes the first line after a failure: the root rank, how and when it failed, its phase and step.
void report_root(Launch *launch);
// Writes a line for each other rank: how it ended.
void report_others(Launch *launch);

#endif
