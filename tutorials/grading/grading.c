/* grading.c: a whole exercise: its checks in order, their points, and the printed result. */
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/json.h"
#include "tutorials/grading/grader.h"

static const char *const RESULT_NAMES[] = {"PASS", "MISS", "SKIP"};

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

// Whether the check named by `needs` has passed.
static bool may_run(const Grader *grader, const Outcome *outcomes, size_t i) {
    const char *needs = grader->checks[i].needs;
    size_t k = 0;
    if (!needs) return true;
    while (k < i && strcmp(grader->checks[k].name, needs) != 0) k++;
    CHECK(k < i, "%s: no check \"%s\" stands before \"%s\"", grader->exercise, needs,
          grader->checks[i].name);
    return outcomes[k].result == RESULT_PASS;
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
    char room[] = "/tmp/grade-XXXXXX"; // where the student's file may write
    prctl(PR_SET_CHILD_SUBREAPER, 1);  // this process adopts processes that a check leaves
    prctl(PR_SET_DUMPABLE, 0);         // no process of this user may look into the judge's memory
    CHECK(mkdtemp(room), "no folder can be made in /tmp");
    for (size_t i = 0; i < count_checks(grader); i++) {
        outcomes[i] = (Outcome){.result = RESULT_SKIP};
        if (may_run(grader, outcomes, i))
            outcomes[i] =
                supervise_check(&grader->checks[i], file, room, i + 1 == count_checks(grader));
        else
            snprintf(outcomes[i].sentence, SENTENCE_MAX, "Not tried, because \"%s\" was missed.",
                     grader->checks[i].needs);
        if (outcomes[i].result == RESULT_PASS) score += grader->checks[i].points;
    }
    rmdir(room);
    if (as_json)
        print_json(grader, outcomes, score);
    else
        print_text(grader, outcomes, score);
    return score == grader_points(grader);
}
