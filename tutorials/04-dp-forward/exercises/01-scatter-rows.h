/* 01-scatter-rows.h: the first of DataParallel's operations.
 *
 * A batch is in the memory of one device. Each part gets a copy of its rows, in memory of its own
 * device: device 1 cannot read device 0's memory, so a pointer into the batch is useless there. The
 * cut is PyTorch's (chunk_bounds of common/data/sampler.h does it, or your own of step 2).
 *
 *     device_alloc(device, bytes)                      memory on a device
 *     device_copy(to, destination, from, source, bytes)   from one device to another
 *
 * Both count in bytes; a row is row_size floats.
 */
#ifndef TUTORIALS_SCATTER_ROWS_H
#define TUTORIALS_SCATTER_ROWS_H

#include "common/device/device.h"

typedef struct Part {
    Device *device;    // given
    size_t begin, end; // yours to fill: its rows of the batch
    float *rows;       // yours: [end - begin, row_size] on the device, NULL if it gets no rows
} Part;

// batch [rows, row_size] is memory of the device `from`. parts [part_count]. A part on `from`
// itself gets memory of its own, too. The caller frees the parts' memory.
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count);

#endif
