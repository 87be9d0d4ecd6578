/* chaos_resume.c: a run that is killed again and again ends with the same bits as one that never
 * was.
 *
 *     chaos_resume [--kills N] [--seed S]
 *
 * Two ranks train under ddprun --max-restarts with --resume auto. At random moments rank 0, rank 1
 * or ddprun itself is killed with SIGKILL. After a rank's death ddprun restarts both from the last
 * checkpoint; after ddprun's, this program starts it anew. When a run has ended before
 * enough kills, the next begins from nothing. The last and the best weights and the optimizer's
 * state of each are compared with those of an undisturbed run.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/base/rng.h"
#include "tests/chaos/job.h"
#include "tests/rigs/temp_folder.h"

#define DEADLINE_S   300.0
#define LONGEST_S    0.8 // the longest time from one kill to the next
#define LOOK_AGAIN_S 0.02

typedef struct Chaos {
    char folder[PATH_MAX], *ddprun, *train, *compare;
    uint64_t seed, draws;
    int wanted, kills[3], starts, rounds, wrong; // kills: of rank 0, rank 1, ddprun
} Chaos;

static int killed(const Chaos *chaos) {
    return chaos->kills[0] + chaos->kills[1] + chaos->kills[2];
}

static void start_run(Chaos *chaos, Job *job, const char *out) {
    const char *argv[] = {chaos->ddprun,
                          "--nproc-per-node",
                          "2",
                          "--max-restarts",
                          "1000",
                          chaos->train,
                          "--model",
                          "convnet",
                          "--epochs",
                          "20",
                          "--save-every",
                          "10",
                          "--resume",
                          "auto",
                          "--out",
                          out,
                          NULL};
    *job = (Job){.argv = argv, .deadline_s = DEADLINE_S};
    job_start(job);
    chaos->starts++;
}

// Kills rank 0, rank 1 or ddprun; returns false if that process does not run at the moment.
static bool kill_one(Chaos *chaos, Job *job) {
    int victim = (int)rng_below(chaos->seed, RNG_STREAM_TEST, chaos->draws++, 3);
    pid_t pid = victim < 2 ? job_rank(job->id, victim) : job->pid;
    if (pid == 0 || kill(pid, SIGKILL) != 0) return false;
    chaos->kills[victim]++;
    return true;
}

static double next_pause_s(Chaos *chaos) {
    return (double)rng_uniform(chaos->seed, RNG_STREAM_TEST, chaos->draws++, 0, (float)LONGEST_S);
}

// Runs one ddprun and kills until it ends or all kills are done. Returns whether the training has
// ended.
static bool run_job(Chaos *chaos, const char *out) {
    Job *job = memory_zalloc(sizeof *job);
    start_run(chaos, job, out);
    double pause_s = next_pause_s(chaos);
    while (killed(chaos) < chaos->wanted && !job_pause(job, pause_s))
        pause_s = kill_one(chaos, job) ? next_pause_s(chaos) : LOOK_AGAIN_S;
    job_await(job);
    int status = job_exit_status(job), left = job_leftovers(job->id, 10);
    bool ended = status != 128 + SIGKILL;
    if ((ended && status != 0) || job->late || left > 0) {
        chaos->wrong++;
        printf("status %d, %d processes left, %s\n%s\n", status, left,
               job->late ? "did not end" : "ended", job->said);
    }
    free(job);
    return ended;
}

static void compare_runs(Chaos *chaos, const char *out) {
    static const char SCRIPT[] = "set -e; cd \"$2\"\n"
                                 "for file in last.safetensors best.safetensors last.*.optimizer\n"
                                 "do \"$1\" --bitwise \"$2/$file\" \"$3/$file\" >&2; done";
    char *undisturbed = memory_format("%s/0", chaos->folder);
    const char *argv[] = {"/bin/sh",      "-c",        SCRIPT, "compare",
                          chaos->compare, undisturbed, out,    NULL};
    Job *job = memory_zalloc(sizeof *job);
    *job = (Job){.argv = argv, .deadline_s = DEADLINE_S};
    job_start(job);
    job_await(job);
    if (job_exit_status(job) != 0) {
        chaos->wrong++;
        printf("round %d differs from the undisturbed run\n%s\n", chaos->rounds, job->said);
    }
    free(job);
    free(undisturbed);
}

static void run_rounds(Chaos *chaos) {
    int wanted = chaos->wanted;
    for (chaos->wanted = 0;; chaos->rounds++, chaos->wanted = wanted) { // round 0: without kills
        char *out = memory_format("%s/%d", chaos->folder, chaos->rounds);
        while (!run_job(chaos, out) && chaos->wrong == 0) continue;
        if (chaos->rounds > 0) compare_runs(chaos, out);
        free(out);
        if (chaos->wrong || (chaos->rounds > 0 && killed(chaos) >= wanted)) return;
    }
}

int main(int argc, char **argv) {
    Chaos chaos = {.wanted = 50, .seed = 1};
    Error err = {0};
    Options options = {.program = "chaos_resume", .summary = "Kills a run and resumes it."};
    options_add_int(&options, "kills", &chaos.wanted, 1, 100000, "how many");
    options_add_count(&options, "seed", &chaos.seed, 0, 0, "whom and when");
    options_metavar(&options, "S");
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    chaos.ddprun = job_program("ddprun");
    chaos.train = job_program("train_ddp");
    chaos.compare = job_program("compare_tensors");
    snprintf(chaos.folder, sizeof chaos.folder, "%s/chaos_resume.XXXXXX", P_tmpdir);
    CHECK(mkdtemp(chaos.folder), "cannot make %s", chaos.folder);

    uint64_t begin_ns = clock_ns();
    run_rounds(&chaos);
    printf("kills=%d of_rank_0=%d of_rank_1=%d of_ddprun=%d starts_of_ddprun=%d runs=%d "
           "bits=%s seconds=%.1f\n",
           killed(&chaos), chaos.kills[0], chaos.kills[1], chaos.kills[2], chaos.starts,
           chaos.rounds, chaos.wrong ? "differ" : "equal", (double)(clock_ns() - begin_ns) * 1e-9);
    void *folder = memory_format("%s", chaos.folder);
    temp_folder_remove(&folder);
    free(chaos.ddprun);
    free(chaos.train);
    free(chaos.compare);
    return chaos.wrong ? STATUS_FAILED : STATUS_OK;
}
