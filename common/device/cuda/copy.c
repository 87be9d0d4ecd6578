/* copy.c: copies between a GPU, the host and other GPUs, and events.
 *
 * Copies from and to pageable host memory pass through two pinned staging buffers in turn, because
 * for pageable memory the driver decides when the call returns and whether it blocks. So a copy to
 * the device has read its source on return and may still be in flight, and a copy to the host polls
 * for its completion.
 *
 * Streams are independent. Where one must follow another, an event is recorded in the first and the
 * second waits for it on the device; the host waits for neither.
 */
#include <string.h>

#include "common/base/memory.h"
#include "common/device/cuda/device.h"

enum { PIECE = 4 << 20, PIECES = 2 };

// All later work of `second` waits for the present work of `first`, a stream of this device.
static void order(CudaDevice *cuda, cudaStream_t first, cudaStream_t second) {
    CUDA(cudaEventRecord(cuda->moment, first));
    CUDA(cudaStreamWaitEvent(second, cuda->moment, 0));
}

static void check_not_capturing(const CudaDevice *cuda, const char *what) {
    CHECK(!cuda->capturing, "%s cannot record this in a graph: %s", cuda->device->name, what);
}

// ---- events -------------------------------------------------------------------------------------

typedef struct CudaEvent {
    cudaEvent_t event;
    bool recorded; // at least once
} CudaEvent;

void *cuda_event_create(Device *device) {
    cuda_enter(device);
    CudaEvent *event = memory_zalloc(sizeof *event);
    CUDA(cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming));
    return event;
}

void cuda_event_close(Device *device, void *event) {
    CudaEvent *closed = event;
    cuda_enter(device);
    CUDA(cudaEventDestroy(closed->event));
    free(closed);
}

static void record(CudaEvent *event, cudaStream_t stream) {
    CUDA(cudaEventRecord(event->event, stream));
    event->recorded = true;
}

void cuda_event_record(Device *device, void *event) {
    CudaDevice *cuda = cuda_enter(device);
    check_not_capturing(cuda, "an event that the host may wait for");
    record(event, cuda->compute);
}

void cuda_event_wait(Device *device, void *event) {
    const CudaEvent *awaited = event;
    check_not_capturing(cuda_enter(device), "waiting");
    if (awaited->recorded) cuda_wait_event(awaited->event);
}

// ---- from and to the host -----------------------------------------------------------------------

struct CudaStaging {
    char *memory[PIECES];     // [PIECE] each, pinned
    cudaEvent_t done[PIECES]; // completion of the last copy from or to the buffer
    size_t turn;
};

CudaStaging *cuda_staging_create(void) {
    CudaStaging *staging = memory_zalloc(sizeof *staging);
    for (size_t i = 0; i < PIECES; i++) {
        CUDA(cudaHostAlloc((void **)&staging->memory[i], PIECE, cudaHostAllocDefault));
        CUDA(cudaEventCreateWithFlags(&staging->done[i], cudaEventDisableTiming));
    }
    return staging;
}

void cuda_staging_close(CudaStaging *staging) {
    if (!staging) return;
    for (size_t i = 0; i < PIECES; i++) {
        CUDA(cudaEventDestroy(staging->done[i]));
        CUDA(cudaFreeHost(staging->memory[i]));
    }
    free(staging);
}

static size_t piece_at(size_t offset, size_t bytes) {
    return bytes - offset < PIECE ? bytes - offset : PIECE;
}

static void copy_from_host(CudaDevice *cuda, char *destination, const char *source, size_t bytes) {
    CudaStaging *staging = cuda->staging;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t turn = staging->turn++ % PIECES, count = piece_at(at, bytes);
        cuda_wait_event(staging->done[turn]); // the buffer's last copy has completed
        memcpy(staging->memory[turn], source + at, count);
        CUDA(cudaMemcpyAsync(destination + at, staging->memory[turn], count, cudaMemcpyHostToDevice,
                             cuda->compute));
        CUDA(cudaEventRecord(staging->done[turn], cuda->compute));
    }
}

static void start_to_host(CudaDevice *cuda, const char *source, size_t at, size_t bytes) {
    size_t turn = at / PIECE % PIECES;
    CUDA(cudaMemcpyAsync(cuda->staging->memory[turn], source + at, piece_at(at, bytes),
                         cudaMemcpyDeviceToHost, cuda->compute));
    CUDA(cudaEventRecord(cuda->staging->done[turn], cuda->compute));
}

static void copy_to_host(CudaDevice *cuda, char *destination, const char *source, size_t bytes) {
    CudaStaging *staging = cuda->staging;
    start_to_host(cuda, source, 0, bytes);
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t turn = at / PIECE % PIECES;
        if (bytes - at > PIECE) start_to_host(cuda, source, at + PIECE, bytes); // meanwhile
        cuda_wait_event(staging->done[turn]);
        memcpy(destination + at, staging->memory[turn], piece_at(at, bytes));
    }
}

