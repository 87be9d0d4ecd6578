/* grading.c: checks in processes of their own, ranks in threads, and what was watched.
 *
 * The parent never loads the student's code: a check's child does, runs the check, and writes its
 * verdict into a pipe. No verdict means that the child was killed, or that the student's code ended
 * it. What the student prints goes to stderr, for reading and not for judging.
 */
#include "tutorials/grading/grading.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/json.h"
#include "common/base/memory.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/grading/grader.h"

enum { CHECK_SECONDS = 10, MOST_BROKEN = 8, SENTENCE_MAX = 600, PASSED = '+', MISSED = '-' };

#define RANKS_TIMEOUT_S  3.0
#define BROKEN_TIMEOUT_S 0.2 // where one rank has given up, others may wait for it in vain
#define BROKEN           "the connection to the other ranks was lost"

struct Grade {
    const char *file; // the student's, compiled
    void *library;
    int verdict; // the pipe's end for writing
};

typedef enum Result { RESULT_PASS, RESULT_MISS, RESULT_SKIP } Result;
static const char *const RESULT_NAMES[] = {"PASS", "MISS", "SKIP"};

typedef struct Outcome {
    Result result;
    char sentence[SENTENCE_MAX];
} Outcome;

// ---- inside a check -----------------------------------------------------------------------------

void grade_miss(Grade *grade, const char *format, ...) {
    // Never unlocked: of the ranks that miss at once, one says its sentence.
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
    char text[SENTENCE_MAX];
    pthread_mutex_lock(&first);
    va_list arguments;
    va_start(arguments, format);
    text[0] = MISSED;
    vsnprintf(text + 1, sizeof text - 1, format, arguments);
    va_end(arguments);
    fflush(NULL);
    ssize_t written = write(grade->verdict, text, strlen(text));
    _exit(written > 0 ? 0 : 1); // also when called by a rank's thread: the check is over
}

GradeFunction *grade_function(Grade *grade, const char *name) {
    // POSIX's way around C's rule that functions and data have different pointers.
    union {
        void *data;
        GradeFunction *function;
    } symbol = {.data = dlsym(grade->library, name)};
    if (!symbol.data) grade_miss(grade, "Your file does not define the function %s.", name);
    return symbol.function;
}

uint64_t grade_ulps(float a, float b) {
    int32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    int64_t place_x = x < 0 ? (int64_t)INT32_MIN - x : x,
            place_y = y < 0 ? (int64_t)INT32_MIN - y : y;
    return (uint64_t)(place_x < place_y ? place_y - place_x : place_x - place_y);
}

// ---- ranks --------------------------------------------------------------------------------------

const int GRADE_WORLDS[4] = {1, 2, 3, 5};

typedef struct RankThread {
    GradeRank rank;
    pthread_t thread;
    void (*run)(GradeRank *rank);
    size_t broken;      // which of its collectives fails, from 1; 0: none
    bool fails_in_wait; // one that is started: in pg_work_wait, and not in pg_start
} RankThread;

// Per thread, because the student's calls say nothing of who makes them.
static _Thread_local WatchLog *current_log;
static _Thread_local size_t until_broken; // collectives, this one included; 0: none fails any more
static _Thread_local bool fails_in_wait;
static _Thread_local const PgWork *broken_work; // was started and is to fail

static void *run_rank(void *argument) {
    RankThread *self = argument;
    until_broken = self->broken;
    fails_in_wait = self->fails_in_wait;
    watch_begin(self->rank.log);
    self->run(&self->rank);
    watch_begin(NULL);
    return NULL;
}

static size_t count_events(const WatchLog *log, WatchKind kind) {
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) count += log->events[i].kind == kind;
    return count;
}

static void judge_ranks(Grade *grade, int world, const RankThread *ranks) {
    for (int r = 0; r < world; r++)
        if (ranks[r].rank.err.status != STATUS_OK)
            grade_miss(grade,
                       "Not all ranks took part in the same collectives, so the others waited in "
                       "vain. (%d ranks; rank %d was told: %s)",
                       world, r, ranks[r].rank.err.message);
    for (int r = 0; r < world; r++) {
        const GradeRank *rank = &ranks[r].rank;
        GRADE_EXPECT(grade, rank->status == 0,
                     "Nothing had failed, and it returned %d: the caller takes that for a failure. "
                     "(%d ranks, rank %d)",
                     rank->status, world, r);
        size_t starts = count_events(rank->log, WATCH_START);
        size_t waits = count_events(rank->log, WATCH_WAIT);
        GRADE_EXPECT(grade, waits >= starts,
                     "It returned while its own collectives were still running: wait for what was "
                     "started. (%zu starts, %zu waits)",
                     starts, waits);
    }
}

