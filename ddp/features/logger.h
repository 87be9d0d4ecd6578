/* logger.h: the state behind logging_data.h: a wrapper's logger. */
#ifndef DDP_FEATURES_LOGGER_H
#define DDP_FEATURES_LOGGER_H

#include "ddp/features/logging_data.h"

typedef struct DdpLogger {
    Module *wrapper;
    uint64_t samples;
    uint64_t rate;       // one sample in `rate` iterations; default: PyTorch's 100
    DdpLoggingData data; // times of the samples; sizes of the buckets before they were rebuilt
} DdpLogger;

// Returns the logger of a wrapper for which ddp_start_logging was called.
DdpLogger *ddp_logger(Module *wrapper);

#endif
