/* fuzz.h: functions shared by the parsers' fuzzers.
 *
 * Each fuzz_*.c defines LLVMFuzzerTestOneInput, which passes the bytes to one parser. Failures are
 * reports of the sanitizers (address and undefined behaviour; clang's libFuzzer adds leaks, time
 * and memory), a failed CHECK, and a parser that fails without an error message. Linked with
 * corpus.c in place of libFuzzer, the same files run over the kept inputs.
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

// An error has one line and a status that bad input may cause.
static inline void fuzz_check_error(const Error *err) {
    CHECK(err->status == STATUS_USAGE || err->status == STATUS_FAILED, "status %d", err->status);
    CHECK(err->message[0] != '\0' && !strchr(err->message, '\n'), "message: %s", err->message);
}

// Returns the bytes as a string; free() it.
static inline char *fuzz_string(const uint8_t *data, size_t size) {
    char *text = memory_zalloc(size + 1);
    if (size > 0) memcpy(text, data, size);
    return text;
}

// Creates a file in memory with these bytes and writes its path. close() the returned descriptor.
static inline int fuzz_file(const uint8_t *data, size_t size, char path[64]) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    CHECK(fd >= 0, "no file in memory");
    CHECK(size == 0 || write(fd, data, size) == (ssize_t)size, "cannot write %zu bytes", size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

// Creates a folder with a link of each name to the file at its path. Remove it with
// fuzz_folder_remove.
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
