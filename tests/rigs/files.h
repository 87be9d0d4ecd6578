/* files.h: reads and writes whole files and counts a folder's files. Failures end the test.
 */
#ifndef TESTS_RIGS_FILES_H
#define TESTS_RIGS_FILES_H

#include "tests/rigs/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "common/base/memory.h"

// Counts the files in the folder whose names contain `part`.
static inline size_t count_files(const char *folder, const char *part) {
    DIR *entries = opendir(folder);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(entries));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part);
    closedir(entries);
    return count;
}

// Counts this process's open descriptors, and the one of /proc/self/fd that it opens itself.
static inline int count_descriptors(void) {
    return (int)count_files("/proc/self/fd", "");
}

static inline void empty_folder(const char *folder) {
    DIR *entries = opendir(folder);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.') unlinkat(dirfd(entries), entry->d_name, 0);
    closedir(entries);
}

// Returns the path of the only file in the folder whose name contains `part`, to be freed.
static inline char *find_file(const char *folder, const char *part) {
    DIR *entries = opendir(folder);
    char *found = NULL;
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strstr(entry->d_name, part)) {
            assert_null(found);
            found = memory_format("%s/%s", folder, entry->d_name);
        }
    closedir(entries);
    assert_non_null(found);
    return found;
}

static inline char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *data = memory_zalloc((1 << 16) + 1);
    *bytes = fread(data, 1, 1 << 16, file);
    fclose(file);
    return data;
}

static inline void write_whole(const char *path, const char *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

// Asserts that a file of less than 64 KiB contains exactly this text.
static inline void check_file(const char *path, const char *wanted) {
    size_t bytes;
    char *text = read_whole(path, &bytes);
    text[bytes] = '\0';
    assert_string_equal(text, wanted);
    free(text);
}

#endif
