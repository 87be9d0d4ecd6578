/* device.c: GPUs as devices. Here: opening one, its memory, the thread's current one, waiting,
 * and graphs. Copies and events are copy.c.
 *
 * Invariants: a thread's current CudaDevice and CUDA's current card of that thread always agree
 * (only cuda_enter sets either). Every wait of the host polls, so that it ends when something
 * goes wrong on the card, and it has a deadline.
 */
#include "common/device/cuda/device.h"

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/sync.h"
#include "common/device/cuda/allocator.h"
#include "common/device/device_backend.h"
#include "common/device/plan_cache.h"

enum {
    LEAST_CAPABILITY = 75,  // Turing (T4, 2080); bfloat16 and TF32 need 80 (device.h)
    WAIT_SECONDS = 30 * 60, // for anything that was asked of a device, unless it is told otherwise
};

void cuda_check(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) return;
    check_failed(file, line, call, "%s: %s", cudaGetErrorName(status), cudaGetErrorString(status));
}

// ---- waiting ------------------------------------------------------------------------------------

// Between two polls of the device in a wait since `start`. Ends the process at the deadline.
static void back_off(uint64_t start) {
    const CudaDevice *cuda = cuda_current();
    if ((double)(clock_ns() - start) > cuda->wait_s * 1e9) {
        Error err = {0};
        error_set(&err, STATUS_FAILED, "%s did not finish its work within %g s", cuda->device->name,
                  cuda->wait_s);
        error_exit(&err);
    }
    sync_back_off(start);
}

void cuda_wait_event(cudaEvent_t event) {
    uint64_t start = clock_ns();
    cudaError_t status;
    while ((status = cudaEventQuery(event)) == cudaErrorNotReady) back_off(start);
    cuda_check(status, "cudaEventQuery(event)", __FILE__, __LINE__);
}

void cuda_wait_stream(cudaStream_t stream) {
    uint64_t start = clock_ns();
    cudaError_t status;
    while ((status = cudaStreamQuery(stream)) == cudaErrorNotReady) back_off(start);
    cuda_check(status, "cudaStreamQuery(stream)", __FILE__, __LINE__);
}

// ---- the current device -------------------------------------------------------------------------

// As CUDA's own current card, this belongs to the thread. The number is kept beside the pointer,
// because a Device that another thread closed may have left its address to a new one.
static _Thread_local struct {
    CudaDevice *device;
    int ordinal;
} current = {NULL, -1};

CudaDevice *cuda_current(void) {
    CHECK(current.device, "a CUDA kernel was called without device_kernels");
    return current.device;
}

CudaDevice *cuda_enter(const Device *device) {
    CudaDevice *cuda = device->state;
    if (current.ordinal != cuda->ordinal) CUDA(cudaSetDevice(cuda->ordinal));
    current.ordinal = cuda->ordinal;
    current.device = cuda;
    return cuda;
}

static void enter(const Device *device) {
    cuda_enter(device);
}

// ---- opening and closing ------------------------------------------------------------------------

// How many cards there are. -1 with err saying why CUDA cannot be used.
static int count_cards(Error *err) {
    int cards = 0, driver = 0, runtime = 0;
    cudaError_t status = cudaGetDeviceCount(&cards);
    if (status == cudaSuccess && cards > 0) return cards;
    (void)cudaGetLastError();            // clears the error, which is reported here
    CUDA(cudaDriverGetVersion(&driver)); // 0: there is none
    CUDA(cudaRuntimeGetVersion(&runtime));
    if (status == cudaErrorInsufficientDriver && driver > 0)
        return error_set(err, STATUS_SKIPPED,
                         "the driver is too old: it is for CUDA %d.%d, this program for %d.%d",
                         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (driver == 0)
        return error_set(err, STATUS_SKIPPED, "no GPU here (CUDA: there is no driver)");
    if (status == cudaSuccess || status == cudaErrorNoDevice)
        return error_set(err, STATUS_SKIPPED, "no GPU here (CUDA: %s)",
                         cudaGetErrorString(cudaErrorNoDevice));
    return error_set(err, STATUS_FAILED, "CUDA cannot be used: %s", cudaGetErrorString(status));
}

static int attribute(int ordinal, enum cudaDeviceAttr which) {
    int value = 0;
    CUDA(cudaDeviceGetAttribute(&value, which, ordinal));
    return value;
}

static int capability_of(int ordinal) {
    return 10 * attribute(ordinal, cudaDevAttrComputeCapabilityMajor) +
           attribute(ordinal, cudaDevAttrComputeCapabilityMinor);
}

static int check_capability(int ordinal, Error *err) {
    int capability = capability_of(ordinal);
    if (capability >= LEAST_CAPABILITY) return 0;
    return error_set(
        err, STATUS_SKIPPED, "the GPU has compute capability %d.%d, and %d.%d is the least",
        capability / 10, capability % 10, LEAST_CAPABILITY / 10, LEAST_CAPABILITY % 10);
}

// The cards before the first one that is too old: devices are numbered without a gap.
static int available(Error *why) {
    int cards = count_cards(NULL), usable = 0;
    while (usable < cards && check_capability(usable, usable == 0 ? why : NULL) == 0) usable++;
    return usable;
}

// Checks that the card exists and can be used. Returns the number of cards, or -1 with err filled.
static int find_card(int ordinal, Error *err) {
    int cards = count_cards(err);
    if (cards < 0) return -1;
    if (ordinal >= cards)
        return error_set(err, STATUS_SKIPPED, "there %s %d GPU%s here, counted from cuda:0",
                         cards == 1 ? "is" : "are", cards, cards == 1 ? "" : "s");
    if (check_capability(ordinal, err) != 0) return -1;
    // The first call that fails where another process has the card for itself, or memory is short.
    cudaError_t status = cudaSetDevice(ordinal);
    if (status == cudaSuccess) return cards;
    (void)cudaGetLastError();
    return error_set(err, STATUS_FAILED, "the GPU cannot be used: %s", cudaGetErrorString(status));
}

static void *memory_take(void *context, size_t bytes) {
    (void)context;
    void *memory = NULL;
    cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return NULL;
    }
    cuda_check(status, "cudaMalloc(&memory, bytes)", __FILE__, __LINE__);
    return memory;
}

