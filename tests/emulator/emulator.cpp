/* emulator.cpp: a small CUDA that runs on the CPU, to test CUDA code where no GPU is. This file
 * holds the emulated machine's settings, its devices and errors.
 *
 * It is a library with the functions of CUDA's runtime, cuBLASLt, cuDNN and NCCL that this project
 * calls. Its headers (include/) replace NVIDIA's; the project's sources are the same for both.
 * `cmake -DWITH_CUDA=EMULATED` builds them with the emulator.
 *
 * What it checks, by being stricter than a real GPU:
 *   - order: the work of streams is executed late and in random order, constrained only by events
 *     and the order within each stream. A missing event causes wrong data (stream.cpp), also in a
 *     recorded graph (graph.cpp). Pinned memory is read and written late (copy.cpp);
 *   - memory: the host cannot access a device's memory, nor one device another's without peer
 *     access; new memory is NaN; a write past an end, a use after free, a double free and
 *     exhausted memory are errors, and memory that was never freed is reported (memory.cpp);
 *   - kernels: barriers and shuffles between threads that begin in random order; a barrier that
 *     not all threads reach ends the program with the kernel's name (kernel.cpp); shared memory
 *     is NaN when a block begins (shared.cpp);
 *   - races between a kernel's threads, in a build with -DEMULATED_RACES=ON (races/races.h);
 *   - rules: capture, devices, streams and events are refused where CUDA refuses them;
 *   - several processes: NCCL between them (nccl.cpp).
 *
 * What it cannot check:
 *   - anything about speed;
 *   - without EMULATED_RACES, the memory model of a GPU: threads take turns at barriers and
 *     shuffles only, so a race between two of them, or a missing __syncwarp, may go unnoticed;
 *   - the rounding of a GPU's math functions (expf) and fused multiply-adds;
 *   - too many registers, too much shared memory;
 *   - a kernel that receives a host pointer inside a struct; real drivers and their bugs.
 *
 * Environment variables, read at the first call (default in parentheses):
 *   DDPC_EMULATED_GPUS    number of devices, 0 to 8 (2). 0: every call fails, as without a GPU
 *   CUDA_VISIBLE_DEVICES  CUDA's own: numbers of those that the process sees, with commas (all)
 *   DDPC_EMULATED_CAPABILITY  compute capability, 10 major + minor (90). Below 80, cuBLASLt and
 *                         cuDNN refuse bfloat16 and TF32
 *   DDPC_EMULATED_MEMORY  bytes of memory of each device (1 GiB)
 *   DDPC_EMULATED_PEERS   1: devices can access each other's memory, once enabled; 0: never (1)
 *   DDPC_EMULATED_RELU_NAN  1: cuBLASLt's RELU keeps NaN; 0: it returns 0 for it (1). NVIDIA's
 *                         documentation specifies neither
 *   DDPC_EMULATED_TENSOR_CORES  1: a kernel's tensor cores have the documented layout; 0: two of a
 *                         lane's registers are exchanged (1)
 *   DDPC_EMULATED_BLAS_REFUSES  epilogues that cuBLASLt refuses (none): "epilogues": it finds no
 *                         algorithm that masks or sums gradients; "runs": it finds one, and then
 *                         refuses to run it
 *   DDPC_EMULATED_CUDNN_REFUSES  convolutions that its queries allowed and that cuDNN refuses to
 *                         run (none): "channels-last"; "preferred": IMPLICIT_PRECOMP_GEMM and
 *                         ALGO_1 of the gradients; "memory": the same, for lack of memory; "all".
 *                         Or "queries": the workspace size of the preferred algorithms is unknown
 *   DDPC_EMULATED_KERNEL_FAILS_AT  K: the process's K-th kernel fails, and from then on every call,
 *                         with cudaErrorIllegalAddress, as on a GPU (0: none)
 *   CUDA_LAUNCH_BLOCKING  CUDA's own: 1: a launch returns when the kernel has ended (0)
 *   CUDA_DEVICE_MAX_CONNECTIONS  CUDA's own: queues of a device (8). They are only counted
 *   DDPC_EMULATOR_SEED    seed of all random choices (1). 0: work runs at once and in order
 *   DDPC_EMULATOR_COUNT   1: print at the end how often each kernel and call was used (0)
 *
 * A run with one thread and one seed is repeatable unless it pauses: work for which no thread waits
 * is executed after 50 ms, because another process may need it. The emulator works with
 * AddressSanitizer, but not with ThreadSanitizer (kernels change stacks).
 */
