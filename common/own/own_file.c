/* own_file.c: see own_file.h. */
#include "common/own/own_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"

// Whether the file begins as a shared object does; -1 with err filled.
static int is_object(const char *path, Error *err) {
    char begin[4] = "";
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return -1;
    bool is = fread(begin, 1, sizeof begin, file) == sizeof begin && !memcmp(begin, "\177ELF", 4);
    fclose(file);
    if (is || format_ends_with(path, ".c")) return is;
    return error_set(err, STATUS_USAGE, "%s: is neither C source (FILE.c) nor a shared object",
                     format_quote(path).text);
}

// Returns the checked table in the loaded object, or NULL with err filled.
static const void *checked_table(void *object, const char *path, const char *symbol, int version,
                                 size_t size, Error *err) {
    const void *table = dlsym(object, symbol);
    if (!table) return error_null(err, STATUS_USAGE, "%s: %s", path, dlerror());
    int its;
    memcpy(&its, table, sizeof its);
    if (its != version)
        return error_null(err, STATUS_USAGE,
                          "%s: %s has version %d, this program runs version %d -- begin the table "
                          "with the version of the header",
                          path, symbol, its, version);
    void (*function)(void);
    for (size_t i = 1; i < size / sizeof function; i++) {
        memcpy(&function, (const char *)table + i * sizeof function, sizeof function);
        if (!function)
            return error_null(err, STATUS_USAGE, "%s: function %zu of %s is NULL", path, i, symbol);
    }
    return table;
}

// Loads the shared object `object`, made from `path`.
static const void *load(const char *object, const char *path, const char *symbol, int version,
                        size_t size, Error *err) {
    if (own_symbols_check(object, path, symbol, err) != 0) return NULL;
    void *loaded = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (loaded) return checked_table(loaded, path, symbol, version, size, err);
    const char *reason = dlerror(), *missing = strstr(reason, "undefined symbol: ");
    if (!missing) return error_null(err, STATUS_USAGE, "%s: cannot be loaded: %s", path, reason);
    return error_null(err, STATUS_USAGE,
                      "%s: calls %s, which is neither public nor in the C library", path,
                      missing + strlen("undefined symbol: "));
}

const void *own_file_load(const char *path, const char *symbol, int version, size_t size,
                          Error *err) {
    char real[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    int is = is_object(path, err);
    if (is < 0) return NULL;
    if (is && strlen(path) < sizeof real - 2) { // dlopen searches for a name without a slash
        snprintf(real, sizeof real, "%s%s", strchr(path, '/') ? "" : "./", path);
        return load(real, path, symbol, version, size, err);
    }
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ddpc-own-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return error_null(err, STATUS_USAGE, "%s: cannot be compiled: no folder %s: %s", path,
                          folder, strerror(errno));
    const void *table = NULL;
    if (snprintf(real, sizeof real, "%s/own.so", folder) < (int)sizeof real &&
        own_compile(path, real, err) == 0)
        table = load(real, path, symbol, version, size, err);
    (void)unlink(real);
    (void)rmdir(folder);
    return table;
}

int own_file_failed(const char *symbol, const char *function, Error *err) {
    return error_set(err, STATUS_FAILED, "%s.%s failed and did not say why", symbol, function);
}
