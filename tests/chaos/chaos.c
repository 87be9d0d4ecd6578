/* chaos.c: every kind of fault at every point of a run, and what must hold afterwards.
 *
 *     chaos [--repeat N] [--seed S] [--jobs J] [--only TEXT]
 *
 * A case is a point of the run (while the ranks meet, construct, in a step, in backward, inside a
 * collective, while a checkpoint is written, at evaluation, at shutdown, and in each phase of a
 * step that is divided over the ranks), a fault, a victim (rank
 * 0, the last rank, the launcher) and a world size. tests/chaos/chaos_rank.c plants the fault in
 * train_ddp. Then: the job ends by itself; its exit status is the fault's; the first line of the
 * report names the right rank and cause; nothing is left: no process, no file in /dev/shm, no
 * listener on the port; and the last checkpoint is whole. Which step, bucket or rename is hit
 * follows from the seed. Times are printed; only the job's deadline judges them.
 */
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/base/rng.h"
#include "common/tensor_files/checkpoint.h"
#include "tests/chaos/job.h"
#include "tests/rigs/temp_folder.h"

enum { CASES_MAX = 512, WHERE_MAX = 400 };

#define DEADLINE_S 60.0

typedef struct Case {
    const char *name, *point; // of the case; of the run, see chaos_rank.c
    const char *phase;        // in the heartbeat at that point
    int first, last;          // range of visits to the point from which the seed picks one
    const char *fault, *victim;
    int rank, world;
    const char *const *options; // more options of train_ddp, ended by NULL; NULL: none
} Case;

typedef struct Suite {
    Case cases[CASES_MAX];
    size_t count;
    const char *only;
    int repeat, jobs;
    uint64_t seed;
    char folder[PATH_MAX], *ddprun, *train;
    bool shm_is_ours;    // the suite has its own /dev/shm
    bool ports_are_ours; // every thread has its own network namespace
    Listing shm;

    pthread_mutex_t mutex; // protects the fields below
    size_t next, failed;
    double worst_report_s, worst_end_s; // seconds from a rank's fault to the report, to the end
    double worst_kill_s;                // seconds from a rank's SIGKILL to the report
} Suite;

// ---- the matrix -------------------------------------------------------------------------------

static void add_case(Suite *suite, Case c) {
    char name[160];
    snprintf(name, sizeof name, "%s %s %s %d %d", c.name, c.fault, c.victim, c.rank, c.world);
    if (suite->only && !strstr(name, suite->only)) return;
    CHECK(suite->count < CASES_MAX, "more than %d cases", CASES_MAX);
    suite->cases[suite->count++] = c;
}

// Adds the fault on rank 0 and on the last rank. Only rank 0 writes checkpoints: at point
// checkpoint the last rank fails in the step that begins meanwhile.
static void add_ranks(Suite *suite, Case c, const char *fault, int world) {
    c.fault = fault;
    c.victim = "rank";
    c.world = world;
    add_case(suite, c);
    c.rank = world - 1;
    if (strcmp(c.point, "checkpoint") == 0) {
        c.point = "step";
        c.phase = "train";
        c.first = c.last = 3;
    }
    add_case(suite, c);
}

static void add_launcher(Suite *suite, Case c, const char *fault, int world) {
    c.fault = fault;
    c.victim = "launcher";
    c.world = world;
    add_case(suite, c);
}