#include <algorithm>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

#include "emulator.h"

namespace emulator {

enum { PROCESSORS = 2, RUNTIME_VERSION = 13000 };

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("cuda_emulator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static size_t setting(const char *name, size_t missing, size_t most) {
    const char *text = getenv(name);
    if (text == nullptr) return missing;
    char *end = nullptr;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value > most)
        fail("%s=%s: this should be a number up to %zu", name, text, most);
    return value;
}

// CUDA's rule: the list ends at its first entry that is not a device.
static void show_devices(Settings &settings) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    const int all = settings.devices;
    for (int i = 0; i < all; i++) settings.cards[i] = i;
    if (text == nullptr) return;
    settings.devices = 0;
    for (char *end; *text >= '0' && *text <= '9' && settings.devices < all; text = end + 1) {
        const long card = strtol(text, &end, 10);
        if (card >= all) return;
        settings.cards[settings.devices++] = static_cast<int>(card);
        if (*end != ',') return;
    }
}

static void set_refusals(Settings &settings) {
    const char *text = getenv("DDPC_EMULATED_CUDNN_REFUSES");
    std::string word = text == nullptr ? "" : text;
    settings.refuses_channels_last = word == "channels-last";
    settings.refuses_preferred = word == "preferred";
    settings.refuses_memory = word == "memory";
    settings.refuses_all = word == "all";
    settings.refuses_queries = word == "queries";
    if (word != "" && !settings.refuses_channels_last && !settings.refuses_preferred &&
        !settings.refuses_memory && !settings.refuses_all && !settings.refuses_queries)
        fail("DDPC_EMULATED_CUDNN_REFUSES=%s: no such word", text);
    text = getenv("DDPC_EMULATED_BLAS_REFUSES");
    word = text == nullptr ? "" : text;
    settings.refuses_epilogues = word == "epilogues";
    settings.breaks_epilogues = word == "runs";
    if (word != "" && !settings.refuses_epilogues && !settings.breaks_epilogues)
        fail("DDPC_EMULATED_BLAS_REFUSES=%s: no such word", text);
}

// Runs at the end of the process: reports resources that were never freed, unless the program
// failed.
static void report_leaks(int status, void *) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    r.closing = true;
    if (r.settings.count && getpid() == r.process) count_report(r);
    if (status != 0 || getpid() != r.process) return;
    size_t device = 0, pinned = 0;
    for (auto &entry : r.allocations)
        (entry.second.device == HOST ? pinned : device) += entry.second.bytes;
    size_t streams = 0;
    for (auto &stream : r.streams) streams += !stream->destroyed;
    if (device + pinned + streams + r.events.size() + r.graphs.size() > 0)
        fprintf(stderr,
                "cuda_emulator: never given back: %zu bytes of device memory, %zu bytes of pinned "
                "memory, %zu streams, %zu events, %zu graphs\n",
                device, pinned, streams, r.events.size(), r.graphs.size());
}

