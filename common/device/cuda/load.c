/* load.c: the CUDA backend as the rest of the program sees it. The backend, with CUDA's libraries,
 * is a shared object of its own (libddpc_cuda.so), because loading those takes longer and more
 * memory than all else that happens before a small training. It is loaded when a GPU is asked for
 * and the driver, which is asked first, finds one.
 */
#include <stdlib.h>

#include "common/base/shared_object.h"
#include "common/device/device_backend.h"
#include "common/device/gpu_driver.h"

// Streams that share one of the driver's queues wait for each other, and there are eight queues
// unless this says otherwise before the driver begins: 32 are the most.
static void ask_for_queues(void) {
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

const DeviceBackend *device_cuda_load(Error *err) {
    Error why = {0};
    ask_for_queues();
    const int gpus = gpu_driver_count(&why);
    if (gpus < 0 && why.status == STATUS_SKIPPED) // on other errors CUDA has a better message
        return error_null(err, why.status, "%s", why.message);
    return shared_object_find("libddpc_cuda.so", "device_cuda", err);
}
