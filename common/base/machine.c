/* machine.c: see machine.h. */
#include "common/base/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void machine_name(char *name, size_t capacity) {
    if (gethostname(name, capacity) != 0 || !name[0]) snprintf(name, capacity, "?");
    name[capacity - 1] = '\0'; // a truncated name may lack its NUL
}

void machine_boot_id(char *id, size_t capacity) {
    machine_read_line("/proc/sys/kernel/random/boot_id", id, capacity);
}

void machine_read_line(const char *path, char *line, size_t capacity) {
    snprintf(line, capacity, "?");
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (fgets(line, (int)capacity, file)) line[strcspn(line, "\n")] = '\0';
    fclose(file);
}