// Returns whether there was a rank that came as far as the collective that fails.
static bool judge_broken_ranks(Grade *grade, int world, const RankThread *ranks) {
    bool has_failed = false;
    for (int r = 0; r < world; r++) {
        if (watch_calls(ranks[r].rank.log) < ranks[r].broken) continue;
        has_failed = true;
        GRADE_EXPECT(grade, !ranks[r].rank.log->waited_for_null,
                     "The connection was lost, so pg_start returned NULL, and NULL was waited for: "
                     "pg_work_wait crashes there. Look at what pg_start returns. (rank %d)",
                     r);
        GRADE_EXPECT(grade, ranks[r].rank.status == -1,
                     "The connection was lost in a collective, and it returned %d, not -1: the "
                     "caller continues with numbers that never arrived. (rank %d, its collective "
                     "number %zu)",
                     ranks[r].rank.status, r, ranks[r].broken);
        GRADE_EXPECT(grade, ranks[r].rank.err.status != STATUS_OK,
                     "It returned -1, and err says nothing: hand err on to what may fail, so that "
                     "the caller learns why. (rank %d, its collective number %zu)",
                     r, ranks[r].broken);
    }
    return has_failed;
}

// The ranks' threads, from their start to their end. The caller frees them.
static RankThread *run_ranks(RankThread start, int world, ProcessGroup *const *groups) {
    RankThread *ranks = memory_zalloc((size_t)world * sizeof *ranks);
    for (int r = 0; r < world; r++) {
        ranks[r] = start;
        ranks[r].rank.group = groups[r];
        ranks[r].rank.rank = r;
        ranks[r].rank.log = memory_zalloc(sizeof(WatchLog));
        int failed = pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
        CHECK(failed == 0, "no thread for rank %d", r);
    }
    for (int r = 0; r < world; r++) pthread_join(ranks[r].thread, NULL);
    return ranks;
}

// Returns whether a collective has failed that was to fail.
static bool grade_threads(Grade *grade, int world, RankThread start) {
    bool has_failed = false;
    Error err = {0};
    ProcessGroup **groups = memory_zalloc((size_t)world * sizeof *groups);
    double timeout_s = start.broken > 0 ? BROKEN_TIMEOUT_S : RANKS_TIMEOUT_S;
    if (init_thread_groups(world, timeout_s, groups, &err) != 0) error_exit(&err);
    RankThread *ranks = run_ranks(start, world, groups);
    if (start.broken > 0)
        has_failed = judge_broken_ranks(grade, world, ranks);
    else
        judge_ranks(grade, world, ranks);
    for (int r = 0; r < world; r++) {
        pg_close(groups[r]);
        free(ranks[r].rank.log);
    }
    free(ranks);
    free(groups);
    return has_failed;
}

void grade_ranks(Grade *grade, int world, void (*run)(GradeRank *rank), void *context) {
    GradeRank rank = {.grade = grade, .world = world, .context = context};
    grade_threads(grade, world, (RankThread){.rank = rank, .run = run});
}

void grade_broken_ranks(Grade *grade, int world, void (*run)(GradeRank *rank), void *context) {
    GradeRank rank = {.grade = grade, .world = world, .context = context};
    RankThread start = {.rank = rank, .run = run};
    while (start.broken < MOST_BROKEN) {
        start.broken++;
        start.fails_in_wait = false;
        if (!grade_threads(grade, world, start)) return;
        start.fails_in_wait = true;
        grade_threads(grade, world, start);
    }
}

// ---- watching -----------------------------------------------------------------------------------

void watch_begin(WatchLog *log) {
    current_log = log;
}

static void write_down(WatchEvent event) {
    if (current_log && current_log->count < WATCH_MOST)
        current_log->events[current_log->count++] = event;
}

static size_t collective_bytes(const Collective *collective) {
    static const size_t BYTES[] = {[PG_F32] = 4, [PG_F64] = 8, [PG_I32] = 4, [PG_I64] = 8,
                                   [PG_U8] = 1,  [PG_F16] = 2, [PG_BF16] = 2};
    return collective->count * BYTES[collective->type];
}

