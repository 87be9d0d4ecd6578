/* box.h: confines a process that runs a student's code to its own memory. */
#ifndef TUTORIALS_GRADING_BOX_H
#define TUTORIALS_GRADING_BOX_H

// Confines the calling thread and the threads that it will start, for good: limits on processor
// time, files and core dumps; no capabilities; reading of system folders and of `file` only, and
// writing below `room` only (NULL: nowhere); no new processes, programs, sockets or shared memory;
// no signals to other processes. A limit that this kernel or this build lacks is left out:
// box_describe.
void box_enter(const char *file, const char *room, unsigned cpu_seconds);
void box_leave_out(void); // from now on box_enter does nothing: for files that are trusted
// Which of it holds here, in one sentence.
const char *box_describe(void);

#endif
