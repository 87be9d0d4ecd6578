/* grading.h: the interface in which the exercises' graders are written.
 *
 * A Grader is a list of checks, each with a name, points and a function. Every check runs in a
 * process of its own, the judge: so a crash or an endless loop costs that check's points and no
 * others. A check that `needs` another one fails with it and is not run.
 *
 * A check ends at its first miss, with one sentence: the observation and its meaning. It has
 * passed if it returns.
 *
 * The judge never loads the student's file. At the first call of a student's function it forks the
 * player, and from there on both run the check: the player calls the function and sends the
 * results, the judge receives these instead of calling (GRADE_CALL, GRADE_RUN, grade_out). So a
 * check must be deterministic, and must send everything that the student's code may have changed
 * and that is judged. Ranks are processes, too (grade_ranks), forked by the judge.
 *
 * The student's file is compiled with pg_run, pg_start, pg_work_wait and device_copy renamed to the
 * watched calls below, which do the same and log each call with its arguments: so messages, bytes
 * and the order of events are judged by calls, and not by printed text.
 */
#ifndef TUTORIALS_GRADING_GRADING_H
#define TUTORIALS_GRADING_GRADING_H

#include <pthread.h>

#include "common/device/device.h"
#include "ddp/group/process_group.h"

typedef struct Grade Grade; // a running check

typedef struct GradeCheck {
    const char *name; // of the judged property: "shards of unequal length"
    int points;
    const char *needs; // the name of a check before this one, or NULL
    void (*run)(Grade *grade);
} GradeCheck;

enum { GRADE_MOST_CHECKS = 12 };

typedef struct Grader {
    const char *exercise;                 // "02-shards/01-shard-bounds"
    GradeCheck checks[GRADE_MOST_CHECKS]; // ends at the first without a name
} Grader;