static void memory_give_back(void *context, void *memory) {
    (void)context;
    CUDA(cudaFree(memory));
}

static _Noreturn void out_of_memory(const CudaDevice *cuda, size_t bytes) {
    size_t free_bytes = 0, all_bytes = 0;
    CUDA(cudaMemGetInfo(&free_bytes, &all_bytes));
    Error err = {0};
    error_set(&err, STATUS_FAILED,
              "%s is out of memory: asked for %zu bytes, %zu in use, %zu held; of the card's %zu, "
              "%zu are free",
              cuda->device->name, bytes, cuda->device->bytes,
              cuda_allocator_reserved(cuda->allocator), all_bytes, free_bytes);
    error_exit(&err);
}

static void *take(CudaDevice *cuda, size_t bytes) {
    void *memory = cuda_allocator_take(cuda->allocator, bytes);
    if (!memory) out_of_memory(cuda, bytes);
    return memory;
}

cudaStream_t cuda_communication_stream_create(void) {
    cudaStream_t stream;
    int least, greatest;
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    return stream;
}

static void open_parts(CudaDevice *cuda) {
    cuda->processors = attribute(cuda->ordinal, cudaDevAttrMultiProcessorCount);
    cuda->capability = cuda->device->capability = capability_of(cuda->ordinal);
    CUDA(cudaStreamCreateWithFlags(&cuda->compute, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&cuda->upload, cudaStreamNonBlocking));
    cuda->communication = cuda_communication_stream_create();
    CUDA(cudaEventCreateWithFlags(&cuda->moment, cudaEventDisableTiming));
    cuda->allocator = cuda_allocator_create(
        (CudaMemorySource){.take = memory_take, .give_back = memory_give_back});
    const size_t counters = CUDA_ARRIVED * sizeof *cuda->arrived;
    cuda->arrived = take(cuda, counters);
    CUDA(cudaMemsetAsync(cuda->arrived, 0, counters, cuda->compute));
    cuda->staging = cuda_staging_create();
    cuda->plans = cuda_plans_create();
    cuda->convolutions = cuda_convolutions_create(cuda);
    cuda->attentions = cuda_attentions_create();
}

static int open(Device *device, Error *err) {
    int cards = find_card(device->index, err);
    if (cards < 0) return error_prefix(err, "device %s", device->name);
    current.ordinal = device->index; // find_card's doing
    current.device = NULL;
    if (device->backend->kernels->prepare(err) != 0) return -1;

    CudaDevice *cuda = memory_zalloc(sizeof *cuda);
    cuda->device = device;
    cuda->ordinal = device->index;
    cuda->wait_s = WAIT_SECONDS;
    cuda->peer_asked = memory_zalloc((size_t)cards * sizeof *cuda->peer_asked);
    device->state = cuda;
    cuda_enter(device);
    open_parts(cuda);
    return 0;
}

