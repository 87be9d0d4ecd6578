/* job_watch.c: the watch of a process without launcher: no-ops. */
#include "common/train/job_watch.h"

static void no_phase(const JobWatch *self, const char *phase, uint64_t step) {
    (void)self, (void)phase, (void)step;
}

static int no_failure(const JobWatch *self, Error *err) {
    (void)self, (void)err;
    return 0;
}

static void no_report(const JobWatch *self, const Error *cause) {
    (void)self, (void)cause;
}

const JobWatch job_watch_none = {.enter = no_phase, .check = no_failure, .give_up = no_report};
