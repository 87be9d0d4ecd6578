/* job_watch.h: whoever watches over this process while it trains: the launcher of a job, and the
 * job's other processes. The trainer says what it is about to do, and when it has to give up.
 */
#ifndef COMMON_TRAIN_JOB_WATCH_H
#define COMMON_TRAIN_JOB_WATCH_H

#include <stdint.h>

#include "common/base/error.h"

typedef struct JobWatch JobWatch;
struct JobWatch {
    // This process is about to do this ("train", "evaluate", "checkpoint", "shutdown"), at this
    // step of the run.
    void (*enter)(const JobWatch *self, const char *phase, uint64_t step);
    // Whether what this process did together with the others counts: -1 with err filled once one of
    // them has failed. Asked where the device works on its own and nobody waits for what was done
    // together: before a step is replayed, and when a number has come back.
    int (*check)(const JobWatch *self, Error *err);
    // The run has failed here, for this reason: the other processes may fail with the same words at
    // once.
    void (*give_up)(const JobWatch *self, const Error *cause);
};

extern const JobWatch job_watch_nobody; // does nothing

#endif