// Counts a collective. Returns whether it has to fail: it takes place nevertheless, so
// that no other rank waits for it, but it says that it has failed.
static bool is_next_to_fail(void) {
    return until_broken > 0 && --until_broken == 0;
}

int watched_pg_run(ProcessGroup *group, Collective collective, Error *err) {
    write_down((WatchEvent){
        .kind = WATCH_RUN, .collective = collective, .bytes = collective_bytes(&collective)});
    int status = pg_run(group, collective, err);
    return is_next_to_fail() ? error_set(err, STATUS_FAILED, BROKEN) : status;
}

PgWork *watched_pg_start(ProcessGroup *group, Collective collective, Error *err) {
    write_down((WatchEvent){
        .kind = WATCH_START, .collective = collective, .bytes = collective_bytes(&collective)});
    bool fails = is_next_to_fail();
    if (fails && !fails_in_wait) {
        pg_run(group, collective, NULL);
        error_set(err, STATUS_FAILED, BROKEN);
        return NULL;
    }
    PgWork *work = pg_start(group, collective, err);
    if (fails) broken_work = work;
    return work;
}

int watched_pg_work_wait(PgWork *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err) {
    write_down((WatchEvent){.kind = WATCH_WAIT});
    if (!work) {
        if (current_log) current_log->waited_for_null = true;
        return error_set(err, STATUS_FAILED, BROKEN);
    }
    bool fails = work == broken_work;
    int status = pg_work_wait(work, begin_ns, end_ns, err);
    if (!fails) return status;
    broken_work = NULL;
    return error_set(err, STATUS_FAILED, BROKEN);
}

void watched_device_copy(Device *to, void *destination, Device *from, const void *source,
                         size_t bytes) {
    write_down((WatchEvent){.kind = WATCH_COPY, .from = from, .to = to, .bytes = bytes});
    device_copy(to, destination, from, source, bytes);
}

static bool is_of_kind(const WatchEvent *event, CollectiveKind kind) {
    return (event->kind == WATCH_RUN || event->kind == WATCH_START) &&
           event->collective.kind == kind;
}

size_t watch_calls(const WatchLog *log) {
    return count_events(log, WATCH_RUN) + count_events(log, WATCH_START);
}

size_t watch_count(const WatchLog *log, CollectiveKind kind) {
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) count += is_of_kind(&log->events[i], kind);
    return count;
}

size_t watch_bytes(const WatchLog *log, CollectiveKind kind) {
    size_t bytes = 0;
    for (size_t i = 0; i < log->count; i++)
        if (is_of_kind(&log->events[i], kind)) bytes += log->events[i].bytes;
    return bytes;
}

// ---- checks, one process each -------------------------------------------------------------------

static void run_check(Grade *grade, const GradeCheck *check) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    alarm(CHECK_SECONDS);
    signal(SIGSEGV, SIG_DFL); // a sanitizer, if there is one, would turn it into an exit
    grade->library = dlopen(grade->file, RTLD_NOW | RTLD_LOCAL);
    if (!grade->library) grade_miss(grade, "Your file cannot be loaded: %s", dlerror());
    check->run(grade);
    fflush(NULL);
    char passed = PASSED;
    ssize_t written = write(grade->verdict, &passed, 1);
    _exit(written == 1 ? 0 : 1);
}

static void say_how_it_ended(Outcome *outcome, int status) {
    char *sentence = outcome->sentence;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(sentence, SENTENCE_MAX,
                 "It did not end within %d seconds: an endless loop, or a wait for something that "
                 "never arrives.",
                 CHECK_SECONDS);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV)
        snprintf(sentence, SENTENCE_MAX,
                 "It crashed (SIGSEGV): it read or wrote memory that is not its own.");
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGFPE)
        snprintf(sentence, SENTENCE_MAX, "A whole number was divided by 0 (SIGFPE).");
    else if (WIFSIGNALED(status))
        snprintf(sentence, SENTENCE_MAX, "It was ended by signal %d (%s).", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(sentence, SENTENCE_MAX,
                 "It ended the whole program with status %d; a function returns to its caller.",
                 WEXITSTATUS(status));
}

// What the student's code started and left behind has become this process's child (grader_run asks
// for that). All of it goes, and what it started in turn.
static void end_leftovers(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    for (int rounds = 0; rounds < 100; rounds++) {
        int pid, found = 0;
        FILE *children = fopen(path, "r");
        while (children && fscanf(children, "%d", &pid) == 1) {
            kill(pid, SIGKILL);
            found++;
        }
        if (children) fclose(children);
        if (found == 0) return;
        while (waitpid(-1, NULL, 0) > 0) continue;
    }
}

