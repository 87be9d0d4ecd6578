/* mapped_segments.h: counts the shared memory segments (ddp/group/shm/segment.h) that this process
 * has mapped, to find those that closed groups have leaked.
 */
#ifndef TESTS_RIGS_MAPPED_SEGMENTS_H
#define TESTS_RIGS_MAPPED_SEGMENTS_H

#include <stdio.h>
#include <string.h>

static inline int mapped_segments(void) {
    char line[512];
    int count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, file)) count += strstr(line, "memfd:ddp.c") != NULL;
    fclose(file);
    return count;
}

#endif
