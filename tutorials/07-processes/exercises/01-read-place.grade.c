/* 01-read-place.grade.c: environments that are right, incomplete, and wrong. */
#include "tutorials/07-processes/exercises/01-read-place.h"

#include <string.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_07_01;

// The environment for lookup: WORLD_SIZE, RANK, LOCAL_RANK. A check sets it, in a process of its
// own, before it calls the student's function, which takes no context.
static const char *environment[3];

static const char *lookup(const char *name) {
    static const char *const NAMES[3] = {"WORLD_SIZE", "RANK", "LOCAL_RANK"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, NAMES[i]) == 0) return environment[i];
    return NULL;
}

static const char *read(Grade *grade, Place *place, const char *world, const char *rank,
                        const char *local) {
    *place = (Place){-7, -7, -7};
    environment[0] = world, environment[1] = rank, environment[2] = local;
    static char name[64]; // a copy: the student's pointer is into the player's memory
    const char *wrong = GRADE_CALL(grade, read_place, place, lookup);
    if (wrong && grade_plays(grade)) snprintf(name, sizeof name, "%s", wrong);
    GRADE_OUT(grade, name);
    GRADE_OUT(grade, *place);
    return wrong ? name : NULL;
}

static void right(Grade *grade) {
    Place place;
    const char *wrong = read(grade, &place, "8", "5", "1");
    GRADE_EXPECT(grade, !wrong, "WORLD_SIZE=8 RANK=5 LOCAL_RANK=1 is right, but %s was refused.",
                 wrong);
    GRADE_EXPECT(grade, place.rank != 1,
                 "rank was taken from LOCAL_RANK: on the second machine they differ.");
    GRADE_EXPECT(grade, place.rank == 5 && place.world_size == 8 && place.local_rank == 1,
                 "With WORLD_SIZE=8 RANK=5 LOCAL_RANK=1 you read rank %d of %d, local %d.",
                 place.rank, place.world_size, place.local_rank);
}

// Every case has one variable that is wrong, and a sentence for a function that accepts it.
static void refuse(Grade *grade, const char *world, const char *rank, const char *local,
                   const char *name, const char *sentence) {
    Place place;
    const char *wrong = read(grade, &place, world, rank, local);
    GRADE_EXPECT(grade, wrong, "%s (WORLD_SIZE=%s RANK=%s LOCAL_RANK=%s)", sentence,
                 world ? world : "-", rank ? rank : "-", local ? local : "-");
    GRADE_EXPECT(grade, strcmp(wrong, name) == 0,
                 "%s is the first that is wrong, but you say %s. (WORLD_SIZE=%s RANK=%s "
                 "LOCAL_RANK=%s)",
                 name, wrong, world ? world : "-", rank ? rank : "-", local ? local : "-");
    GRADE_EXPECT(grade, place.rank == -7 && place.world_size == -7 && place.local_rank == -7,
                 "The place was changed although a variable was wrong: it must stay as it was.");
}

static void missing(Grade *grade) {
    const char *sentence = "A variable was missing, and the function guessed: then two processes "
                           "may take the same rank.";
    refuse(grade, "2", NULL, "1", "RANK", sentence);
    refuse(grade, NULL, "1", "1", "WORLD_SIZE", sentence);
    refuse(grade, "2", "1", NULL, "LOCAL_RANK", sentence);
    refuse(grade, NULL, NULL, NULL, "WORLD_SIZE", sentence);
    refuse(grade, "2", NULL, NULL, "RANK", sentence);
}

static void no_number(Grade *grade) {
    const char *sentence =
        "A text that is no number was read as one: atoi does not complain, strtol tells.";
    refuse(grade, "2", "one", "0", "RANK", sentence);
    refuse(grade, "2", "", "0", "RANK", sentence);
    refuse(grade, "2", "1x", "0", "RANK", sentence);
    refuse(grade, "4", "1", "zero", "LOCAL_RANK", sentence);
    refuse(grade, "2", "1\n", "0", "RANK", sentence);
    refuse(grade, "2x", "1", "0", "WORLD_SIZE", sentence);
    refuse(grade, "", "1", "0", "WORLD_SIZE", sentence);
    refuse(grade, "4", "1", "1x", "LOCAL_RANK", sentence);
    refuse(grade, "4", "one", NULL, "RANK", sentence);
    refuse(grade, "2", "0x1", "0", "RANK",
           "A text was read in another base than 10: with base 0 strtol guesses it from the first "
           "digits.");
}

static void no_sense(Grade *grade) {
    const char *sentence = "A rank that is not below the world size was accepted: ranks go from 0 "
                           "to WORLD_SIZE - 1.";
    refuse(grade, "2", "2", "0", "RANK", sentence);
    refuse(grade, "2", "1", "2", "LOCAL_RANK", sentence);
    refuse(grade, "0", "0", "0", "WORLD_SIZE", "A world without ranks was accepted.");
    refuse(grade, "-2", "0", "0", "WORLD_SIZE", "A world without ranks was accepted.");
    refuse(grade, "2", "-1", "0", "RANK", "A negative rank was accepted.");
    refuse(grade, "2", "1", "-1", "LOCAL_RANK", "A negative rank was accepted.");
    refuse(grade, "2", "4294967297", "0", "RANK", // 2^32 + 1
           "A number that is too large for an int was cut off: look at the long before you store "
           "it.");
    refuse(grade, "4294967298", "1", "0", "WORLD_SIZE", // 2^32 + 2
           "A number that is too large for an int was cut off: look at the long before you store "
           "it.");
}

const Grader grader_07_01 = {"07-processes/01-read-place",
                             {{"a right environment", 3, NULL, right},
                              {"a variable is missing", 3, "a right environment", missing},
                              {"a text is no number", 2, "a variable is missing", no_number},
                              {"a number makes no sense", 2, "a variable is missing", no_sense}}};
