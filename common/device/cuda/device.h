/* device.h: the CUDA backend's own interface, included by its files and by
 * ddp/group/nccl/pg_nccl.c only.
 *
 * A Device has three streams: compute (all kernels and copies, in the order of the calls), upload
 * and communication. Events order the streams; the legacy default stream, which synchronises with
 * all others, is not used.
 *
 * Kernel functions have no device parameter. They call cuda_current, the thread's current device,
 * set by device_kernels.
 */
#ifndef COMMON_DEVICE_CUDA_DEVICE_H
#define COMMON_DEVICE_CUDA_DEVICE_H

#include <cuda_runtime_api.h>

#include "common/base/error.h"
#include "common/device/device.h"

// Ends the program with file, line, the call and CUDA's message: for calls that fail only by a bug
// or a broken device.
#define CUDA(call) cuda_check((call), #call, __FILE__, __LINE__)
void cuda_check(cudaError_t status, const char *call, const char *file, int line);

typedef struct CudaPlans CudaPlans;               // cuBLASLt (blas.c)
typedef struct CudaConvolutions CudaConvolutions; // cuDNN (dnn.c); NULL: im2col
typedef struct CudaAllocator CudaAllocator;       // allocator.h
typedef struct CudaStaging CudaStaging;           // copy.c
typedef struct PlanCache PlanCache;               // plan_cache.h

enum { CUDA_ARRIVED = 17 }; // counters of blocks: of a grid, and of 16 groups of its blocks

typedef struct CudaDevice {
    Device *device;
    int ordinal; // CUDA's number of the card
    int processors;
    int capability; // 10 major + minor: 90
    cudaStream_t compute, upload, communication;
    CudaAllocator *allocator;
    CudaPlans *plans;
    CudaConvolutions *convolutions;
    PlanCache *attentions; // attention/choice.cu: which of two computes heads of a size
    // Scratch memory of the compute stream, shared by consecutive launches; grows.
    void *workspace;
    size_t workspace_bytes;
    unsigned *arrived; // [CUDA_ARRIVED], device memory, 0 between kernels: reduce.cuh's
    bool capturing;
    double wait_s; // deadline of a host wait
    // copy.c: the event at which another stream starts, the pinned staging memory of host
    // copies, and the cards for which peer access was requested.
    cudaEvent_t moment;
    CudaStaging *staging;
    bool *peer_asked; // [cards]
} CudaDevice;

// Returns the thread's current device, set by device_kernels; not NULL in a kernel function.
CudaDevice *cuda_current(void);
// Makes this Device the thread's current one and returns its state.
CudaDevice *cuda_enter(const Device *device);
// Returns scratch memory, valid until the next call; contents undefined; never NULL.
void *cuda_workspace(CudaDevice *cuda, size_t bytes);

// Creates a stream on the current device with the highest priority: thread blocks of a collective,
// for which other GPUs wait, are scheduled before pending blocks of the compute stream.
cudaStream_t cuda_communication_stream_create(void);

// Waits for the event or stream by polling, so that a communicator that is aborted meanwhile ends
// it. Ends the program after the current device's wait_s, or at CUDA's first error.
void cuda_wait_event(cudaEvent_t event);
void cuda_wait_stream(cudaStream_t stream);

// ---- copy.c: these entries of the backend's table, and their staging memory ----
CudaStaging *cuda_staging_create(void);
void cuda_staging_close(CudaStaging *staging);
void *cuda_event_create(Device *device);
void cuda_event_close(Device *device, void *event);
void cuda_event_record(Device *device, void *event);
void cuda_event_wait(Device *device, void *event);
void cuda_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes);
void cuda_copy_to_all(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                      size_t bytes);
void cuda_copy_ahead(Device *to, void *destination, Device *from, const void *source, size_t bytes,
                     void *free_event);
void cuda_upload(Device *device, void *destination, const void *source, size_t bytes,
                 void *free_event, void *done_event);
void cuda_download(Device *device, void *destination, const void *source, size_t bytes,
                   void *done_event);

// ---- blas.c ----
CudaPlans *cuda_plans_create(void);
void cuda_plans_close(CudaPlans *plans);
// ---- attention/choice.cu ----
PlanCache *cuda_attentions_create(void);
// ---- dnn.c, in builds with cuDNN; otherwise NULL ----
CudaConvolutions *cuda_convolutions_create(CudaDevice *cuda);
void cuda_convolutions_close(CudaConvolutions *convolutions);

#endif
