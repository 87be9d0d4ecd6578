/* backends.c: the list of backends. A new backend is one more entry here and its own files; no
 * other file depends on which backends are compiled in.
 */
#include "ddp/group/backends.h"

#include <string.h>

static const PgOpener *const openers[] = {&pg_opener_shm, &pg_opener_mpi, &pg_opener_nccl};
enum { OPENERS = sizeof openers / sizeof *openers };

static bool fits(const PgOpener *opener, const Device *device) {
    const bool on_host = !device || device_is_addressable(device);
    return opener->accesses_gpus != on_host;
}

static const PgOpener *find_fitting(const Device *device, Error *err) {
    const char *needed = "none";
    for (int i = 0; i < OPENERS; i++) {
        if (!fits(openers[i], device)) continue;
        if (openers[i]->built) return openers[i];
        needed = openers[i]->name;
    }
    return error_null(err, STATUS_SKIPPED, "%s needs backend %s, which is not built in",
                      device->name, needed);
}

// Sets the error of a backend that cannot open a group for this device. Returns NULL.
static const PgOpener *refuse(const PgOpener *opener, const Device *device, Error *err) {
    if (!opener->built)
        return error_null(err, STATUS_SKIPPED, "backend %s is not built in (%s)", opener->name,
                          opener->needs);
    if (opener->accesses_gpus)
        return error_null(err, STATUS_USAGE, "backend %s is for GPUs: use --device cuda, not %s",
                          opener->name, device ? device->name : "the host's memory");
    return error_null(err, STATUS_USAGE,
                      "backend %s cannot reach the memory of %s: use --backend nccl", opener->name,
                      device->name);
}

const PgOpener *pg_backend_find(const char *name, const Device *device, Error *err) {
    char known[64] = "auto";
    if (strcmp(name, "auto") == 0) return find_fitting(device, err);
    for (int i = 0; i < OPENERS; i++) {
        const PgOpener *opener = openers[i];
        strcat(strcat(known, ", "), opener->name);
        if (strcmp(name, opener->name) != 0) continue;
        return opener->built && fits(opener, device) ? opener : refuse(opener, device, err);
    }
    return error_null(err, STATUS_USAGE, "unknown backend '%s': known are %s", name, known);
}

const PgOpener *pg_backend_of_starter(void) {
    for (int i = 0; i < OPENERS; i++)
        if (openers[i]->started && openers[i]->started()) return openers[i];
    return NULL;
}
