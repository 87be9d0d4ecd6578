/* bits.h: whether DataParallel and DistributedDataParallel promise equal bits for this run. */
#ifndef COMMON_TRAIN_BITS_H
#define COMMON_TRAIN_BITS_H

#include "common/train/run.h"

// Says on the log whether they do, or what stands against it. Says nothing where one device is not
// to be compared with several.
void bits_announce(Run *run);

#endif
