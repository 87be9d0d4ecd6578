/* backends.c: the list of kinds of devices. A new kind is one more name here and its own files: no
 * other file asks which kinds this build has.
 */
#include <string.h>

#include "common/device/device_backend.h"

static const DeviceBackend *load_cuda(Error *err) {
#ifdef WITH_CUDA
    return device_cuda_load(err);
#else
    return error_null(err, STATUS_SKIPPED, "this build has no backend \"cuda\"");
#endif
}

const DeviceBackend *backend_find(const char *kind, Error *err) {
    static const DeviceBackend *const always[] = {&device_cpu, &device_ref, &device_dry_cpu,
                                                  &device_dry_cuda};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (strcmp(always[i]->name, kind) == 0) return always[i];
    if (strcmp(kind, "cuda") == 0) return load_cuda(err);
    return error_null(err, STATUS_USAGE, "this build has no backend \"%s\"", kind);
}
