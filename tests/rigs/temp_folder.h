/* temp_folder.h: a folder of its own for each cmocka test that writes files.
 *
 * Use temp_folder_make and temp_folder_remove as a test's setup and teardown: *state is then the
 * folder's path.
 */
#ifndef TESTS_RIGS_TEMP_FOLDER_H
#define TESTS_RIGS_TEMP_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/memory.h"

static inline int temp_folder_make(void **state) {
    char *path = memory_format("%s/ddpc.XXXXXX", P_tmpdir);
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

static inline int temp_folder_remove_item(const char *path, const struct stat *info, int type,
                                          struct FTW *where) {
    (void)info, (void)type, (void)where;
    return remove(path);
}

static inline int temp_folder_remove(void **state) {
    int status = nftw(*state, temp_folder_remove_item, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return status;
}

// The path of a file in the test's folder; free() it.
static inline char *temp_folder_path(void **state, const char *name) {
    return memory_format("%s/%s", (const char *)*state, name);
}

#endif
