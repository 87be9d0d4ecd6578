/* 01-busy-devices.h: the number of devices that have rows.
 *
 * DataParallel cuts a batch into chunks of ceil(rows / devices) rows. A short batch, as the last
 * one of an epoch often is, may leave devices without rows. And the step takes as long as the
 * device with the most rows needs.
 */
#ifndef TUTORIALS_BUSY_DEVICES_H
#define TUTORIALS_BUSY_DEVICES_H

#include <stddef.h>

typedef struct Occupation {
    size_t busy;    // devices that get rows
    size_t longest; // the most rows that a device gets
} Occupation;

// devices: at least 1. Without rows no device is busy.
Occupation occupation(size_t rows, size_t devices);

#endif
