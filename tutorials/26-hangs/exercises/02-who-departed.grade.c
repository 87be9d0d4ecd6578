/* 02-who-departed.grade.c: hangs in the form of the flight recorder. */
#include "tutorials/26-hangs/exercises/02-who-departed.h"

#include <inttypes.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_26_02;

enum { MOST_RANKS = 5, GRADIENT = 50176 };

typedef struct Hang {
    int world;
    LastSeen ranks[MOST_RANKS];
    Verdict verdict;
    const char *sentence; // for a wrong trouble or rank
} Hang;

#define IN(finished, kind, count) \
    { (finished), true, PG_##kind, (count) }
#define IDLE(finished) \
    { (finished), false, PG_BARRIER, 77 }

static void judge(Grade *grade, const Hang *hangs, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const Hang *hang = &hangs[i];
        Verdict got = GRADE_CALL(grade, who_departed, hang->ranks, hang->world);
        GRADE_EXPECT(grade, got.trouble == hang->verdict.trouble, "%s", hang->sentence);
        GRADE_EXPECT(grade, got.rank == hang->verdict.rank, "%s (It said rank %d, and it is %d.)",
                     hang->sentence, got.rank, hang->verdict.rank);
        GRADE_EXPECT(grade, got.sequence == hang->verdict.sequence,
                     "The trouble began at collective %" PRIu64
                     ", the first that some rank has not "
                     "finished, and not at %" PRIu64 ".",
                     hang->verdict.sequence, got.sequence);
    }
}

static void one_lags(Grade *grade) {
    static const char SENTENCE[] = "The ranks that wait are witnesses; the rank that has not begun "
                                   "the collective is at fault.";
    static const Hang HANGS[] = {
        {3,
         {IN(42, ALL_REDUCE, GRADIENT), IN(42, ALL_REDUCE, GRADIENT), IDLE(42)},
         {TROUBLE_LAGS, 2, 43},
         SENTENCE},
        {3,
         {IDLE(42), IN(42, ALL_REDUCE, GRADIENT), IN(42, ALL_REDUCE, GRADIENT)},
         {TROUBLE_LAGS, 0, 43},
         SENTENCE},
        {2, {IN(6, BARRIER, 0), IDLE(6)}, {TROUBLE_LAGS, 1, 7}, SENTENCE},
    };
    judge(grade, HANGS, sizeof HANGS / sizeof *HANGS);
}

static void some_are_ahead(Grade *grade) {
    static const char SENTENCE[] =
        "Two ranks wait at different numbers: look at the first that not all have finished.";
    static const Hang HANGS[] = {
        // A send-like collective: rank 0 finished 10 early, and waits in 11.
        {5,
         {IN(10, BROADCAST, 8), IN(9, REDUCE, 8), IDLE(9), IN(9, REDUCE, 8), IN(10, BROADCAST, 8)},
         {TROUBLE_LAGS, 2, 10},
         SENTENCE},
        {3, {IN(9, REDUCE, 8), IN(11, BARRIER, 0), IDLE(9)}, {TROUBLE_LAGS, 2, 10}, SENTENCE},
        {3, {IDLE(12), IDLE(9), IDLE(9)}, {TROUBLE_LAGS, 1, 10}, SENTENCE},
        {3,
         {IN(9, REDUCE, 8), IDLE(9), IN(9, BARRIER, 0)},
         {TROUBLE_LAGS, 1, 10},
         "Two ranks make different calls, but one has not begun at all: that comes first."},
        {2,
         {IDLE(5000000000), IN(5000000001, BARRIER, 0)},
         {TROUBLE_LAGS, 0, 5000000001},
         "5,000,000,000 collectives were finished, and an int ends at 2,147,483,647."},
    };
    judge(grade, HANGS, sizeof HANGS / sizeof *HANGS);
}

static void one_is_ahead_and_one_differs(Grade *grade) {
    static const char AHEAD[] = "Rank 0 has finished the collective, and is in a later call: only "
                                "ranks in the collective can be compared.";
    static const Hang HANGS[] = {
        {4,
         {IN(4, BROADCAST, 1), IN(3, REDUCE, 8), IN(3, BROADCAST, 1), IN(3, REDUCE, 8)},
         {TROUBLE_DIFFERS, 2, 4},
         AHEAD},
        {3,
         {IN(4, REDUCE, 8), IN(3, BARRIER, 0), IN(3, REDUCE, 8)},
         {TROUBLE_DIFFERS, -1, 4},
         AHEAD},
    };
    judge(grade, HANGS, sizeof HANGS / sizeof *HANGS);
}

