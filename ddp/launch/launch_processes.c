/* launch_processes.c: see launch_processes.h.
 *
 * The parent blocks until one of its children ends: SIGCHLD is blocked before the first fork, so
 * none is missed. It waits for its own ranks by pid: the program may have other children.
 */
#include "ddp/launch/launch_processes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

enum { GRACE_S = 5, LOOK_S = 1 };

typedef struct Plan {
    RankMain *rank_main;
    void *arguments;
    int nproc, world_size, first_rank;
    const char *url;
} Plan;

typedef struct Children {
    pid_t *pids; // [count]; 0: has ended
    int count, alive;
    uint64_t kill_at_ns; // 0: none has failed
} Children;

// ---- The rank's process

static int live(const Plan *plan, int local_rank) {
    Error err = {0};
    Rendezvous me;
    ProcessGroup *group = NULL;
    if (init_from_url(&me, plan->url, plan->first_rank + local_rank, plan->world_size, &err) == 0) {
        me.local_rank = local_rank;
        me.local_world_size = plan->nproc;
        group = init_process_group("auto", &me, NULL, LAUNCH_TIMEOUT_S, &err);
    }
    if (!group) {
        fprintf(stderr, "rank %d: error: %s\n", plan->first_rank + local_rank, err.message);
        return err.status;
    }
    int status = plan->rank_main(group, &me, plan->arguments);
    pg_close(group);
    return status;
}

// Ends by _exit, because the parent's atexit functions must not run in a rank.
_Noreturn static void become_rank(const Plan *plan, int local_rank, pid_t parent,
                                  const sigset_t *mask) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // the parent died before prctl
    sigprocmask(SIG_SETMASK, mask, NULL);
    (void)unsetenv("DDPRUN_HEARTBEAT"); // the parent's page, if it is a rank of ddprun
    int status = live(plan, local_rank);
    fflush(NULL);
    _exit(status);
}

// ---- The parent

static void signal_ranks(const Children *children, int number) {
    for (int i = 0; i < children->count; i++)
        if (children->pids[i]) kill(children->pids[i], number);
}

static void note_failure(Children *children, int rank, int pid, int status, Error *err) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        error_set(err, 128 + WTERMSIG(status), "rank %d (pid %d) died of SIG%s", rank, pid,
                  name ? name : "?");
    } else {
        error_set(err, WEXITSTATUS(status), "rank %d (pid %d) exited with status %d", rank, pid,
                  WEXITSTATUS(status));
    }
    if (children->kill_at_ns) return;
    children->kill_at_ns = clock_ns() + GRACE_S * 1000000000ull;
    signal_ranks(children, SIGTERM);
    signal_ranks(children, SIGCONT); // a stopped rank handles SIGTERM only after SIGCONT
}

// Reaps the ranks that have ended.
static void reap(Children *children, const Plan *plan, Error *err) {
    for (int i = 0; i < children->count; i++) {
        pid_t pid = children->pids[i];
        int status = W_EXITCODE(127, 0); // if the program has reaped it
        if (!pid || waitpid(pid, &status, WNOHANG) == 0) continue;
        children->pids[i] = 0; // the number may be reused now
        children->alive--;
        if (status != 0) note_failure(children, plan->first_rank + i, (int)pid, status, err);
    }
}

static void await_ranks(Children *children, const Plan *plan, const sigset_t *chld, Error *err) {
    const struct timespec look = {.tv_sec = LOOK_S};
    for (reap(children, plan, err); children->alive > 0; reap(children, plan, err)) {
        (void)sigtimedwait(chld, NULL, &look); // reap polls all ranks, whatever the wake-up
        if (children->kill_at_ns && clock_ns() >= children->kill_at_ns)
            signal_ranks(children, SIGKILL);
    }
}

static int start_ranks(Children *children, const Plan *plan, const sigset_t *mask, Error *err) {
    pid_t parent = getpid();
    fflush(NULL); // or each child would write the buffered bytes again
    for (int i = 0; i < plan->nproc; i++) {
        pid_t pid = fork();
        if (pid == 0) become_rank(plan, i, parent, mask);
        if (pid < 0) {
            error_set(err, STATUS_FAILED, "cannot start rank %d: %s", plan->first_rank + i,
                      strerror(errno));
            signal_ranks(children, SIGKILL);
            return -1;
        }
        children->pids[children->count++] = pid;
        children->alive++;
    }
    return 0;
}

static int run_ranks(const Plan *plan, Error *err) {
    sigset_t chld, mask;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &mask);
    Children children = {.pids = memory_zalloc((size_t)plan->nproc * sizeof *children.pids)};
    Error first = {0};
    (void)start_ranks(&children, plan, &mask, &first);
    await_ranks(&children, plan, &chld, &first);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    free(children.pids);
    return first.status ? error_set(err, first.status, "%s", first.message) : 0;
}

static int run_alone(const Plan *plan, Error *err) {
    int status = live(plan, 0);
    return status ? error_set(err, status, "rank 0 ended with status %d", status) : 0;
}

// "auto": file:// in a new folder. A free port could be taken by another process before it is
// bound.
static int run_auto(Plan *plan, Error *err) {
    char *folder = memory_format("%s/ddpc.XXXXXX", P_tmpdir);
    int status = -1;
    if (mkdtemp(folder)) {
        char *file = memory_format("%s/meeting", folder), *url = memory_format("file://%s", file);
        plan->url = url;
        status = plan->world_size == 1 ? run_alone(plan, err) : run_ranks(plan, err);
        (void)unlink(file); // exists only if a rank died early
        (void)rmdir(folder);
        free(url);
        free(file);
    } else {
        error_set(err, STATUS_FAILED, "cannot make a folder like %s: %s", folder, strerror(errno));
    }
    free(folder);
    return status;
}

int launch_processes(RankMain *rank_main, int nproc, int machines, int machine_rank,
                     const char *url, void *arguments, Error *err) {
    const int most = 1 << 20;
    if (nproc < 1 || machines < 1 || nproc > most / machines)
        return error_set(err, STATUS_USAGE, "cannot launch %d ranks on each of %d machines", nproc,
                         machines);
    if (machine_rank < 0 || machine_rank >= machines)
        return error_set(err, STATUS_USAGE, "there is no machine %d of %d", machine_rank, machines);
    Plan plan = {.rank_main = rank_main,
                 .arguments = arguments,
                 .nproc = nproc,
                 .world_size = nproc * machines,
                 .first_rank = machine_rank * nproc,
                 .url = url};
    bool is_auto = strcmp(url, "auto") == 0;
    if (is_auto && machines > 1)
        return error_set(err, STATUS_USAGE, "url auto is for one machine, not %d: give tcp://",
                         machines);
    if (is_auto) return run_auto(&plan, err);
    return plan.world_size == 1 ? run_alone(&plan, err) : run_ranks(&plan, err);
}