static void close(Device *device) {
    CudaDevice *cuda = cuda_enter(device);
    cuda_wait_stream(cuda->compute);
    cuda_wait_stream(cuda->upload);
    cuda_wait_stream(cuda->communication);
    plan_cache_close(cuda->attentions);
    cuda_convolutions_close(cuda->convolutions);
    cuda_plans_close(cuda->plans);
    cuda_staging_close(cuda->staging);
    cuda_allocator_close(cuda->allocator);
    CUDA(cudaEventDestroy(cuda->moment));
    CUDA(cudaStreamDestroy(cuda->compute));
    CUDA(cudaStreamDestroy(cuda->upload));
    CUDA(cudaStreamDestroy(cuda->communication));
    free(cuda->peer_asked);
    free(cuda);
    current.device = NULL;
}

// ---- memory -------------------------------------------------------------------------------------

// A graph holds addresses: its memory must stay allocated, and no other may be given to it.
static void check_not_capturing(const CudaDevice *cuda) {
    CHECK(!cuda->capturing, "%s takes or gives back memory while it records a graph",
          cuda->device->name);
}

static void *alloc(Device *device, size_t bytes) {
    CudaDevice *cuda = cuda_enter(device);
    check_not_capturing(cuda);
    return take(cuda, bytes);
}

static void give_back(Device *device, void *memory, size_t bytes) {
    (void)bytes;
    CudaDevice *cuda = cuda_enter(device);
    check_not_capturing(cuda);
    cuda_allocator_give_back(cuda->allocator, memory);
}

static void *host_alloc(Device *device, size_t bytes) {
    CudaDevice *cuda = cuda_enter(device);
    check_not_capturing(cuda);
    void *memory = NULL;
    cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return NULL;
    }
    cuda_check(status, "cudaHostAlloc(&memory, bytes)", __FILE__, __LINE__);
    return memory;
}

static void host_give_back(Device *device, void *memory) {
    check_not_capturing(cuda_enter(device));
    CUDA(cudaFreeHost(memory));
}

// The room that was too small is not given back before the end: a graph may have its address. At
// twice the size each time, all of them together are no larger than the last.
void *cuda_workspace(CudaDevice *cuda, size_t bytes) {
    if (bytes > cuda->workspace_bytes || !cuda->workspace) {
        size_t least = 2 * cuda->workspace_bytes;
        cuda->workspace_bytes = bytes > least ? bytes : least > 0 ? least : 1;
        cuda->workspace = take(cuda, cuda->workspace_bytes);
    }
    return cuda->workspace;
}

static void synchronize(Device *device) {
    cuda_wait_stream(cuda_enter(device)->compute); // uploads too: it has been told to wait for them
}

// ---- graphs -------------------------------------------------------------------------------------

// "Relaxed": the communicator's thread calls NCCL meanwhile, which is to be recorded as well. That
// no function allocates or waits meanwhile is checked here (check_not_capturing).
static int graph_begin(Device *device, Error *err) {
    CudaDevice *cuda = cuda_enter(device);
    CHECK(!cuda->capturing, "%s already records a graph", device->name);
    cudaError_t status = cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeRelaxed);
    cuda->capturing = status == cudaSuccess;
    if (cuda->capturing) return 0;
    (void)cudaGetLastError();
    return error_set(err, STATUS_FAILED, "%s cannot record a graph: %s", device->name,
                     cudaGetErrorString(status));
}

static void *graph_end(Device *device, Error *err) {
    CudaDevice *cuda = cuda_enter(device);
    CHECK(cuda->capturing, "%s does not record a graph", device->name);
    cuda->capturing = false;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t status = cudaStreamEndCapture(cuda->compute, &graph);
    if (status == cudaSuccess) status = cudaGraphInstantiate(&ready, graph, 0);
    if (graph) CUDA(cudaGraphDestroy(graph));
    if (status == cudaSuccess) return ready;
    (void)cudaGetLastError();
    return error_null(err, STATUS_FAILED, "%s could not record a graph: %s", device->name,
                      cudaGetErrorString(status));
}

static void graph_launch(Device *device, void *graph) {
    CudaDevice *cuda = cuda_enter(device);
    CUDA(cudaGraphLaunch(graph, cuda->compute));
}

static void graph_close(Device *device, void *graph) {
    cuda_wait_stream(cuda_enter(device)->compute); // its last launch
    CUDA(cudaGraphExecDestroy(graph));
}

const DeviceBackend device_cuda = {
    .name = "cuda",
    .kernels = &kernels_cuda,
    .available = available,
    .open = open,
    .close = close,
    .enter = enter,
    .alloc = alloc,
    .free = give_back,
    .host_alloc = host_alloc,
    .host_free = host_give_back,
    .copy = cuda_copy,
    .copy_to_all = cuda_copy_to_all,
    .copy_ahead = cuda_copy_ahead,
    .synchronize = synchronize,
    .event_create = cuda_event_create,
    .event_close = cuda_event_close,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .upload = cuda_upload,
    .download = cuda_download,
    .graph_begin = graph_begin,
    .graph_end = graph_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
};
