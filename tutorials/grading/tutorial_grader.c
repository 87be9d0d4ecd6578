/* tutorial_grader.c: judges one compiled exercise. tutorials/grade compiles and calls it.
 *
 *   tutorial_grader 02-shards/01-shard-bounds FILE.so     judges; status 0: all points
 *   tutorial_grader --points 02-shards/01-shard-bounds    prints the number of points
 *   tutorial_grader --box                                 prints the box's limits on this machine
 */
#include <string.h>

#include "common/base/options.h"
#include "tutorials/grading/box.h"
#include "tutorials/grading/grader.h"

// The list of all graders, which the build writes (tutorials/CMakeLists.txt).
extern const Grader *const GRADERS[]; // ends with NULL

static const Grader *find_grader(const char *exercise, Error *err) {
    for (const Grader *const *grader = GRADERS; *grader; grader++)
        if (strcmp((*grader)->exercise, exercise) == 0) return *grader;
    error_set(err, STATUS_USAGE, "there is no exercise %s", exercise);
    return NULL;
}

int main(int argc, char **argv) {
    bool points = false, json = false, box = false, no_box = false;
    Options options = {.program = "tutorial_grader",
                       .summary = "Judges an exercise: tutorial_grader EXERCISE FILE.so",
                       .positional_max = 2};
    options_add_flag(&options, "points", &points, "only say how many points the exercise has");
    options_add_flag(&options, "json", &json, "one line of JSON");
    options_add_flag(&options, "box", &box, "only say the limits of a student's file here");
    options_add_flag(&options, "no-box", &no_box, "without that, to see what it costs");
    Error err = {0};
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    if (box) {
        printf("%s\n", box_describe());
        return STATUS_OK;
    }
    if (no_box) box_leave_out();
    if (options.positional_count != (points ? 1 : 2)) {
        error_set(&err, STATUS_USAGE, "an exercise and a compiled file are needed; see --help");
        error_exit(&err);
    }
    const Grader *grader = find_grader(options.positional[0], &err);
    if (!grader) error_exit(&err);
    if (points) {
        printf("%d\n", grader_points(grader));
        return STATUS_OK;
    }
    return grader_run(grader, options.positional[1], json) ? STATUS_OK : STATUS_FAILED;
}
