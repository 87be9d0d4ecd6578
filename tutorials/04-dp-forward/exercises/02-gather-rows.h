/* 02-gather-rows.h: the last of DataParallel's operations forward.
 *
 * Each device has computed outputs for its rows. One device, usually the first, needs them all, in
 * the order of the batch, because the loss is computed there. The parts may differ in length, and
 * the last ones may be empty: then rows is NULL, and there is nothing to copy.
 */
#ifndef TUTORIALS_GATHER_ROWS_H
#define TUTORIALS_GATHER_ROWS_H

#include "common/device/device.h"

typedef struct OutputPart {
    Device *device;
    size_t count; // rows
    float *rows;  // [count, row_size] on the device
} OutputPart;

// outputs [all rows, row_size] is memory of the device `to`, which may be another one than that of
// parts[0]. Returns the number of all rows.
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count);

#endif
