/* find_program.c: the file of a program's name (ddp/launch/launcher.h). */
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/options.h"
#include "ddp/launch/launcher.h"

static bool is_program(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISREG(about.st_mode) && access(path, X_OK) == 0;
}

// Searches ddprun's own folder, where the build puts all programs.
static bool find_beside_me(const char *name, char path[PATH_MAX]) {
    ssize_t bytes = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (bytes <= 0 || !*name) return false;
    path[bytes] = '\0';
    char *end = strrchr(path, '/') + 1;
    size_t room = PATH_MAX - (size_t)(end - path);
    return (size_t)snprintf(end, room, "%s", name) < room && is_program(path);
}

// The program in ddprun's folder whose name is nearest to `name`; unchanged if none is near.
static void nearest_beside_me(const char *name, char nearest[NAME_MAX + 1]) {
    char path[PATH_MAX];
    struct dirent **entries = NULL;
    size_t best = SIZE_MAX;
    if (!find_beside_me("ddprun", path)) return;
    *strrchr(path, '/') = '\0';
    int count = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        const char *entry = entries[i]->d_name;
        if (find_beside_me(entry, path) && options_nearest(name, entry, 0, &best).start)
            snprintf(nearest, NAME_MAX + 1, "%s", entry);
        free(entries[i]);
    }
    free(entries);
}

int launcher_find_program(const char *name, char path[PATH_MAX], Error *err) {
    if (strchr(name, '/')) {
        struct stat about;
        snprintf(path, PATH_MAX, "%s", name);
        if (is_program(name)) return 0;
        const char *why = stat(name, &about) != 0  ? strerror(errno)
                          : S_ISDIR(about.st_mode) ? "is a folder"
                                                   : "is not executable";
        return error_set(err, STATUS_USAGE, "cannot run %s: %s", name, why);
    }
    const char *folders = getenv("PATH");
    if (!folders) folders = "/bin:/usr/bin";
    for (const char *at = folders; *name; at++) {
        size_t length = strcspn(at, ":");
        const char *separator = length ? "/" : ""; // an empty entry is the current folder
        int bytes = snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, at, separator, name);
        if (bytes < PATH_MAX && is_program(path)) return 0;
        at += length;
        if (!*at) break;
    }
    if (find_beside_me(name, path)) return 0;
    bool here = *name && is_program(name);
    char near[NAME_MAX + 1] = "";
    if (!here) nearest_beside_me(name, near);
    return error_set(err, STATUS_USAGE,
                     "cannot run '%s': there is no such program in PATH or beside ddprun%s%s%s",
                     format_quote(name).text,
                     here    ? "; to run the one in this folder write ./"
                     : *near ? "; did you mean "
                             : "",
                     here ? name : near, *near ? "?" : "");
}
