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

typedef struct Job {
    RankMain *rank_main;
    void *arguments;
    int nproc, world_size, first_rank;
    const char *url;
    pid_t *pids; // [nproc]; 0: not started, or has ended
    int alive;
    uint64_t kill_at_ns; // 0: none has failed
    Error error;         // of the first rank that failed
} Job;

// ---- The rank's process

static int live(const Job *job, int local_rank) {
    Error err = {0};
    Rendezvous me;
    ProcessGroup *group = NULL;
    if (init_from_url(&me, job->url, job->first_rank + local_rank, job->world_size, &err) == 0) {
        me.local_rank = local_rank;
        me.local_world_size = job->nproc;
        group = init_process_group("auto", &me, NULL, LAUNCH_TIMEOUT_S, &err);
    }
    if (!group) {
        fprintf(stderr, "rank %d: error: %s\n", job->first_rank + local_rank, err.message);
        return err.status;
    }
    int status = job->rank_main(group, &me, job->arguments);
    pg_close(group);
    return status;
}

// Ends by _exit, because the parent's atexit functions must not run in a rank.
_Noreturn static void become_rank(const Job *job, int local_rank, pid_t parent,
                                  const sigset_t *mask) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // the parent died before prctl
    sigprocmask(SIG_SETMASK, mask, NULL);
    (void)unsetenv("DDPRUN_HEARTBEAT"); // the parent's page, if it is a rank of ddprun
    int status = live(job, local_rank);
    fflush(NULL);
    _exit(status);
}

// ---- The parent

static void signal_ranks(const Job *job, int number) {
    for (int i = 0; i < job->nproc; i++)
        if (job->pids[i]) kill(job->pids[i], number);
}

static void note_failure(Job *job, int rank, int pid, int status) {
    if (WIFSIGNALED(status)) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        error_set(&job->error, 128 + WTERMSIG(status), "rank %d (pid %d) died of SIG%s", rank, pid,
                  name ? name : "?");
    } else {
        error_set(&job->error, WEXITSTATUS(status), "rank %d (pid %d) exited with status %d", rank,
                  pid, WEXITSTATUS(status));
    }
    if (job->kill_at_ns) return;
    job->kill_at_ns = clock_ns_after(GRACE_S);
    signal_ranks(job, SIGTERM);
    signal_ranks(job, SIGCONT); // a stopped rank handles SIGTERM only after SIGCONT
}

// Reaps the ranks that have ended.
static void reap(Job *job) {
    for (int i = 0; i < job->nproc; i++) {
        pid_t pid = job->pids[i];
        int status = W_EXITCODE(127, 0); // if the caller has reaped the rank
        if (!pid || waitpid(pid, &status, WNOHANG) == 0) continue;
        job->pids[i] = 0; // the number may be reused now
        job->alive--;
        if (status != 0) note_failure(job, job->first_rank + i, (int)pid, status);
    }
}

static void start_ranks(Job *job, const sigset_t *mask) {
    pid_t parent = getpid();
    fflush(NULL); // or each child would write the buffered bytes again
    for (int i = 0; i < job->nproc; i++) {
        pid_t pid = fork();
        if (pid == 0) become_rank(job, i, parent, mask);
        if (pid < 0) {
            error_set(&job->error, STATUS_FAILED, "cannot start rank %d: %s", job->first_rank + i,
                      strerror(errno));
            signal_ranks(job, SIGKILL);
            return;
        }
        job->pids[i] = pid;
        job->alive++;
    }
}

static int run_ranks(Job *job, Error *err) {
    if (job->world_size == 1) {
        int status = live(job, 0);
        return status ? error_set(err, status, "rank 0 ended with status %d", status) : 0;
    }
    const struct timespec look = {.tv_sec = LOOK_S};
    sigset_t chld, mask;
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    sigprocmask(SIG_BLOCK, &chld, &mask);
    job->pids = memory_zalloc((size_t)job->nproc * sizeof *job->pids);
    start_ranks(job, &mask);
    for (reap(job); job->alive > 0; reap(job)) {
        (void)sigtimedwait(&chld, NULL, &look); // reap polls all ranks after any wake-up
        if (job->kill_at_ns && clock_ns() >= job->kill_at_ns) signal_ranks(job, SIGKILL);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    free(job->pids);
    return job->error.status ? error_set(err, job->error.status, "%s", job->error.message) : 0;
}

// "auto": file:// in a new folder. A free port could be taken by another process before it is
// bound.
static int run_auto(Job *job, Error *err) {
    char folder[] = P_tmpdir "/ddpc.XXXXXX", file[sizeof folder + 8], url[sizeof file + 7];
    if (!mkdtemp(folder))
        return error_set(err, STATUS_FAILED, "cannot make a folder like %s: %s", folder,
                         strerror(errno));
    snprintf(file, sizeof file, "%s/meeting", folder);
    snprintf(url, sizeof url, "file://%s", file);
    job->url = url;
    int status = run_ranks(job, err);
    job->url = NULL;
    (void)unlink(file); // exists only if a rank died early
    (void)rmdir(folder);
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
    Job job = {.rank_main = rank_main,
               .arguments = arguments,
               .nproc = nproc,
               .world_size = nproc * machines,
               .first_rank = machine_rank * nproc,
               .url = url};
    if (strcmp(url, "auto") != 0) return run_ranks(&job, err);
    if (machines == 1) return run_auto(&job, err);
    return error_set(err, STATUS_USAGE, "url auto is for one machine, not %d: give tcp://",
                     machines);
}