// Ends the check without points. The sentence teaches: the observation, and its cause.
void grade_miss(Grade *grade, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
// Ends the check likewise unless the condition holds.
#define GRADE_EXPECT(grade, condition, ...)                 \
    do {                                                    \
        if (!(condition)) grade_miss((grade), __VA_ARGS__); \
    } while (0)

// The student's function of this name: STUDENT(grade, weighted_mean)(losses, rows, 2).
typedef void GradeFunction(void);
GradeFunction *grade_function(Grade *grade, const char *name);
#define STUDENT(grade, name) ((__typeof__(&name))grade_function((grade), #name))

// Whether this process may call STUDENT: it is the player, or a rank. In the judge it
// returns false, having forked the player if there is none yet.
bool grade_plays(Grade *grade);
// Hands the bytes that the student's code may have changed from the player to the judge. Both call
// it, at the same places of the check.
void grade_out(Grade *grade, void *output, size_t bytes);
#define GRADE_OUT(grade, variable) grade_out((grade), &(variable), sizeof(variable))
// GRADE_CALL(grade, weighted_mean, losses, rows, 2): the call's return value, in the player and
// in the judge. GRADE_RUN: for a function that returns nothing. Memory that they wrote: grade_out.
#define GRADE_CALL(grade, name, ...)                                        \
    __extension__({                                                         \
        __typeof__(name(__VA_ARGS__)) got_;                                 \
        if (grade_plays(grade)) got_ = STUDENT((grade), name)(__VA_ARGS__); \
        grade_out((grade), &got_, sizeof got_);                             \
        got_;                                                               \
    })
#define GRADE_RUN(grade, name, ...)                                  \
    do {                                                             \
        if (grade_plays(grade)) STUDENT((grade), name)(__VA_ARGS__); \
        grade_out((grade), NULL, 0);                                 \
    } while (0)
// Zeroed memory for the student's code to write, with a fence in front of it and one behind it:
// the check misses if a fence was written. It ends with the check, or 64 such calls later.
void *grade_fenced(Grade *grade, size_t bytes);
// The folder that the player may write in; nothing else.
const char *grade_room(const Grade *grade);

// ---- calls of the student's code ----------------------------------------------------------------

typedef enum WatchKind { WATCH_RUN, WATCH_START, WATCH_WAIT, WATCH_COPY } WatchKind;

typedef struct WatchEvent {
    WatchKind kind;
    Collective collective;   // of run and start
    const Device *from, *to; // of a device_copy; NULL: the host
    size_t bytes;            // of the buffer, or of the copy
} WatchEvent;

enum { WATCH_MOST = 4096 };

typedef struct WatchLog { // of one thread
    size_t count;
    WatchEvent events[WATCH_MOST];
    bool waited_for_null; // pg_work_wait was called with NULL
    char refused[240];    // the group's error for an invalid collective; "": none
    bool misaligned;      // a collective's buffer was not aligned for its type
} WatchLog;

// The targets of the student's renamed calls (tutorials/grade passes the names to the compiler).
int watched_pg_run(ProcessGroup *group, Collective collective, Error *err);
PgWork *watched_pg_start(ProcessGroup *group, Collective collective, Error *err);
int watched_pg_work_wait(PgWork *work, uint64_t *begin_ns, uint64_t *end_ns, Error *err);
void watched_device_copy(Device *to, void *destination, Device *from, const void *source,
                         size_t bytes);
void *watched_malloc(size_t bytes) __asm__("__wrap_malloc"); // the linker's names: --wrap
void *watched_calloc(size_t count, size_t bytes) __asm__("__wrap_calloc");
void *watched_realloc(void *memory, size_t bytes) __asm__("__wrap_realloc");
void *watched_memory_zalloc(size_t bytes) __asm__("__wrap_memory_zalloc");
void watched_free(void *memory) __asm__("__wrap_free");

// Returns the number of memory blocks that the student's code has allocated and not freed, in all
// threads.
long watch_blocks(void);

// Logs this thread's later calls. NULL: ends the logging.
void watch_begin(WatchLog *log);
// Collectives (or sends, receives) that were run or started: their number, the number of a kind,
// their bytes.
size_t watch_events(const WatchLog *log, WatchKind kind); // of any kind
size_t watch_calls(const WatchLog *log);
size_t watch_count(const WatchLog *log, CollectiveKind kind);
size_t watch_bytes(const WatchLog *log, CollectiveKind kind);

// ---- several ranks ------------------------------------------------------------------------------

typedef struct GradeRank {
    Grade *grade;
    ProcessGroup *group;
    int rank, world;
    void *context; // the ranks' common copy of grade_ranks' context
    WatchLog *log; // this rank's
    Error err;     // to be handed to the student's function
    int status;    // that function's return value, set by `run`; 0 otherwise
} GradeRank;

// Runs `run` on `world` ranks in parallel, each a process with its own end of one group, whose
// deadline is 3 seconds. They share a copy of *context, which is copied back afterwards; the judge
// sees no other memory of theirs. The check misses if a rank's err was filled (not all ranks took
// part in the same collectives), if a status is not 0, or if a rank did not wait for a collective
// that it started.
// In an exercise's last check `run` is called four times in the same processes, each time from the
// given context: the check misses if the resulting contexts differ, or if each call has left memory
// allocated. `run` must keep the files that it opens in its first call: a process that has loaded
// the student's file can open no others.
#define grade_ranks(grade, world, run, context) \
    grade_ranks_with((grade), (world), (run), (context), sizeof *(context))
void grade_ranks_with(Grade *grade, int world, void (*run)(GradeRank *rank), void *context,
                      size_t bytes);
// As grade_ranks, with a lost connection in each of a rank's first collectives in turn: a started
// collective fails once in pg_start, and once in pg_work_wait. The check misses unless each rank
// whose collective failed has status -1 and a filled err, and its call left no more memory
// allocated than a call without a failure, which runs first.
#define grade_broken_ranks(grade, world, run, context) \
    grade_broken_ranks_with((grade), (world), (run), (context), sizeof *(context))
void grade_broken_ranks_with(Grade *grade, int world, void (*run)(GradeRank *rank), void *context,
                             size_t bytes);
// Zeroed memory, shared by the ranks, for pointers in *context. Freed at the check's end.
void *grade_shared(size_t bytes);
pthread_mutex_t grade_mutex(void); // a mutex for a context, shared by the ranks' processes
// The worlds that collectives are tried with.
extern const int GRADE_WORLDS[4]; // 1, 2, 3, 5

// The distance of two floats in units in the last place: 0 means equal bits (or 0 and -0).
uint64_t grade_ulps(float a, float b);

#endif
