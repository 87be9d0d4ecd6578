/* breaks.c: --break=NAME. */
#include "tutorials/breaks.h"

#include <stdbool.h>
#include <string.h>

static bool is_named(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strncmp(name, "--", 2) == 0 && strcmp(argv[i], name) == 0) return true;
        if (strncmp(argv[i], "--break=", 8) == 0 && strcmp(argv[i] + 8, name) == 0) return true;
        if (strcmp(argv[i], "--break") == 0 && i + 1 < argc && strcmp(argv[i + 1], name) == 0)
            return true;
    }
    return false;
}

int run_version(const Version *versions, size_t count, int argc, char **argv) {
    for (size_t i = 1; i < count; i++)
        if (is_named(versions[i].name, argc, argv)) return versions[i].main(argc, argv);
    return versions[0].main(argc, argv);
}
