/* device.h: what the files of the CUDA backend share, and what ddp/group/nccl/pg_nccl.c needs of
 * it. Nobody else includes it.
 *
 * A Device has two streams. All that is asked of it goes to the compute stream, in order; uploads
 * and collectives run beside it on the others, and events say what waits for what. There is no
 * other order: nothing here uses the legacy default stream, which would wait for all others.
 *
 * The kernels (kernels_cuda*.cu) have no device among their arguments, as the CPU's have none. They
 * ask cuda_current, which device_kernels sets, as CUDA itself keeps a current device per thread.
 */
#ifndef COMMON_DEVICE_CUDA_DEVICE_H
#define COMMON_DEVICE_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "common/base/error.h"
#include "common/device/device.h"

// Ends the program with file, line, the call and CUDA's words: for what only a bug or a broken
// device makes fail.
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)
void cuda_check(cudaError_t status, const char *call, const char *file, int line);

typedef struct CudaPlans CudaPlans;               // cuBLASLt (blas.c)
typedef struct CudaConvolutions CudaConvolutions; // cuDNN (dnn.c); NULL: im2col
typedef struct CudaAllocator CudaAllocator;       // allocator.h
typedef struct CudaStaging CudaStaging;           // copy.c

typedef struct CudaDevice {
    Device *device;
    int ordinal; // CUDA's number of the card
    int processors;
    int capability; // 10 major + minor: 90
    cudaStream_t compute, upload, communication;
    CudaAllocator *allocator;
    CudaPlans *plans;
    CudaConvolutions *convolutions;
    // For kernels that need room between two launches; grows, and belongs to the compute stream.
    void *workspace;
    size_t workspace_bytes;
    unsigned *arrived; // [1], device memory, 0 between kernels: reduce.cuh's
    bool capturing;
    double wait_s; // the longest that the host waits for it at a time
    // copy.c: where another stream is to begin, the pinned memory that copies from and
    // to the host pass through, and the cards whose memory this one has asked to reach.
    cudaEvent_t moment;
    CudaStaging *staging;
    bool *peer_asked; // [cards]
} CudaDevice;

// The thread's current device, in the sense of device_kernels. Never NULL inside a kernel function.
CudaDevice *cuda_current(void);
// This Device's, which becomes the thread's current one.
CudaDevice *cuda_enter(const Device *device);
// Room of the current device that is the caller's until the next call. Contents undefined. Never
// NULL.
void *cuda_workspace(CudaDevice *cuda, size_t bytes);

// Waits for the event or stream by polling, so that a communicator that is aborted meanwhile ends
// it. Ends the program after the current device's wait_s, or at CUDA's first error.
void cuda_wait_event(cudaEvent_t event);
void cuda_wait_stream(cudaStream_t stream);

// ---- copy.c: these entries of the backend's table, and what they need ----
CudaStaging *cuda_staging_create(void);
void cuda_staging_close(CudaStaging *staging);
void *cuda_event_create(Device *device);
void cuda_event_close(Device *device, void *event);
void cuda_event_record(Device *device, void *event);
void cuda_event_wait(Device *device, void *event);
void cuda_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes);
void cuda_upload(Device *device, void *destination, const void *source, size_t bytes,
                 void *free_event, void *done_event);
void cuda_download(Device *device, void *destination, const void *source, size_t bytes,
                   void *done_event);

// ---- blas.c ----
CudaPlans *cuda_plans_create(void);
void cuda_plans_close(CudaPlans *plans);
// ---- dnn.c, in builds with cuDNN; otherwise NULL ----
CudaConvolutions *cuda_convolutions_create(CudaDevice *cuda);
void cuda_convolutions_close(CudaConvolutions *convolutions);

#endif
