/* copies.h: detects a single-process program that mpirun, srun or ddprun started several times. */
#ifndef COMMON_TRAIN_COPIES_H
#define COMMON_TRAIN_COPIES_H

#include "common/base/log.h"
#include "common/train/job.h"

// Logs, in the first process only, that each process trains independently.
void copies_note(const Job *job, Log *log);

#endif
