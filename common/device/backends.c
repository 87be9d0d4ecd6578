/* backends.c: the list of kinds of devices. A new kind is one more name here and its own files: no
 * other file asks which kinds this build has.
 */
#include <string.h>

#include "common/device/device_backend.h"

static const DeviceBackend *const backends[] = {
    &device_cpu,
    &device_ref,
#ifdef WITH_CUDA
    &device_cuda,
#endif
};

const DeviceBackend *backend_find(const char *kind, bool *known) {
    *known = strcmp(kind, "cuda") == 0;
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, kind) == 0) return backends[i];
    return NULL;
}