// The run has two epochs of five steps and saves after every second step.
static void add_world(Suite *suite, int world) {
    const Case points[] = {
        {"init", "init", "init", 1, 1, NULL, NULL, 0, 0, NULL},
        {"construct", "construct", "", 1, 1, NULL, NULL, 0, 0, NULL},
        {"first step", "step", "train", 1, 1, NULL, NULL, 0, 0, NULL},
        {"later step", "step", "train", 3, 10, NULL, NULL, 0, 0, NULL},
        {"backward", "backward", "train", 2, 9, NULL, NULL, 0, 0, NULL},
        {"collective", "collective", "train", 1, 14, NULL, NULL, 0, 0, NULL},
        {"checkpoint", "checkpoint", "checkpoint", 2, 9, NULL, NULL, 0, 0,
         NULL}, // the first rename is config.json's
        {"evaluation", "evaluate", "evaluate", 1, 2, NULL, NULL, 0, 0, NULL},
        {"shutdown", "shutdown", "shutdown", 1, 1, NULL, NULL, 0, 0, NULL},
    };
    enum { CONSTRUCT = 1, FIRST = 2, LATER = 3, BACKWARD = 4, EVALUATION = 7, SHUTDOWN = 8 };
    const char *everywhere[] = {"kill", "stop", "segv", "exit3"};
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (size_t f = 0; f < 4; f++) add_ranks(suite, points[p], everywhere[f], world);
        add_launcher(suite, points[p], "kill", world);
        add_launcher(suite, points[p], "term", world);
    }
    const int steps[] = {FIRST, LATER}, calls[] = {FIRST, LATER, BACKWARD, EVALUATION, SHUTDOWN};
    for (size_t i = 0; i < 2; i++) add_ranks(suite, points[steps[i]], "nan", world);
    for (size_t i = 0; i < 5; i++) add_ranks(suite, points[calls[i]], "order", world);
    add_ranks(suite, points[CONSTRUCT], "shape", world);
    add_ranks(suite, points[BACKWARD], "shape", world);
    add_ranks(suite, (Case){"epoch", "epoch", "train", 1, 1, NULL, NULL, 0, 0, NULL}, "short",
              world);
}

// The optimizer sharded over the ranks: in shared memory, and with collectives over an emulated
// link.
static const char *const FUSED[] = {"--zero-optimizer", "--optimizer", "adamw", NULL};
static const char *const SCATTERED[] = {"--zero-optimizer", "--link", "100,1", NULL};

static void add_zero(Suite *suite, int world) {
    const Case points[] = {
        {"zero meeting", "meeting", "train", 1, 18, NULL, NULL, 0, 0, FUSED},
        {"zero step", "divided", "train", 2, 9, NULL, NULL, 0, 0, FUSED},
        {"zero state", "state", "checkpoint", 1, 4, NULL, NULL, 0, 0, FUSED},
        {"zero scatter", "backward", "train", 1, 9, NULL, NULL, 0, 0, SCATTERED},
        {"zero sum", "collective", "train", 1, 9, NULL, NULL, 0, 0, SCATTERED},
        {"zero gather", "gather", "train", 1, 9, NULL, NULL, 0, 0, SCATTERED},
    };
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        add_ranks(suite, points[p], "kill", world);
        add_ranks(suite, points[p], "stop", world);
    }
}

// ---- expected results -------------------------------------------------------------------------

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static int expected_status(const Case *c) {
    if (is(c->fault, "kill")) return 137;
    if (is(c->fault, "term")) return 143;
    if (is(c->fault, "segv")) return 139;
    return is(c->fault, "exit3") ? 3 : 1;
}

