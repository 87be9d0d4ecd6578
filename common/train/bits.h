/* bits.h: whether DataParallel and DistributedDataParallel promise equal bits for this run. */
#ifndef COMMON_TRAIN_BITS_H
#define COMMON_TRAIN_BITS_H

#include "common/train/run.h"

// Says so on the log, with what stands against it. Nothing where one device is not to be compared
// with several.
void bits_announce(Run *run);

#endif
