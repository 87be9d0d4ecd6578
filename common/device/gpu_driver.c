/* gpu_driver.c: see gpu_driver.h. CUDA's headers may be missing here, so the two functions of the
 * driver's interface are declared in this file. CUDA_DRIVER (CMake) is the library's name.
 */
#include "common/device/gpu_driver.h"

#include <dlfcn.h>
#include <string.h>

enum { DRIVER_SAYS_NO_DEVICE = 100 }; // CUDA_ERROR_NO_DEVICE

int gpu_driver_count(Error *err) {
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
    if (status == DRIVER_SAYS_NO_DEVICE || (status == 0 && count < 1))
        return error_set(err, STATUS_SKIPPED, "no GPU here (CUDA: the driver finds no device)");
    if (status == 0) return count;
    return error_set(err, STATUS_FAILED,
                     "the GPUs cannot be counted: the CUDA driver's error is %d", status);
}
