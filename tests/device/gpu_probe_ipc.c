/* gpu_probe_ipc.c BYTES: whether two processes on one GPU can read each other's memory (CUDA IPC),
 * which an all-reduce without NCCL on a shared card would need. Each process exports a buffer, maps
 * the other's and adds it to its own; both check the sums.
 *
 * The first process prints one line; "not allowed here" is a valid result, as on some virtual
 * machines. The status is 77 without a GPU, 1 if a sum is wrong. The emulated GPU has no IPC.
 */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/device/cuda/device.h"

enum { TIMES = 10, DEADLINE_S = 50 };

typedef struct Offer { // sent to the other process
    cudaError_t status;
    cudaIpcMemHandle_t handle;
} Offer;

static void tell(int peer, const void *data, size_t bytes) {
    CHECK(write(peer, data, bytes) == (ssize_t)bytes, "the other process is gone");
}

static void hear(int peer, void *data, size_t bytes) {
    CHECK(recv(peer, data, bytes, MSG_WAITALL) == (ssize_t)bytes, "the other process is gone");
}

static void meet(int peer) {
    char byte = 0;
    tell(peer, &byte, 1);
    hear(peer, &byte, 1);
}

// Exchanges the status: both processes get the first failure of either.
static cudaError_t agree(int peer, cudaError_t status) {
    cudaError_t other;
    tell(peer, &status, sizeof status);
    hear(peer, &other, sizeof other);
    return status != cudaSuccess ? status : other;
}

static size_t count_wrong(const float *x, size_t count) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += x[i] != 3 * (float)(i % 1000 + 1);
    return wrong;
}

// Fills `mine`, adds it and `theirs` into `sum` TIMES times. Returns the fastest time in ms.
static double add_up(Device *device, int peer, float *mine, const float *theirs, float *sum,
                     size_t count) {
    double least = 0;
    for (int n = 0; n < TIMES; n++) {
        meet(peer);
        uint64_t start = clock_ns();
        device_kernels(device)->elementwise->add(sum, mine, theirs, count);
        device_synchronize(device);
        meet(peer);
        double ms = (double)(clock_ns() - start) / 1e6;
        if (n == 0 || ms < least) least = ms;
    }
    return least;
}

static int rank(int number, int peer, size_t bytes) {
    Error err = {0};
    alarm(DEADLINE_S);
    Device *device = device_open("cuda:0", &err);
    if (!device) error_exit(&err);
    cuda_enter(device);
    size_t count = bytes / sizeof(float);
    float *host = memory_zalloc(bytes), *mine, *sum = device_alloc(device, bytes);
    void *theirs = NULL;
    CUDA(cudaMalloc((void **)&mine, bytes)); // not pooled: a handle covers a whole allocation
    for (size_t i = 0; i < count; i++) host[i] = (float)((i % 1000 + 1) * (size_t)(number + 1));
    device_copy(device, mine, NULL, host, bytes);

    Offer offer = {0}, other;
    offer.status = cudaIpcGetMemHandle(&offer.handle, mine);
    tell(peer, &offer, sizeof offer);
    hear(peer, &other, sizeof other);
    cudaError_t status = offer.status != cudaSuccess ? offer.status : other.status;
    if (status == cudaSuccess)
        status = agree(peer,
                       cudaIpcOpenMemHandle(&theirs, other.handle, cudaIpcMemLazyEnablePeerAccess));
    size_t wrong = 0;
    if (status == cudaSuccess) {
        double ms = add_up(device, peer, mine, theirs, sum, count);
        device_copy(NULL, host, device, sum, bytes);
        wrong = count_wrong(host, count);
        CUDA(cudaIpcCloseMemHandle(theirs));
        meet(peer); // memory is freed after both have unmapped it
        if (number == 0)
            printf("%zu bytes on 2 ranks: %zu wrong, the fastest of %d took %.3f ms\n", bytes,
                   wrong, TIMES, ms);
    } else if (number == 0) {
        printf("%zu bytes: not allowed here: %s\n", bytes, cudaGetErrorString(status));
    }
    (void)cudaGetLastError();
    CUDA(cudaFree(mine));
    device_free(device, sum, bytes);
    free(host);
    device_close(device);
    return wrong ? STATUS_FAILED : STATUS_OK;
}

int main(int argc, char **argv) {
    int ends[2], status;
    CHECK(argc == 2, "usage: gpu_probe_ipc BYTES");
    size_t bytes = strtoul(argv[1], NULL, 10);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "no socket pair");
    pid_t child = fork(); // before CUDA is initialised: it does not survive a fork
    CHECK(child >= 0, "no second process");
    int number = child == 0;
    close(ends[!number]);
    int result = rank(number, ends[number], bytes);
    if (child == 0) return result;
    CHECK(waitpid(child, &status, 0) == child, "the second process is lost");
    return result ? result : WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_FAILED;
}
