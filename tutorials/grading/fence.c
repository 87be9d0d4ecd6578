/* fence.c: memory between two fences, which a student's code must not write. */
#include <stdlib.h>
#include <string.h>

#include "tutorials/grading/grader.h"

enum { FENCE_BYTES = 64, FENCE = 0xa5 };
enum { MOST_FENCED = 64 };

// The last fenced allocations of this process, which runs one check.
static struct {
    unsigned char *memory; // [FENCE_BYTES + bytes + FENCE_BYTES]; NULL: none yet
    size_t bytes;
} fenced[MOST_FENCED];
static size_t fenced_count; // in all

void *grade_fenced(Grade *grade, size_t bytes) {
    (void)grade;
    unsigned char *memory = malloc(bytes + 2 * FENCE_BYTES);
    const size_t place = fenced_count++ % MOST_FENCED;
    CHECK(memory, "no memory for a check");
    memset(memory, FENCE, bytes + 2 * FENCE_BYTES);
    memset(memory + FENCE_BYTES, 0, bytes);
    free(fenced[place].memory);
    fenced[place].memory = memory;
    fenced[place].bytes = bytes;
    return memory + FENCE_BYTES;
}

void check_fences(Grade *grade) {
    for (size_t f = 0; f < MOST_FENCED && fenced[f].memory; f++)
        for (size_t i = 0; i < FENCE_BYTES; i++) {
            const unsigned char *behind = fenced[f].memory + FENCE_BYTES + fenced[f].bytes;
            GRADE_EXPECT(grade, fenced[f].memory[i] == FENCE,
                         "Something was written in front of a buffer: an index was negative.");
            GRADE_EXPECT(grade, behind[i] == FENCE, "Something was written behind a buffer.");
        }
}