static Runtime *runtime_create() {
    Runtime *r = new Runtime;
    r->settings.devices = static_cast<int>(setting("DDPC_EMULATED_GPUS", 2, DEVICES_MAX));
    show_devices(r->settings);
    r->settings.memory = setting("DDPC_EMULATED_MEMORY", size_t{1} << 30, size_t{1} << 40);
    r->settings.capability = static_cast<int>(setting("DDPC_EMULATED_CAPABILITY", 90, 999));
    r->settings.peers = setting("DDPC_EMULATED_PEERS", 1, 1) != 0;
    r->settings.seed = static_cast<unsigned>(setting("DDPC_EMULATOR_SEED", 1, UINT_MAX));
    r->settings.count = setting("DDPC_EMULATOR_COUNT", 0, 1) != 0;
    r->settings.queues = setting("CUDA_DEVICE_MAX_CONNECTIONS", 8, 1000);
    r->settings.relu_nan = setting("DDPC_EMULATED_RELU_NAN", 1, 1) != 0;
    r->settings.tensor_cores = setting("DDPC_EMULATED_TENSOR_CORES", 1, 1) != 0;
    r->settings.kernel_fails_at = setting("DDPC_EMULATED_KERNEL_FAILS_AT", 0, SIZE_MAX);
    r->settings.launches_block = setting("CUDA_LAUNCH_BLOCKING", 0, 1) != 0;
    set_refusals(r->settings);
    r->random.seed(r->settings.seed);
    r->process = getpid();
    on_exit(report_leaks, nullptr);
    return r;
}

// A global, because CUDA's interface has no context object. Never destroyed: threads may still use
// it while the process ends.
Runtime &runtime() {
    static Runtime *r = runtime_create();
    return *r;
}

ThreadState &thread_state() {
    static thread_local ThreadState state;
    return state;
}

cudaError_t runtime_check(const Runtime &r) {
    if (r.settings.devices == 0) return cudaErrorNoDevice;
    return getpid() == r.process ? r.broken : cudaErrorInitializationError;
}

cudaError_t error_remember(cudaError_t error) {
    if (error != cudaSuccess) thread_state().last_error = error;
    return error;
}

static bool device_exists(const Runtime &r, int device) {
    return device >= 0 && device < r.settings.devices;
}

static void describe(const Runtime &r, struct cudaDeviceProp *p, int device) {
    *p = {};
    snprintf(p->name, sizeof p->name, "emulated GPU (runs on the CPU)");
    memcpy(p->uuid.bytes, "emulated GPU", 12);
    p->uuid.bytes[15] = static_cast<char>(r.settings.cards[device] + 1);
    p->totalGlobalMem = r.settings.memory;
    p->sharedMemPerBlock = 48 * 1024;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = r.settings.capability / 10;
    p->minor = r.settings.capability % 10;
    p->multiProcessorCount = PROCESSORS;
    p->maxThreadsPerMultiProcessor = 2048;
    p->pciBusID = r.settings.cards[device] + 1;
    p->asyncEngineCount = 2;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = 64;
    p->l2CacheSize = 1 << 20;
}

