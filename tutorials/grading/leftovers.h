/* leftovers.h: ends the processes that a student's code has left behind. */
#ifndef TUTORIALS_GRADING_LEFTOVERS_H
#define TUTORIALS_GRADING_LEFTOVERS_H

// Kills this process's children and, if it adopts orphans (PR_SET_CHILD_SUBREAPER), all below them.
void end_leftovers(void);

#endif
