/* chaos_starts.c: starts and ends a thousand jobs; none may leave anything behind.
 *
 *     chaos_starts [--count N]
 *
 * Nine in ten jobs are two idle ranks, which end with 0, fail, are ended by a signal to ddprun, or
 * lose ddprun to SIGKILL. One in ten is two ranks of train_ddp. Afterwards there is no process of
 * any job, no new file in /dev/shm, no file in the folder in which they ran (also their TMPDIR),
 * and no additional descriptor in this program.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "tests/chaos/job.h"

typedef struct Starts {
    char *ddprun, *train;
    char folder[PATH_MAX];
    Listing shm, temporary, descriptors;
    int processes, wrong, late;
} Starts;

// The command of the n-th job and the status that it must end with.
typedef struct Kind {
    const char *command[8];
    int sent; // signal to ddprun once it runs; 0: none
    int status;
} Kind;

static Kind kind_of(const Starts *s, int n) {
    if (n % 10 == 9) return (Kind){{s->train, "--model", "toy", "--steps", "2", "--no-eval"}, 0, 0};
    switch (n % 5) {
    case 0:
        return (Kind){{"/bin/false"}, 0, 1};
    case 1:
        return (Kind){{"/bin/sleep", "60"}, SIGTERM, 143};
    case 2:
        return (Kind){{"/bin/sh", "-c", "sleep 60 & sleep 60"}, SIGKILL, 137};
    default:
        return (Kind){{"/bin/true"}, 0, 0};
    }
}

static void run_one(Starts *s, int n) {
    Kind kind = kind_of(s, n);
    const char *argv[16] = {s->ddprun, "--nproc-per-node", "2"};
    for (int i = 0; kind.command[i]; i++) argv[3 + i] = kind.command[i];
    Job *job = memory_zalloc(sizeof *job);
    *job = (Job){.argv = argv, .deadline_s = 60};
    job_start(job);
    if (kind.sent) {
        (void)job_pause(job, 0.001 * (n % 37)); // hits another moment of the start each time
        kill(job->pid, kind.sent);
    }
    job_await(job);
    s->processes += job_leftovers(job->id, kind.sent == SIGKILL ? 10 : 0);
    s->late += job->late;
    int status = job_exit_status(job);
    if (status != kind.status) {
        s->wrong++;
        printf("job %d (%s): status %d, expected %d\n%s\n", n, kind.command[0], status, kind.status,
               job->said);
    }
    free(job);
}

int main(int argc, char **argv) {
    int count = 1000;
    Error err = {0};
    Options options = {.program = "chaos_starts", .summary = "Starts and ends many jobs."};
    options_add_int(&options, "count", &count, 1, 1000000, "how many jobs");
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    Starts s = {.ddprun = job_program("ddprun"), .train = job_program("train_ddp")};
    bool shm_is_ours = shm_isolate();
    s.shm = listing_take("/dev/shm");
    snprintf(s.folder, sizeof s.folder, "%s/chaos_starts.XXXXXX", P_tmpdir);
    CHECK(mkdtemp(s.folder) && chdir(s.folder) == 0, "cannot use %s", s.folder);
    CHECK(setenv("TMPDIR", s.folder, 1) == 0, "no environment");
    s.temporary = listing_take(s.folder);
    s.descriptors = listing_take("/proc/self/fd");
    uint64_t begin_ns = clock_ns();
    for (int n = 0; n < count; n++) run_one(&s, n);

    char name[NAME_MAX + 1] = "";
    size_t shm = shm_is_ours ? listing_new(&s.shm, "/dev/shm", name) : 0;
    size_t temporary = listing_new(&s.temporary, s.folder, name);
    Listing descriptors = listing_take("/proc/self/fd");
    size_t more = descriptors.count - s.descriptors.count;
    if (!shm_is_ours) printf("/dev/shm is shared with other programs here: not checked\n");
    printf("starts=%d wrong_status=%d late=%d processes_left=%d shm_files_left=%zu "
           "temporary_files_left=%zu descriptors_left=%zu seconds=%.1f%s%s\n",
           count, s.wrong, s.late, s.processes, shm, temporary, more,
           (double)(clock_ns() - begin_ns) * 1e-9, name[0] ? " for_example=" : "", name);
    listing_free(&s.shm);
    listing_free(&s.temporary);
    listing_free(&s.descriptors);
    listing_free(&descriptors);
    if (temporary == 0) rmdir(s.folder);
    free(s.ddprun);
    free(s.train);
    bool clean = !s.wrong && !s.late && !s.processes && !shm && !temporary && !more;
    return clean ? STATUS_OK : STATUS_FAILED;
}
