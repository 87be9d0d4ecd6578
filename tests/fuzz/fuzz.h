/* fuzz.h: what the fuzzers of the parsers share.
 *
 * Each fuzz_*.c defines LLVMFuzzerTestOneInput: it gives the bytes to one parser. Wrong is what the
 * sanitizers report (address and undefined behaviour; clang's libFuzzer adds leaks, time and
 * memory), a failed CHECK, and a parser that fails without saying why. The same files linked with
 * corpus.c instead of libFuzzer run over the inputs that are kept.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// An error has one line, and a status that fits bad input.
static inline void fuzz_check_error(const Error *err) {
    CHECK(err->status == STATUS_USAGE || err->status == STATUS_FAILED, "status %d", err->status);
    CHECK(err->message[0] != '\0' && !strchr(err->message, '\n'), "message: %s", err->message);
}

// The bytes as a string; free() it.
static inline char *fuzz_string(const uint8_t *data, size_t size) {
    char *text = memory_zalloc(size + 1);
    if (size > 0) memcpy(text, data, size);
    return text;
}

// A file in memory with these bytes, and its path. close() it.
static inline int fuzz_file(const uint8_t *data, size_t size, char path[64]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0, "no file in memory");
    CHECK(size == 0 || write(fd, data, size) == (ssize_t)size, "cannot write %zu bytes", size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

// A new folder in which each of the names is a link to the file at path. fuzz_folder_remove it.
static inline void fuzz_folder(char folder[32], const char *const *names, const char *const *paths,
                               size_t count) {
    snprintf(folder, 32, "%s/ddpc-fuzz.XXXXXX", P_tmpdir);
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < count; i++) {
        char *link = memory_format("%s/%s", folder, names[i]);
        CHECK(symlink(paths[i], link) == 0, "cannot link %s", link);
        free(link);
    }
}

static inline void fuzz_folder_remove(const char *folder, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char *link = memory_format("%s/%s", folder, names[i]);
        unlink(link);
        free(link);
    }
    rmdir(folder);
}

#endif
