/* grader.h: running a grader (grading.h is what one is written with). */
#ifndef TUTORIALS_GRADING_GRADER_H
#define TUTORIALS_GRADING_GRADER_H

#include "tutorials/grading/grading.h"

int grader_points(const Grader *grader);
// Judges the student's compiled file and prints the result. Returns whether all points were given.
bool grader_run(const Grader *grader, const char *file, bool as_json);

#endif