// ---- between devices ----------------------------------------------------------------------------

// Enables access to the peer's memory over the bus where the machine supports it; elsewhere CUDA
// copies through the host. On first use, because it costs memory on both cards.
static void reach_peer(CudaDevice *cuda, const CudaDevice *peer) {
    if (cuda->peer_asked[peer->ordinal]) return;
    cuda->peer_asked[peer->ordinal] = true;
    int reachable = 0;
    CUDA(cudaDeviceCanAccessPeer(&reachable, cuda->ordinal, peer->ordinal));
    if (!reachable) return;
    cuda_enter(cuda->device);
    // Fails if another Device of this card enabled it before, or if a card has too many peers, and
    // then copies pass through the host.
    if (cudaDeviceEnablePeerAccess(peer->ordinal, 0) != cudaSuccess) (void)cudaGetLastError();
}

// Enqueues a copy in the stream, the compute stream of one of the two.
static void enqueue_copy(CudaDevice *to, void *destination, CudaDevice *from, const void *source,
                         size_t bytes, cudaStream_t stream) {
    check_not_capturing(from, "a copy to another device");
    check_not_capturing(to, "a copy from another device");
    if (to->ordinal != from->ordinal) {
        reach_peer(from, to);
        reach_peer(to, from);
    }
    cuda_enter(stream == to->compute ? to->device : from->device);
    if (to->ordinal == from->ordinal)
        CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, stream));
    else
        CUDA(cudaMemcpyPeerAsync(destination, to->ordinal, source, from->ordinal, bytes, stream));
}

static void copy_between(CudaDevice *to, void *destination, CudaDevice *from, const void *source,
                         size_t bytes) {
    order(from, from->compute, to->compute);
    enqueue_copy(to, destination, from, source, bytes, to->compute);
    order(to, to->compute, from->compute);
}

// Each copy is in its destination's stream. `from` waits for all of them after the last one began:
// otherwise each copy would wait for the previous copy.
void cuda_copy_to_all(const DeviceCopy *copies, size_t count, Device *from, const void *source,
                      size_t bytes) {
    CudaDevice *sender = from->state;
    for (size_t i = 0; i < count; i++) {
        CudaDevice *to = copies[i].to->state;
        order(sender, sender->compute, to->compute);
        enqueue_copy(to, copies[i].destination, sender, source, bytes, to->compute);
    }
    for (size_t i = 0; i < count; i++) {
        CudaDevice *to = copies[i].to->state;
        order(to, to->compute, sender->compute);
    }
}

// The copy is in the sender's stream, so that the receiver's may still be busy.
void cuda_copy_ahead(Device *to, void *destination, Device *from, const void *source, size_t bytes,
                     void *free_event) {
    CudaDevice *receiver = to->state, *sender = from->state;
    const CudaEvent *unused = free_event;
    CUDA(cudaStreamWaitEvent(sender->compute, unused->event, 0));
    enqueue_copy(receiver, destination, sender, source, bytes, sender->compute);
    order(sender, sender->compute, receiver->compute);
}

void cuda_copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    CudaDevice *cuda = cuda_enter(to ? to : from);
    if (to == from) {
        CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToDevice, cuda->compute));
    } else if (to && from) {
        copy_between(cuda, destination, from->state, source, bytes);
    } else {
        check_not_capturing(cuda, "a copy from or to the host");
        if (to)
            copy_from_host(cuda, destination, source, bytes);
        else
            copy_to_host(cuda, destination, source, bytes);
    }
}

// ---- asynchronous copies ------------------------------------------------------------------------

void cuda_upload(Device *device, void *destination, const void *source, size_t bytes,
                 void *free_event, void *done_event) {
    CudaDevice *cuda = cuda_enter(device);
    const CudaEvent *unused = free_event;
    check_not_capturing(cuda, "an upload");
    // New memory may have been freed by an owner whose work on it is still pending.
    if (unused && unused->recorded)
        CUDA(cudaStreamWaitEvent(cuda->upload, unused->event, 0));
    else
        order(cuda, cuda->compute, cuda->upload);
    CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyHostToDevice, cuda->upload));
    if (done_event) record(done_event, cuda->upload);
    order(cuda, cuda->upload, cuda->compute);
}

void cuda_download(Device *device, void *destination, const void *source, size_t bytes,
                   void *done_event) {
    CudaDevice *cuda = cuda_enter(device);
    check_not_capturing(cuda, "a readback");
    CUDA(cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDeviceToHost, cuda->compute));
    if (done_event) record(done_event, cuda->compute);
}
