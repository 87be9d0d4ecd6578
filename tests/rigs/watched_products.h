/* watched_products.h: a device whose matrix products are calls of a test's function. */
#ifndef TESTS_RIGS_WATCHED_PRODUCTS_H
#define TESTS_RIGS_WATCHED_PRODUCTS_H

#include "common/device/device.h"
#include "common/device/kernels.h"

// Replaces the device's matmul until the thread ends. One device for each thread.
static inline void watch_products(Device *device, __typeof__(((MatrixKernels *)0)->matmul) matmul) {
    static _Thread_local Kernels kernels;
    static _Thread_local MatrixKernels matrix;
    kernels = *device->kernels;
    matrix = *kernels.matrix;
    matrix.matmul = matmul;
    kernels.matrix = &matrix;
    device->kernels = &kernels;
}

#endif
