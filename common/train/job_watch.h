/* job_watch.h: the trainer's reports to the launcher and to the job's other processes: the phase
 * that begins, and a failure.
 */
#ifndef COMMON_TRAIN_JOB_WATCH_H
#define COMMON_TRAIN_JOB_WATCH_H

#include <stdint.h>

#include "common/base/error.h"

typedef struct JobWatch JobWatch;
struct JobWatch {
    // Reports the phase that begins ("train", "evaluate", "checkpoint", "shutdown") at this step of
    // the run.
    void (*enter)(const JobWatch *self, const char *phase, uint64_t step);
    // Returns 0, or -1 with err filled once a process of the job has failed; results of collectives
    // are invalid then. Called where collectives are not waited for one by one (asynchronous
    // devices): before a step is replayed, and after a readback.
    int (*check)(const JobWatch *self, Error *err);
    // Reports that the run has failed in this process, so that the other processes fail at once
    // with the same message.
    void (*give_up)(const JobWatch *self, const Error *cause);
};

extern const JobWatch job_watch_none; // without launcher: no-ops

#endif