// The first line of ddprun as an extended regular expression; "" if none is expected.
static void expected_line(const Case *c, char pattern[WHERE_MAX]) {
    char who[80], doing[64];
    int r = c->rank;
    snprintf(who, sizeof who, "^ddprun: rank %d \\(pid [0-9]+, local rank %d, host [^)]*\\)", r, r);
    if (c->phase[0])
        snprintf(doing, sizeof doing, "at [0-9:.]{12} in phase %s, step [0-9]+", c->phase);
    else // the trainer has reported no phase yet
        snprintf(doing, sizeof doing, "at [0-9:.]{12} in collective [0-9]+");
    const char *any = "^ddprun: rank [0-9]+ .* exited with status 1 ";
    pattern[0] = '\0';
    if (is(c->fault, "term"))
        snprintf(pattern, WHERE_MAX, "^ddprun: received SIGTERM: ending all ranks$");
    else if (is(c->victim, "launcher"))
        return;
    else if (is(c->fault, "kill") || is(c->fault, "segv"))
        snprintf(pattern, WHERE_MAX, "%s died of SIG%s %s.*; last stderr: about to suffer %s$", who,
                 is(c->fault, "kill") ? "KILL" : "SEGV", doing, c->fault);
    else if (is(c->fault, "exit3"))
        snprintf(pattern, WHERE_MAX, "%s exited with status 3 %s", who, doing);
    else if (is(c->fault, "stop"))
        snprintf(pattern, WHERE_MAX, "%s was stopped by a signal \\(SIGSTOP\\?\\) %s", who, doing);
    else if (is(c->fault, "nan"))
        snprintf(pattern, WHERE_MAX, "%s exited with status 1 %s.*: the loss is -?nan at step", who,
                 doing);
    else if (is(c->name, "construct"))
        snprintf(pattern, WHERE_MAX, "%s.*expects same model across all ranks: rank %d has fc", any,
                 r == 0 ? 1 : r);
    else if (is(c->name, "shutdown"))
        snprintf(pattern, WHERE_MAX, "%s.*rank %d (\\(pid [0-9]+\\) is gone|has closed)", any, r);
    else
        snprintf(pattern, WHERE_MAX, "%s.*ranks disagree: .*rank %d runs ", any, r);
}

