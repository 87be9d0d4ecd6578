/* machine.h: which machine this is. Each function writes "?" if Linux does not report the value. */
#ifndef COMMON_BASE_MACHINE_H
#define COMMON_BASE_MACHINE_H

#include <stddef.h>

void machine_name(char *name, size_t capacity); // the host name
// The random id that the kernel has generated at boot. Processes with equal ids have the same
// kernel and clock, but may be in different containers.
void machine_boot_id(char *id, size_t capacity);
// The first line of a file, such as one in /proc, without its end.
void machine_read_line(const char *path, char *line, size_t capacity);

#endif
