/* 01-scatter-rows.c: rows to the devices. The task is in 01-scatter-rows.h. */
#include "tutorials/04-dp-forward/exercises/01-scatter-rows.h"

#include <string.h>

#include "common/data/sampler.h"

// SOLUTION BEGIN
void scatter_rows(Device *from, const float *batch, size_t rows, size_t row_size, Part *parts,
                  int part_count) {
    for (int i = 0; i < part_count; i++) {
        Part *part = &parts[i];
        chunk_bounds(rows, (size_t)part_count, (size_t)i, &part->begin, &part->end);
        part->rows = NULL;
        if (part->begin == part->end) continue;
        size_t bytes = (part->end - part->begin) * row_size * sizeof(float);
        part->rows = device_alloc(part->device, bytes);
        device_copy(part->device, part->rows, from, batch + part->begin * row_size, bytes);
    }
}
// SOLUTION END
