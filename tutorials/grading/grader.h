/* grader.h: runs a grader (written by grading.h); the interface between the files below.
 *
 * | file         | content                                                                |
 * |--------------|------------------------------------------------------------------------|
 * | grading.c    | a whole exercise: its checks in order, and the result                  |
 * | supervise.c  | one check as a process with a time limit, and its captured output      |
 * | player.c     | the judge's process and the student's, and the transcript between them |
 * | play_ranks.c | several ranks, each a process                                          |
 * | watch.c      | the watched calls                                                      |
 * | fence.c      | memory with fences                                                     |
 * | box.c        | the confinement of a student's process                                 |
 * | leftovers.c  | ends the processes that the student's code has started                 |
 */
#ifndef TUTORIALS_GRADING_GRADER_H
#define TUTORIALS_GRADING_GRADER_H

#include <sys/types.h>

#include "tutorials/grading/grading.h"

enum { CHECK_SECONDS = 10, SENTENCE_MAX = 600 };
enum { SANITIZER_STATUS = 86 }; // exit status of a process that a sanitizer ended (grade --asan)

int grader_points(const Grader *grader);
// Judges the student's compiled file and prints the result. Returns whether it gets all points.
bool grader_run(const Grader *grader, const char *file, bool as_json);

// ---- one check ----------------------------------------------------------------------------------

typedef enum Result { RESULT_PASS, RESULT_MISS, RESULT_SKIP } Result;

typedef struct Outcome {
    Result result;
    char sentence[SENTENCE_MAX];
} Outcome;

// Runs the check in a process of its own, for at most CHECK_SECONDS, and ends all its descendants.
// last: the exercise's last check, which misses after a leak.
Outcome supervise_check(const GradeCheck *check, const char *file, const char *room, bool last);
// How a process ended, as a sentence: by a signal, or by exit.
void say_how_it_ended(char sentence[SENTENCE_MAX], int status);

// ---- inside a check -----------------------------------------------------------------------------

typedef enum Role {
    ROLE_JUDGE,  // never loads the student's code; the only role that gives the verdict
    ROLE_PLAYER, // the student's process of a check without ranks
    ROLE_RANK,   // the student's process of one rank
} Role;

struct Grade {
    const char *file; // the student's, compiled
    const char *room; // the folder that the student's process may write
    void *library;
    bool last;               // of the exercise's checks
    size_t calls;            // of student functions, in this process
    long blocks, blocks_now; // of its memory after the second call; after the latest
    long kept;               // judge: most blocks that a rank's call kept without a failure
    Role role;
    int verdict;       // judge: the pipe to the supervisor
    int transcript;    // judge and player: the pipe between them
    pid_t player;      // judge: 0 until there is one
    struct Seat *seat; // rank
};

// The check is over: END in a player, the verdict in a judge.
void grade_end(Grade *grade) __attribute__((noreturn));
// Gives this process, a fork of the judge, a role that may load the student's code.
void grade_become(Grade *grade, Role role);
// Misses the check if a fence was written (grade_fenced): in a player or a rank, after a call.
void check_fences(Grade *grade);
// Misses the exercise's last check if every call left memory allocated.
void check_blocks(Grade *grade);
// Records a rank's miss for the judge, then ends the rank.
void seat_miss(struct Seat *seat, const char *sentence) __attribute__((noreturn));

// ---- watching -----------------------------------------------------------------------------------

// Makes this thread's `broken`-th collective fail (0: none), in pg_work_wait if `in_wait`.
void watch_break(size_t broken, bool in_wait);

#endif
