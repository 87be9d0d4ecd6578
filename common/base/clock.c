/* clock.c: time, from CLOCK_MONOTONIC: setting the date does not change it, and all processes of a
 * machine read the same clock. Waiting is in sync.c.
 */
#include "common/base/clock.h"

enum { NS_PER_S = 1000000000 };

uint64_t clock_ns(void) {
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0, "the monotonic clock cannot be read");
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns_after(double seconds) {
    const double longest = 1e9; // about 30 years: keeps the sum below inside 64 bits
    if (!(seconds > 0)) seconds = 0;
    if (seconds > longest) seconds = longest;
    return clock_ns() + (uint64_t)(seconds * NS_PER_S);
}

double clock_seconds_since(uint64_t ns) {
    uint64_t now = clock_ns();
    return now > ns ? (double)(now - ns) * 1e-9 : 0;
}

struct timespec clock_deadline(double seconds) {
    uint64_t at = clock_ns_after(seconds);
    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)};
}

int clock_check_timeout(double timeout_s, double least, Error *err) {
    if (timeout_s >= least && timeout_s <= 1e9) return 0;
    return error_set(err, STATUS_USAGE, "timeout_s is %g: expected seconds %s 0, at most 1e9",
                     timeout_s, least > 0 ? "above" : "from");
}