static bool matches(const char *line, const char *pattern) {
    regex_t regex;
    CHECK(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) == 0, "pattern %s", pattern);
    bool found = regexec(&regex, line, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

static void first_line(const Job *job, char line[JOB_SAID_MAX]) {
    const char *begin =
        strncmp(job->said, "ddprun: ", 8) == 0 ? job->said : strstr(job->said, "\nddprun: ");
    line[0] = '\0';
    if (begin && begin[0] == '\n') begin++;
    if (begin) snprintf(line, JOB_SAID_MAX, "%.*s", (int)strcspn(begin, "\n"), begin);
}

// ---- one case ---------------------------------------------------------------------------------

typedef struct Mark { // written by chaos_rank at the fault
    unsigned long long ns;
    int port, steps;
} Mark;

static bool read_mark(const char *path, Mark *mark) {
    FILE *file = fopen(path, "re");
    bool fine = file && fscanf(file, "%llu %d %d", &mark->ns, &mark->port, &mark->steps) == 3;
    if (file) fclose(file);
    return fine;
}

// Any rank begins its fourth step only after rank 0 has saved after the second.
static bool check_checkpoint(const char *folder, const Mark *mark, Error *err) {
    char *path = NULL;
    RunLog silent = log_open(true);
    if (checkpoint_find(folder, &path, &silent, err) != 0) return false;
    bool there = path != NULL;
    free(path);
    if (there || mark->steps < 4) return true;
    error_set(err, STATUS_FAILED, "no checkpoint after %d steps", mark->steps);
    return false;
}

// Only this job uses this network namespace. A killed process loses its environment, by which
// job_leftovers recognizes it, a moment before its sockets are closed.
static bool port_becomes_free(int port) {
    for (int tenths = 0; !port_is_free(port); tenths++) {
        if (tenths == 100) return false;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return true;
}

// Sets err to the first failed check.
static void check_job(Suite *suite, const Case *c, const Job *job, const Mark *mark,
                      const char *out, Error *err) {
    char pattern[WHERE_MAX], line[JOB_SAID_MAX], name[NAME_MAX + 1];
    int status = job_exit_status(job), wanted = expected_status(c);
    bool orphaned = is(c->victim, "launcher") && is(c->fault, "kill");
    int left = job_leftovers(job->id, orphaned ? 10 : 0);
    expected_line(c, pattern);
    first_line(job, line);
    if (job->late) error_set(err, STATUS_FAILED, "did not end within %g s", DEADLINE_S);
    if (mark->ns == 0) error_set(err, STATUS_FAILED, "the fault never happened");
    if (status != wanted) error_set(err, STATUS_FAILED, "status %d, expected %d", status, wanted);
    if (pattern[0] && !matches(line, pattern))
        error_set(err, STATUS_FAILED, "the report does not begin with '%s'", pattern);
    if (left) error_set(err, STATUS_FAILED, "%d processes are left", left);
    if (suite->ports_are_ours && mark->ns && !port_becomes_free(mark->port))
        error_set(err, STATUS_FAILED, "port %d is still taken", mark->port);
    if (suite->shm_is_ours && listing_new(&suite->shm, "/dev/shm", name) > 0)
        error_set(err, STATUS_FAILED, "/dev/shm/%s is left", name);
    check_checkpoint(out, mark, err);
}

static void note_times(Suite *suite, const Case *c, const Job *job, const Mark *mark) {
    if (is(c->victim, "launcher") || !job->reported_ns || job->reported_ns < mark->ns) return;
    double report_s = (double)(job->reported_ns - mark->ns) * 1e-9;
    double end_s = (double)(job->ended_ns - mark->ns) * 1e-9;
    if (end_s > suite->worst_end_s) suite->worst_end_s = end_s;
    if (report_s > suite->worst_report_s) suite->worst_report_s = report_s;
    if (is(c->fault, "kill") && report_s > suite->worst_kill_s) suite->worst_kill_s = report_s;
}

static void remove_folder(const char *path) {
    void *state = memory_format("%s", path);
    temp_folder_remove(&state);
}

// Ten steps, a checkpoint after every second step, one bucket for each gradient.
static const char *const TRAINING[] = {"--model",        "mlp", "--hidden",        "16",
                                       "--global-batch", "300", "--epochs",        "2",
                                       "--save-every",   "2",   "--bucket-cap-mb", "0"};
enum { TRAINING_WORDS = sizeof TRAINING / sizeof TRAINING[0] };

// Runs ddprun with chaos_rank until it ends. out: the folder of its checkpoints.
static void run_job(const Suite *suite, const Case *c, Job *job, const char *plan, const char *mark,
                    const char *out) {
    const char *silence_s = is(c->fault, "stop") ? "1" : "300";
    const char *world = c->world == 2 ? "2" : "4";
    const char *argv[TRAINING_WORDS + 13] = {
        suite->ddprun, "--nproc-per-node", world,   "--heartbeat-timeout",
        silence_s,     suite->train,       "--out", out};
    memcpy(argv + 8, TRAINING, sizeof TRAINING);
    for (size_t i = 0; c->options && c->options[i]; i++)
        argv[8 + TRAINING_WORDS + i] = c->options[i];
    *job = (Job){.argv = argv, .variables = {plan, mark}, .deadline_s = DEADLINE_S};
    job_start(job);
    job_await(job);
}

static void note_case(Suite *suite, const Case *c, int visit, const Job *job, const Mark *mark,
                      const Error *err) {
    pthread_mutex_lock(&suite->mutex);
    note_times(suite, c, job, mark);
    if (err->status != 0) {
        suite->failed++;
        printf("FAILED %s: %s of %s %d of %d, visit %d: %s\n%s\n", c->name, c->fault, c->victim,
               c->rank, c->world, visit, err->message, job->said);
    }
    pthread_mutex_unlock(&suite->mutex);
}

static void run_case(Suite *suite, size_t number) {
    const Case *c = &suite->cases[number % suite->count];
    uint64_t visits = (uint64_t)(c->last - c->first + 1);
    int visit = c->first + (int)rng_below(suite->seed, RNG_STREAM_TEST, number, visits);
    char *out = memory_format("%s/%zu", suite->folder, number);
    char *plan =
        memory_format("DDP_CHAOS=%s %d %s %d %s", c->point, visit, c->fault, c->rank, c->victim);
    char *mark_variable = memory_format("DDP_CHAOS_MARK=%s.mark", out);
    const char *mark_path = strchr(mark_variable, '=') + 1;
    Job *job = memory_zalloc(sizeof *job);
    CHECK(mkdir(out, 0700) == 0, "cannot make %s", out);
    run_job(suite, c, job, plan, mark_variable, out);

    Mark mark = {0};
    Error err = {0};
    (void)read_mark(mark_path, &mark);
    check_job(suite, c, job, &mark, out, &err);
    note_case(suite, c, visit, job, &mark, &err);
    remove_folder(out);
    unlink(mark_path);
    free(job);
    free(mark_variable);
    free(plan);
    free(out);
}

// ---- the suite --------------------------------------------------------------------------------

static void *work(void *context) {
    Suite *suite = context;
    if (suite->ports_are_ours) CHECK(network_isolate(), "a network of its own for each thread");
    for (;;) {
        pthread_mutex_lock(&suite->mutex);
        size_t number = suite->next++;
        pthread_mutex_unlock(&suite->mutex);
        if (number >= suite->count * (size_t)suite->repeat) return NULL;
        run_case(suite, number);
    }
}

static void run_suite(Suite *suite) {
    pthread_t *threads = memory_zalloc((size_t)suite->jobs * sizeof *threads);
    for (int i = 0; i < suite->jobs; i++)
        CHECK(pthread_create(&threads[i], NULL, work, suite) == 0, "no thread %d", i);
    for (int i = 0; i < suite->jobs; i++) pthread_join(threads[i], NULL);
    free(threads);
}

int main(int argc, char **argv) {
    Suite *suite = memory_zalloc(sizeof *suite);
    *suite = (Suite){.repeat = 1, .jobs = 4, .seed = 1};
    pthread_mutex_init(&suite->mutex, NULL);
    Options options = {.program = "chaos", .summary = "Faults at every point of a run."};
    options_add_int(&options, "repeat", &suite->repeat, 1, 10000, "runs of the whole matrix");
    options_add_count(&options, "seed", &suite->seed, 0, 0,
                      "decides which steps and calls are hit");
    options_metavar(&options, "S");
    options_add_int(&options, "jobs", &suite->jobs, 1, 64, "cases at a time: most of them wait");
    options_metavar(&options, "J");
    options_add_string(&options, "only", &suite->only, "TEXT",
                       "cases whose 'POINT FAULT VICTIM RANK WORLD' contains this");
    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    setenv("OMP_NUM_THREADS", "1", 1); // else ddprun prints a notice first
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    suite->ddprun = job_program("ddprun");
    suite->train = job_program("chaos_rank");
    snprintf(suite->folder, sizeof suite->folder, "%s/chaos.XXXXXX", P_tmpdir);
    CHECK(mkdtemp(suite->folder), "cannot make %s", suite->folder);
    suite->shm_is_ours = shm_isolate();
    suite->ports_are_ours = network_isolate();
    suite->shm = listing_take("/dev/shm");
    if (!suite->shm_is_ours) printf("/dev/shm is shared with other programs here: not checked\n");
    if (!suite->ports_are_ours) printf("ports are shared with other programs: not checked\n");
    add_world(suite, 2);
    add_world(suite, 4);
    add_zero(suite, 2);
    add_zero(suite, 4);

    uint64_t begin_ns = clock_ns();
    run_suite(suite);
    size_t runs = suite->count * (size_t)suite->repeat;
    printf("cases=%zu runs=%zu failed=%zu seconds=%.1f worst_report_after_kill_s=%.3f "
           "worst_report_s=%.3f worst_end_s=%.3f\n",
           suite->count, runs, suite->failed, (double)(clock_ns() - begin_ns) * 1e-9,
           suite->worst_kill_s, suite->worst_report_s, suite->worst_end_s);
    size_t failed = suite->failed;
    remove_folder(suite->folder);
    listing_free(&suite->shm);
    free(suite->ddprun);
    free(suite->train);
    free(suite);
    return failed ? STATUS_FAILED : STATUS_OK;
}