// More ranks than a small array may hold.
static void many_ranks(Grade *grade, LastSeen odd_one, Trouble trouble) {
    enum { MANY = 200, WHICH = 171 };
    LastSeen ranks[MANY];
    for (int r = 0; r < MANY; r++) ranks[r] = (LastSeen)IN(7, ALL_REDUCE, 8);
    ranks[WHICH] = odd_one;
    Verdict got = GRADE_CALL(grade, who_departed, ranks, MANY);
    GRADE_EXPECT(grade, got.trouble == trouble && got.rank == WHICH && got.sequence == 8,
                 "Of %d ranks, rank %d is at fault: there may be any number of them.", MANY, WHICH);
}

static void one_differs(Grade *grade) {
    static const char SENTENCE[] =
        "Three began collective 13 and one of them another call: the rank that differs is alone.";
    static const char SIZES[] = "The calls are of one kind, but not of one size: 9 numbers from "
                                "one rank and 8 from the others.";
    static const char TWO[] = "Two ranks, two calls: which of them is right is unknown.";
    static const char NOBODY[] = "A rank is alone with its call only against two or more that "
                                 "agree, and here there are none, or as many.";
    static const Hang HANGS[] = {
        {3,
         {IN(12, ALL_REDUCE, 1), IN(12, BROADCAST, 1), IN(12, BROADCAST, 1)},
         {TROUBLE_DIFFERS, 0, 13},
         SENTENCE},
        {3,
         {IN(12, BROADCAST, 1), IN(12, BROADCAST, 1), IN(12, ALL_REDUCE, 1)},
         {TROUBLE_DIFFERS, 2, 13},
         SENTENCE},
        {5,
         {IN(3, ALL_REDUCE, 8), IN(3, ALL_REDUCE, 9), IN(3, ALL_REDUCE, 8), IN(3, ALL_REDUCE, 8),
          IN(3, ALL_REDUCE, 8)},
         {TROUBLE_DIFFERS, 1, 4},
         SIZES},
        {2, {IN(3, ALL_REDUCE, 8), IN(3, BARRIER, 0)}, {TROUBLE_DIFFERS, -1, 4}, TWO},
        {3,
         {IN(3, ALL_REDUCE, 8), IN(3, BARRIER, 0), IN(3, BROADCAST, 8)},
         {TROUBLE_DIFFERS, -1, 4},
         NOBODY},
        {4,
         {IN(3, ALL_REDUCE, 8), IN(3, BARRIER, 0), IN(3, BARRIER, 0), IN(3, ALL_REDUCE, 8)},
         {TROUBLE_DIFFERS, -1, 4},
         NOBODY},
        {5,
         {IN(3, REDUCE, 8), IN(3, BARRIER, 0), IN(3, BROADCAST, 8), IN(3, REDUCE, 8),
          IN(3, BARRIER, 0)},
         {TROUBLE_DIFFERS, -1, 4},
         NOBODY},
    };
    judge(grade, HANGS, sizeof HANGS / sizeof *HANGS);
    one_is_ahead_and_one_differs(grade);
    many_ranks(grade, (LastSeen)IN(7, BARRIER, 0), TROUBLE_DIFFERS);
    many_ranks(grade, (LastSeen)IDLE(7), TROUBLE_LAGS);
}

static void nobody(Grade *grade) {
    static const char SENTENCE[] = "All ranks are in the same collective, and no rank is at fault.";
    static const Hang HANGS[] = {
        {1, {IDLE(0)}, {TROUBLE_NONE, -1, 1}, SENTENCE},
        {3, {IDLE(5), IDLE(5), IDLE(5)}, {TROUBLE_NONE, -1, 6}, SENTENCE},
        {2, {IN(5, BARRIER, 0), IN(5, BARRIER, 0)}, {TROUBLE_NONE, -1, 6}, SENTENCE},
        {3, {IN(5, BARRIER, 0), IDLE(6), IN(5, BARRIER, 0)}, {TROUBLE_NONE, -1, 6}, SENTENCE},
    };
    judge(grade, HANGS, sizeof HANGS / sizeof *HANGS);
}

const Grader grader_26_02 = {"26-hangs/02-who-departed",
                             {{"one rank has not begun", 4, NULL, one_lags},
                              {"some are ahead", 2, "one rank has not begun", some_are_ahead},
                              {"one runs another call", 3, "one rank has not begun", one_differs},
                              {"no rank is late", 1, "one rank has not begun", nobody}}};
