/* bits.h: announces whether DataParallel and DistributedDataParallel have equal bits in this run.
 * */
#ifndef COMMON_TRAIN_BITS_H
#define COMMON_TRAIN_BITS_H

#include "common/train/run.h"

// Logs that bits are equal, or the reasons why not and the options that make them equal. Logs
// nothing for one device or without training.
void bits_announce(Run *run);

#endif
