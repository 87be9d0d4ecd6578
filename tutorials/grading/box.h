/* box.h: confines a process that runs a student's code to its own memory. */
#ifndef TUTORIALS_GRADING_BOX_H
#define TUTORIALS_GRADING_BOX_H

// Confines the calling thread and its future threads irrevocably: limits on processor time, files
// and core dumps; no capabilities; reads only in system folders and of `file`, writes only below
// `room` (NULL: nowhere); no new processes, programs, sockets or shared memory; no signals to other
// processes. Limits that this kernel or this build lacks are skipped: box_describe.
void box_enter(const char *file, const char *room, unsigned cpu_seconds);
void box_leave_out(void); // makes box_enter do nothing from now on: for trusted files
// Returns a sentence that names the limits in force.
const char *box_describe(void);

#endif