static cudaError_t attribute_of(const Runtime &r, int *value, cudaDeviceAttr attribute,
                                int device) {
    struct cudaDeviceProp p;
    describe(r, &p, device);
    const struct {
        cudaDeviceAttr attribute;
        int value;
    } table[] = {{cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
                 {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(p.sharedMemPerBlock)},
                 {cudaDevAttrWarpSize, p.warpSize},
                 {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
                 {cudaDevAttrPciBusId, p.pciBusID},
                 {cudaDevAttrPciDeviceId, p.pciDeviceID},
                 {cudaDevAttrPciDomainId, p.pciDomainID},
                 {cudaDevAttrL2CacheSize, p.l2CacheSize},
                 {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
                 {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
                 {cudaDevAttrUnifiedAddressing, p.unifiedAddressing},
                 {cudaDevAttrComputeCapabilityMajor, p.major},
                 {cudaDevAttrComputeCapabilityMinor, p.minor}};
    for (auto &entry : table)
        if (entry.attribute == attribute) {
            *value = entry.value;
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

static cudaError_t peer_change(Runtime &r, int peer, bool enable) {
    int device = thread_state().device;
    if (!device_exists(r, peer) || peer == device) return cudaErrorInvalidDevice;
    if (!r.settings.peers) return cudaErrorPeerAccessUnsupported;
    bool &enabled = r.devices[device].peers[peer];
    if (enabled == enable)
        return enable ? cudaErrorPeerAccessAlreadyEnabled : cudaErrorPeerAccessNotEnabled;
    enabled = enable;
    r.open_device = r.open_other = UNKNOWN;
    return cudaSuccess;
}

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

static const ErrorText &error_text(cudaError_t error) {
#define TEXT(name, text) \
    { name, #name, text }
    static const ErrorText texts[] = {
        TEXT(cudaErrorUnknown, "unknown error"),
        TEXT(cudaSuccess, "no error"),
        TEXT(cudaErrorInvalidValue, "invalid argument"),
        TEXT(cudaErrorMemoryAllocation, "out of memory"),
        TEXT(cudaErrorInitializationError, "initialization error"),
        TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
        TEXT(cudaErrorInsufficientDriver,
             "CUDA driver version is insufficient for CUDA runtime version"),
        TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
        TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
        TEXT(cudaErrorPeerAccessUnsupported,
             "peer access is not supported between these two devices"),
        TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
        TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
        TEXT(cudaErrorNotReady, "device not ready"),
        TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
        TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
        TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
        TEXT(cudaErrorNotSupported, "operation not supported"),
        TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
        TEXT(cudaErrorStreamCaptureInvalidated,
             "operation failed due to a previous error during capture"),
        TEXT(cudaErrorStreamCaptureMerge,
             "operation would result in a merge of separate capture sequences"),
        TEXT(cudaErrorStreamCaptureUnmatched,
             "capture was not ended in the same stream as it began"),
        TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
        TEXT(cudaErrorStreamCaptureIsolation,
             "dependency created on uncaptured work in another stream"),
        TEXT(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a "
                                     "capturing stream"),
        TEXT(cudaErrorStreamCaptureWrongThread,
             "attempt to terminate a thread-local capture sequence from another thread"),
    };
#undef TEXT
    for (auto &entry : texts)
        if (entry.error == error) return entry;
    return texts[0];
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaGetLastError(void) {
    cudaError_t error = thread_state().last_error;
    thread_state().last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return thread_state().last_error;
}
const char *cudaGetErrorName(cudaError_t error) {
    return error_text(error).name;
}
const char *cudaGetErrorString(cudaError_t error) {
    return error_text(error).text;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    return call([=](Runtime &r, Lock &) {
        *count = r.settings.devices;
        return cudaSuccess;
    });
}

// The driver API, as far as a program calls it before it loads CUDA's runtime.
extern "C" int cuInit(unsigned) {
    return runtime().settings.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

extern "C" int cuDeviceGetCount(int *count) {
    *count = runtime().settings.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return call([=](Runtime &r, Lock &) {
        if (!device_exists(r, device)) return cudaErrorInvalidDevice;
        thread_state().device = device;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int *device) {
    return call([=](Runtime &, Lock &) {
        *device = thread_state().device;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    return call([=](Runtime &r, Lock &) {
        if (!device_exists(r, device)) return cudaErrorInvalidDevice;
        describe(r, properties, device);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    return call([=](Runtime &r, Lock &) {
        return device_exists(r, device) ? attribute_of(r, value, attribute, device)
                                        : cudaErrorInvalidDevice;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int capacity, int device) {
    return call([=](Runtime &r, Lock &) {
        if (!device_exists(r, device) || capacity < 13)
            return device_exists(r, device) ? cudaErrorInvalidValue : cudaErrorInvalidDevice;
        snprintf(id, static_cast<size_t>(capacity), "0000:%02x:00.0", r.settings.cards[device] + 1);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceSynchronize(void) {
    return call([=](Runtime &r, Lock &lock) {
        int device = thread_state().device;
        for (auto &stream : r.streams)
            if (stream->device == device && stream->capture != nullptr)
                return capture_forbids_wait(r, stream.get());
        cudaError_t error = capture_forbids(r);
        if (error == cudaSuccess) run_device(r, lock, device);
        return error;
    });
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return call([=](Runtime &r, Lock &) {
        if (!device_exists(r, device) || !device_exists(r, peer)) return cudaErrorInvalidDevice;
        *can = device != peer && r.settings.peers;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    return call([=](Runtime &r, Lock &) { return peer_change(r, peer, true); });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    return call([=](Runtime &r, Lock &) { return peer_change(r, peer, false); });
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = RUNTIME_VERSION;
    return cudaSuccess;
}
