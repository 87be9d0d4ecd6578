/* load.c: the CUDA backend as the rest of the program sees it. The backend, with CUDA's libraries,
 * is a shared object of its own (libddpc_cuda.so), because loading those takes longer and more
 * memory than all else that happens before a small training. It is loaded when a GPU is asked for
 * and the driver, which is asked first, does not say that there is none.
 *
 * This file knows nothing of CUDA's headers: of the driver's interface two functions are declared
 * here.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/shared_object.h"
#include "common/device/device_backend.h"

enum { DRIVER_SAYS_NO_DEVICE = 100 }; // CUDA_ERROR_NO_DEVICE

// -1 with err filled if the driver is missing or says that there is no GPU. If it says something
// else, CUDA's runtime knows better words for it.
static int ask_driver(Error *err) {
    int (*initialize)(unsigned flags) = NULL, (*count_devices)(int *count) = NULL;
    int count = 0;
    void *driver = dlopen(CUDA_DRIVER, RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
    if (driver && (symbol = dlsym(driver, "cuInit")))
        memcpy(&initialize, &symbol, sizeof initialize); // ISO C has no cast for it
    if (driver && (symbol = dlsym(driver, "cuDeviceGetCount")))
        memcpy(&count_devices, &symbol, sizeof count_devices);
    if (!initialize || !count_devices)
        return error_set(err, STATUS_SKIPPED, "no GPU here (CUDA: there is no driver)");
    int status = initialize(0);
    if (status == 0) status = count_devices(&count);
    if (status == DRIVER_SAYS_NO_DEVICE || (status == 0 && count == 0))
        return error_set(err, STATUS_SKIPPED, "no GPU here (CUDA: the driver finds no device)");
    return 0;
}

// Streams that share one of the driver's queues wait for each other, and there are eight queues
// unless this says otherwise before the driver begins: 32 are the most.
static void ask_for_queues(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

const DeviceBackend *device_cuda_load(Error *err) {
    ask_for_queues();
    if (ask_driver(err) != 0) return NULL;
    return shared_object_find("libddpc_cuda.so", "device_cuda", err);
}
