/* clock.h: time in monotonic nanoseconds. All processes of a machine read the same clock, so the
 * traces of its ranks share one time axis.
 */
#ifndef COMMON_BASE_CLOCK_H
#define COMMON_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "common/base/error.h"

uint64_t clock_ns(void);                 // CLOCK_MONOTONIC
uint64_t clock_ns_after(double seconds); // clock_ns() + seconds, saturated at 1e9 s
double clock_seconds_since(uint64_t ns); // 0 if `ns` is in the future

// The absolute CLOCK_MONOTONIC time `seconds` from now, as pthread_cond_clockwait takes it.
struct timespec clock_deadline(double seconds);

// Returns 0 if timeout_s is a number of seconds from `least` to 1e9, otherwise -1 with err filled.
int clock_check_timeout(double timeout_s, double least, Error *err);

#endif
