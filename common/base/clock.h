/* clock.h: time. Monotonic nanoseconds, the same clock in every process of one machine, so that
 * the traces of several ranks can be laid on one axis.
 */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t clock_ns(void);                 // CLOCK_MONOTONIC
uint64_t clock_ns_after(double seconds); // what clock_ns will say so many seconds from now
double clock_seconds_since(uint64_t ns); // 0 if clock_ns has not come to that yet

// The absolute CLOCK_MONOTONIC time `seconds` from now, for pthread_cond_clockwait and the like.
struct timespec clock_deadline(double seconds);

#endif
