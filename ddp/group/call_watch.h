/* call_watch.h: a deadline for a library call that has none: another thread ends the process if the
 * call does not return in time, because a blocked call cannot be cancelled.
 *
 *     CallWatch *watch = call_watch_begin(NULL, "MPI_Init_thread", 30);
 *     MPI_Init_thread(...);
 *     call_watch_end(watch);
 */
#ifndef DDP_GROUP_CALL_WATCH_H
#define DDP_GROUP_CALL_WATCH_H

typedef struct CallWatch CallWatch;

// what: the call's name. reason: the error that led to the call, for the message; NULL: none. Both
// must stay valid until call_watch_end.
CallWatch *call_watch_begin(const char *reason, const char *what, double seconds);
void call_watch_end(CallWatch *watch);

#endif