static Outcome grade_check(const GradeCheck *check, const char *file) {
    Outcome outcome = {.result = RESULT_MISS};
    int ends[2], status = 0;
    fflush(NULL);
    // A verdict fits into the pipe, so it can be read when the child has ended; without waiting, as
    // what the child left behind may keep the other end open.
    int failed = pipe2(ends, O_CLOEXEC | O_NONBLOCK);
    CHECK(failed == 0, "no pipe for a check");
    pid_t child = fork();
    CHECK(child >= 0, "no process for a check");
    if (child == 0) {
        close(ends[0]);
        Grade grade = {.file = file, .verdict = ends[1]};
        run_check(&grade, check);
    }
    close(ends[1]);
    waitpid(child, &status, 0);
    end_leftovers();
    char text[SENTENCE_MAX] = "";
    ssize_t length = read(ends[0], text, sizeof text - 1);
    if (length < 0) text[0] = '\0';
    close(ends[0]);
    if (text[0] == PASSED)
        outcome.result = RESULT_PASS;
    else if (text[0] == MISSED)
        snprintf(outcome.sentence, sizeof outcome.sentence, "%.*s", SENTENCE_MAX - 2, text + 1);
    else
        say_how_it_ended(&outcome, status);
    return outcome;
}

// ---- a whole exercise ---------------------------------------------------------------------------

static size_t count_checks(const Grader *grader) {
    size_t count = 0;
    while (count < GRADE_MOST_CHECKS && grader->checks[count].name) count++;
    return count;
}

int grader_points(const Grader *grader) {
    int points = 0;
    for (size_t i = 0; i < count_checks(grader); i++) points += grader->checks[i].points;
    return points;
}

// Whether the check that this one needs has passed.
static bool may_run(const Grader *grader, const Outcome *outcomes, size_t i) {
    const char *needs = grader->checks[i].needs;
    if (!needs) return true;
    for (size_t k = 0; k < i; k++)
        if (strcmp(grader->checks[k].name, needs) == 0) return outcomes[k].result == RESULT_PASS;
    CHECK(false, "%s: no check \"%s\" stands before \"%s\"", grader->exercise, needs,
          grader->checks[i].name);
    return false;
}

static void print_text(const Grader *grader, const Outcome *outcomes, int score) {
    printf("%s\n", grader->exercise);
    for (size_t i = 0; i < count_checks(grader); i++) {
        const GradeCheck *check = &grader->checks[i];
        printf("  %s %d/%d  %s\n", RESULT_NAMES[outcomes[i].result],
               outcomes[i].result == RESULT_PASS ? check->points : 0, check->points, check->name);
        if (outcomes[i].sentence[0]) printf("           %s\n", outcomes[i].sentence);
    }
    printf("Score %d/%d\n", score, grader_points(grader));
}

static void print_json(const Grader *grader, const Outcome *outcomes, int score) {
    Json json = {.file = stdout};
    json_begin_object(&json, NULL);
    json_string(&json, "exercise", grader->exercise);
    json_integer(&json, "score", score);
    json_integer(&json, "points", grader_points(grader));
    json_begin_array(&json, "checks");
    for (size_t i = 0; i < count_checks(grader); i++) {
        json_begin_object(&json, NULL);
        json_string(&json, "name", grader->checks[i].name);
        json_integer(&json, "points", grader->checks[i].points);
        json_string(&json, "result", RESULT_NAMES[outcomes[i].result]);
        json_string(&json, "sentence", outcomes[i].sentence);
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    printf("\n");
}

bool grader_run(const Grader *grader, const char *file, bool as_json) {
    Outcome outcomes[GRADE_MOST_CHECKS];
    int score = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1); // see end_leftovers
    for (size_t i = 0; i < count_checks(grader); i++) {
        outcomes[i] = (Outcome){.result = RESULT_SKIP};
        if (may_run(grader, outcomes, i))
            outcomes[i] = grade_check(&grader->checks[i], file);
        else
            snprintf(outcomes[i].sentence, SENTENCE_MAX, "Not tried, because \"%s\" was missed.",
                     grader->checks[i].needs);
        if (outcomes[i].result == RESULT_PASS) score += grader->checks[i].points;
    }
    if (as_json)
        print_json(grader, outcomes, score);
    else
        print_text(grader, outcomes, score);
    return score == grader_points(grader);
}
