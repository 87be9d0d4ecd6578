/* 02-gather-rows.c: outputs from the devices. The task is in 02-gather-rows.h. */
#include "tutorials/04-dp-forward/exercises/02-gather-rows.h"

#include <string.h>

// SOLUTION BEGIN
size_t gather_rows(Device *to, float *outputs, size_t row_size, const OutputPart *parts,
                   int part_count) {
    size_t begin = 0;
    for (int i = 0; i < part_count; i++) {
        const OutputPart *part = &parts[i];
        if (part->count == 0) continue;
        device_copy(to, outputs + begin * row_size, part->device, part->rows,
                    part->count * row_size * sizeof(float));
        begin += part->count;
    }
    return begin;
}
// SOLUTION END
