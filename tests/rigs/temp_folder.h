/* temp_folder.h: a temporary folder for each cmocka test that writes files.
 *
 * Use temp_folder_make and temp_folder_remove as a test's setup and teardown: *state is then the
 * folder's path. The program ends if a test leaks a descriptor. On hosts with GPUs this is not
 * checked: their libraries keep descriptors open.
 */
#ifndef TESTS_RIGS_TEMP_FOLDER_H
#define TESTS_RIGS_TEMP_FOLDER_H

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/error.h"
#include "common/base/memory.h"

static int temp_folder_descriptors = -1; // open before the test; -1: unknown

// Returns the number of open descriptors; -1 on hosts with GPUs.
static inline int temp_folder_count(void) {
    const char *gpus = getenv("CUDA_VISIBLE_DEVICES"); // "" in CTest's tests that use no GPU
    DIR *folder = gpus && !*gpus ? opendir("/proc/self/fd") : NULL;
    int count = 0;
    if (!folder) return -1;
    for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1; // without the descriptor of this folder
}

static inline int temp_folder_make(void **state) {
    char *path = memory_format("%s/ddpc.XXXXXX", P_tmpdir);
    *state = path;
    temp_folder_descriptors = temp_folder_count();
    return mkdtemp(path) ? 0 : -1;
}

static inline int temp_folder_remove_item(const char *path, const struct stat *info, int type,
                                          struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

static inline int temp_folder_remove(void **state) {
    int status = nftw(*state, temp_folder_remove_item, 16, FTW_DEPTH | FTW_PHYS);
    int now = temp_folder_count();
    free(*state);
    CHECK(temp_folder_descriptors < 0 || now == temp_folder_descriptors,
          "%d descriptors are open, %d were before", now, temp_folder_descriptors);
    return status;
}

// Returns the path of a file in the test's folder, to be freed.
static inline char *temp_folder_path(void **state, const char *name) {
    return memory_format("%s/%s", (const char *)*state, name);
}

#endif
