/* shared_object.c: see shared_object.h. */
#include "common/base/shared_object.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

bool shared_object_own_folder(char *folder, size_t capacity) {
    Dl_info info;
    char path[PATH_MAX], *slash;
    if (dladdr(__func__, &info) == 0 || !info.dli_fname) return false;
    // For a program this is argv[0], which may be relative to an earlier working folder.
    if (!realpath(info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe", path) ||
        !(slash = strrchr(path, '/')))
        return false;
    *slash = '\0';
    int length = snprintf(folder, capacity, "%s", path);
    return length >= 0 && (size_t)length < capacity;
}

// Writes the file's path. If none of these folders has it: its plain name, for which dlopen
// searches the system's path.
static void find_file(const char *file, char path[PATH_MAX]) {
    char own[PATH_MAX] = "";
    const bool known = shared_object_own_folder(own, sizeof own);
    const char *const places[][2] = {
        {own, ""}, {own, "../lib/"}, {DDPC_BUILD_LIB, ""}, {DDPC_INSTALL_LIB, ""}};
    for (size_t i = known ? 0 : 2; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(path, PATH_MAX, "%s/%s%s", places[i][0], places[i][1], file);
        if (length > 0 && length < PATH_MAX && access(path, F_OK) == 0) return;
    }
    snprintf(path, PATH_MAX, "%s", file);
}

const void *shared_object_find(const char *file, const char *symbol, Error *err) {
    char path[PATH_MAX];
    find_file(file, path);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object) return error_null(err, STATUS_FAILED, "%s", dlerror());
    const void *found = dlsym(object, symbol);
    if (!found)
        error_set(err, STATUS_FAILED, "%s has no %s: is it of another build?", path, symbol);
    return found;
}
