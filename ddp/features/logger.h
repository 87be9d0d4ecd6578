/* logger.h: the samples behind logging_data.h. */
#ifndef DDP_FEATURES_LOGGER_H
#define DDP_FEATURES_LOGGER_H

#include "ddp/reducer.h"

// One note per reduced iteration.
typedef struct DdpLogger {
    Module *wrapper;
    uint64_t iterations, samples;
    uint64_t rate; // every so many iterations a sample is taken; PyTorch's 100 at first
    ReducerTimes last;
    double mean[5];          // over the samples, in ns, in the order of ReducerTimes
    size_t unused_bytes;     // of the parameters that had no gradient in the last sample
    char first_buckets[256]; // the sizes of the buckets before they were rebuilt
} DdpLogger;

// The logger of a wrapper for which ddp_start_logging was called.
DdpLogger *ddp_logger(Module *wrapper);

#endif
