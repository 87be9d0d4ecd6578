/* play_ranks.c: several ranks, each a process that loads the student's file and calls its function.
 * The judge forks them, waits, and judges by the results that they wrote to shared memory.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ddp/group/backends.h"
#include "tutorials/grading/grader.h"

enum { MOST_BROKEN = 8, MOST_RANKS = 8, RUNS = 4 };

#define RANKS_TIMEOUT_S  3.0
#define BROKEN_TIMEOUT_S 0.5 // with a broken version: other ranks may wait for a failed one

typedef struct Seat { // a rank's results, in shared memory
    GradeRank rank;   // copied when run has returned: err, status
    WatchLog log;
    char missed[SENTENCE_MAX]; // of a check that failed in the rank itself, or ""
    uint64_t missed_ns;        // time of that check
    bool returned;
    long kept; // blocks of memory that the student's call did not free; 0 after several calls
    int ended; // waitpid's status
} Seat;

typedef struct Play {
    int world;
    void (*run)(GradeRank *rank);
    void *context;     // shared
    const void *given; // the context before the run, [bytes]
    size_t bytes;
    size_t broken;           // number of the rank's collective that fails, from 1; 0: none
    bool in_wait;            // a started collective fails in pg_work_wait, not in pg_start
    Seat *seats;             // [world]
    pthread_barrier_t *came; // completes when all processes have started, before any deadline runs
} Play;

const int GRADE_WORLDS[4] = {1, 2, 3, 5};

void *grade_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "no shared memory for ranks");
    return memory;
}

pthread_mutex_t grade_mutex(void) {
    pthread_mutex_t mutex;
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&mutex, &shared);
    pthread_mutexattr_destroy(&shared);
    return mutex;
}

// ---- a rank's process ---------------------------------------------------------------------------

void seat_miss(Seat *seat, const char *sentence) {
    seat->missed_ns = clock_ns();
    snprintf(seat->missed, sizeof seat->missed, "%s", sentence);
    _exit(0);
}

// Calls the student's function again from the same context, in the same process: its result must
// not differ, and check_blocks compares its memory. After another rank's end a barrier times out.
static void run_again(const Play *play, GradeRank *rank) {
    void *first = rank->rank == 0 ? malloc(play->bytes) : NULL;
    Error err = {0};
    for (int run = 1; run < RUNS && rank->status == 0 && rank->err.status == STATUS_OK; run++) {
        if (pg_run(rank->group, pg_barrier(), &err) != 0) break;
        if (first) memcpy(first, play->context, play->bytes);
        if (first) memcpy(play->context, play->given, play->bytes);
        if (pg_run(rank->group, pg_barrier(), &err) != 0) break;
        memset(rank->log, 0, sizeof *rank->log);
        play->run(rank);
        if (pg_run(rank->group, pg_barrier(), &err) != 0) break;
        GRADE_EXPECT(rank->grade, !first || memcmp(first, play->context, play->bytes) == 0,
                     "Called again with the same numbers, it gave another result: something was "
                     "kept from one call to the next, in a static or global variable.");
    }
    free(first);
}

static void run_rank(Grade grade, const Play *play, PgEndpoint *endpoint) __attribute__((noreturn));
static void run_rank(Grade grade, const Play *play, PgEndpoint *endpoint) {
    Seat *seat = &play->seats[endpoint->rank];
    Error err = {0};
    grade_become(&grade, ROLE_RANK);
    grade.seat = seat;
    pthread_barrier_wait(play->came);
    ProcessGroup *group = pg_opener_shm.open(endpoint, &err);
    CHECK(group, "no group for rank %d: %s", endpoint->rank, err.message);
    GradeRank rank = {.grade = &grade,
                      .group = group,
                      .rank = endpoint->rank,
                      .world = play->world,
                      .context = play->context,
                      .log = &seat->log};
    watch_break(play->broken, play->in_wait);
    watch_begin(rank.log);
    play->run(&rank);
    seat->kept = grade.calls == 1 ? watch_blocks() : 0;
    if (grade.last && play->broken == 0) run_again(play, &rank);
    check_fences(&grade);
    check_blocks(&grade);
    seat->rank = rank;
    seat->returned = true;
    fflush(NULL);
    pg_close(group);
    _exit(0);
}

static pthread_barrier_t *make_barrier(int count) {
    pthread_barrier_t *barrier = grade_shared(sizeof *barrier);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &shared, (unsigned)count);
    pthread_barrierattr_destroy(&shared);
    return barrier;
}

static void play_ranks(const Grade *grade, const Play *play) {
    const PgOptions options = {.timeout_s = play->broken > 0 ? BROKEN_TIMEOUT_S : RANKS_TIMEOUT_S};
    PgEndpoint endpoint = {.world = play->world, .options = &options};
    pid_t processes[MOST_RANKS];
    Error err = {0};
    CHECK(play->world <= MOST_RANKS, "%d ranks are too many", play->world);
    const int failed = pg_opener_shm.create(&endpoint, &err);
    CHECK(failed == 0, "no group for ranks: %s", err.message);
    fflush(NULL);
    for (int r = 0; r < play->world; r++) {
        endpoint.rank = r;
        processes[r] = fork();
        CHECK(processes[r] >= 0, "no process for rank %d", r);
        if (processes[r] == 0) run_rank(*grade, play, &endpoint);
    }
    pg_opener_shm.release(&endpoint);
    for (int r = 0; r < play->world; r++) waitpid(processes[r], &play->seats[r].ended, 0);
}

// ---- judging ------------------------------------------------------------------------------------

// A rank that ended early is the cause of the other ranks' errors, so it is named first.
static void judge_ends(Grade *grade, const Play *play) {
    const Seat *first = NULL;
    for (int r = 0; r < play->world; r++) {
        const Seat *seat = &play->seats[r];
        if (seat->missed[0] && (!first || seat->missed_ns < first->missed_ns)) first = seat;
    }
    if (first) grade_miss(grade, "%.*s", SENTENCE_MAX - 1, first->missed);
    for (int r = 0; r < play->world; r++) {
        char sentence[SENTENCE_MAX];
        if (play->seats[r].returned && WIFEXITED(play->seats[r].ended)) continue;
        say_how_it_ended(sentence, play->seats[r].ended);
        grade_miss(grade, "%s (rank %d of %d)", sentence, r, play->world);
    }
}

// Whether the rank's last call was a collective of this kind.
static bool is_last_call(const WatchLog *log, CollectiveKind kind) {
    bool is = false;
    for (size_t i = 0; i < log->count; i++)
        if (log->events[i].kind == WATCH_RUN) is = log->events[i].collective.kind == kind;
    return is;
}

// A deadlock: every rank is in a receive.
static void judge_deadlock(Grade *grade, const Play *play) {
    int lost = 0, receive = 0;
    const GradeRank *last = NULL;
    for (int r = 0; r < play->world; r++) {
        const Seat *seat = &play->seats[r];
        if (seat->rank.err.status == STATUS_OK) continue;
        lost++;
        receive += is_last_call(&seat->log, PG_RECV);
        last = &seat->rank;
    }
    GRADE_EXPECT(grade, lost < 2 || receive < lost,
                 "%d ranks wait in a receive, and none of them sends: if all receive first, no "
                 "rank is left to send. (rank %d's error: %.300s)",
                 lost, last->rank, last->err.message);
}

static void judge_ranks(Grade *grade, const Play *play) {
    const int world = play->world;
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, !play->seats[r].log.misaligned,
                     "A collective was given an address that no number of its type has: it moves "
                     "several bytes for each, and a bool is one. (rank %d of %d)",
                     r, world);
    judge_ends(grade, play);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, !play->seats[r].log.refused[0], "No group runs this call: %.300s.",
                     play->seats[r].log.refused);
    judge_deadlock(grade, play);
    for (int r = 0; r < world; r++)
        if (play->seats[r].rank.err.status != STATUS_OK)
            grade_miss(grade,
                       "Not all ranks took part in the same collectives, so the other ranks' "
                       "collectives failed. (%d ranks; rank %d's error: %.400s)",
                       world, r, play->seats[r].rank.err.message);
    for (int r = 0; r < world; r++) {
        const Seat *seat = &play->seats[r];
        GRADE_EXPECT(grade, seat->rank.status == 0,
                     "Nothing had failed, and it returned %d: the caller takes that for a failure. "
                     "(%d ranks, rank %d)",
                     seat->rank.status, world, r);
        if (seat->kept > grade->kept) grade->kept = seat->kept;
        size_t starts = watch_events(&seat->log, WATCH_START);
        size_t waits = watch_events(&seat->log, WATCH_WAIT);
        GRADE_EXPECT(grade, waits >= starts,
                     "It returned while its own collectives were still running: wait for what was "
                     "started. (%zu starts, %zu waits)",
                     starts, waits);
    }
}

// Returns whether any rank called the collective that fails.
static bool judge_broken_ranks(Grade *grade, const Play *play) {
    bool has_failed = false;
    for (int r = 0; r < play->world; r++) {
        const Seat *seat = &play->seats[r];
        GRADE_EXPECT(grade, !seat->log.waited_for_null,
                     "The connection was lost, so pg_start returned NULL, and NULL was waited for: "
                     "pg_work_wait crashes there. Look at what pg_start returns. (rank %d)",
                     r);
    }
    judge_ends(grade, play);
    for (int r = 0; r < play->world; r++) {
        const Seat *seat = &play->seats[r];
        if (watch_calls(&seat->log) < play->broken) continue;
        has_failed = true;
        GRADE_EXPECT(grade, seat->rank.status == -1,
                     "The connection was lost in a collective, and it returned %d, not -1: the "
                     "caller continues with numbers that never arrived. (rank %d, its collective "
                     "number %zu)",
                     seat->rank.status, r, play->broken);
        GRADE_EXPECT(grade, seat->rank.err.status != STATUS_OK,
                     "It returned -1 with an empty err: pass err to every call that may fail, so "
                     "that the caller learns the reason. (rank %d, its collective number %zu)",
                     r, play->broken);
        GRADE_EXPECT(grade, seat->kept <= grade->kept,
                     "The connection was lost, and the call returned without freeing its memory: "
                     "every return after an allocation needs the free. (rank %d, its collective "
                     "number %zu, %ld blocks)",
                     r, play->broken, seat->kept);
    }
    return has_failed;
}

// Runs the ranks once with a shared copy of the context. Returns the play with their seats.
static Play run_play(const Grade *grade, Play play, void *context, size_t bytes) {
    play.seats = grade_shared((size_t)play.world * sizeof *play.seats);
    play.context = grade_shared(bytes);
    play.given = context;
    play.bytes = bytes;
    play.came = make_barrier(play.world);
    memcpy(play.context, context, bytes);
    play_ranks(grade, &play);
    memcpy(context, play.context, bytes);
    return play;
}

void grade_ranks_with(Grade *grade, int world, void (*run)(GradeRank *rank), void *context,
                      size_t bytes) {
    const Play play = run_play(grade, (Play){.world = world, .run = run}, context, bytes);
    judge_ranks(grade, &play);
}

// Runs the ranks once with a broken collective. Returns whether any rank called it.
static bool grade_broken_play(Grade *grade, Play play, void *context, size_t bytes) {
    play = run_play(grade, play, context, bytes);
    return judge_broken_ranks(grade, &play);
}

void grade_broken_ranks_with(Grade *grade, int world, void (*run)(GradeRank *rank), void *context,
                             size_t bytes) {
    Play play = {.world = world, .run = run};
    void *whole = malloc(bytes); // the context of a play in which nothing fails, for grade->kept
    CHECK(whole, "no memory for a context");
    memcpy(whole, context, bytes);
    grade_ranks_with(grade, world, run, whole, bytes);
    free(whole);
    while (play.broken < MOST_BROKEN) {
        play.broken++;
        play.in_wait = false;
        if (!grade_broken_play(grade, play, context, bytes)) return;
        play.in_wait = true;
        grade_broken_play(grade, play, context, bytes);
    }
}
