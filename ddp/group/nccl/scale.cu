/* scale.cu: averages are sums, multiplied once by 1/W, as in every backend. NCCL's own average
 * multiplies each rank's part before adding, which rounds differently unless W is a power of two.
 */
#include "common/device/cuda/launch.cuh"

#include <nccl.h> // brings C++ along, so not from within

extern "C" {
#include "ddp/group/nccl/nccl_internal.h"
}

template <typename T> static __global__ void scale(T *buffer, T factor, size_t count) {
    FOR_EACH(i, count) buffer[i] *= factor;
}

void nccl_scale(const PgNccl *nccl, PgType type, void *buffer, size_t count) {
    unsigned grid = cuda_grid(nccl->cuda, count);
    double factor = 1.0 / nccl->world;
    if (count == 0) return;
    if (type == PG_F32)
        cuda_launch_on(nccl->stream, scale<float>, grid, static_cast<float *>(buffer),
                       static_cast<float>(factor), count);
    else
        cuda_launch_on(nccl->stream, scale<double>, grid, static_cast<double *>(buffer), factor,
                       count);
}
