/* machine.h: which machine this is, as far as Linux says. What it does not say is "?". */
#ifndef COMMON_BASE_MACHINE_H
#define COMMON_BASE_MACHINE_H

#include <stddef.h>

void machine_name(char *name, size_t capacity); // the host's
// The id that the kernel drew when it booted. Two processes with the same one have the same kernel
// and the same clock; but they may be in two containers.
void machine_boot_id(char *id, size_t capacity);
// The first line of a file, such as one in /proc, without its end.
void machine_read_line(const char *path, char *line, size_t capacity);

#endif
