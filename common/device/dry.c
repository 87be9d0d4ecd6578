/* dry.c: devices that count their allocations and compute nothing. "dry-cpu:0" allocates the bytes
 * of "cpu:0", "dry-cuda:0" those of "cuda:0", by the same calls in the same order.
 *
 * Memory is mapped and never touched, so it occupies no pages. Kernels and copies have no effect; a
 * copy to the host writes zeros. The functions that return the size of a workspace are those of the
 * imitated device.
 */
#include <string.h>
#include <sys/mman.h>

#include "common/base/memory.h"
#include "common/device/device_backend.h"

// ---- kernels without effect --------------------------------------------------------------------

typedef struct DryKernels { // device->state
    Device *imitated;       // returns the sizes of workspaces; computes nothing
    Kernels kernels;
    ElementwiseKernels elementwise;
    SliceKernels slices;
    MatrixKernels matrix;
    ConvolutionKernels convolution;
    NormKernels norm;
    LossKernels loss;
    PixelKernels pixels;
    TransformerKernels transformer;
    HalfKernels halves;
    OptimizerKernels optimizer;
} DryKernels;

typedef void (*AnyKernel)(void);

static void nothing(void) {}

// Fills a family of kernels, a struct of function pointers only, with `nothing`. The calling
// conventions of all supported machines let a function ignore its arguments.
static void do_nothing(void *family, size_t bytes) {
    const AnyKernel kernel = nothing;
    CHECK(bytes % sizeof kernel == 0, "a family of %zu bytes", bytes);
    for (size_t at = 0; at < bytes; at += sizeof kernel)
        memcpy((char *)family + at, &kernel, sizeof kernel);
}

static void describe(char *buffer, size_t capacity) {
    snprintf(buffer, capacity, "nothing is computed");
}

#define FAMILY(name) do_nothing(&dry->name, sizeof dry->name), dry->kernels.name = &dry->name

static DryKernels *imitate(const Kernels *of) {
    DryKernels *dry = memory_zalloc(sizeof *dry);
    dry->kernels = *of;
    dry->kernels.describe = describe;
    FAMILY(elementwise), FAMILY(slices), FAMILY(matrix), FAMILY(convolution), FAMILY(norm);
    FAMILY(loss), FAMILY(pixels), FAMILY(optimizer);
    dry->matrix.matmul_workspace = of->matrix->matmul_workspace;
    dry->matrix.relu_mask = of->matrix->relu_mask;
    dry->convolution.conv2d_workspace = of->convolution->conv2d_workspace;
    if (of->halves) {
        FAMILY(halves);
        dry->halves.conv2d_workspace = of->halves->conv2d_workspace;
        dry->halves.linear_workspace = of->halves->linear_workspace;
    }
    if (!of->transformer) return dry;
    FAMILY(transformer);
    dry->transformer.embedding_workspace = of->transformer->embedding_workspace;
    dry->transformer.attention_saved = of->transformer->attention_saved;
    dry->transformer.attention_workspace = of->transformer->attention_workspace;
    return dry;
}

// ---- the device --------------------------------------------------------------------------------

static int open(Device *device, Error *err) {
    Device *of = device_open(device->backend->name + strlen("dry-"), err);
    if (!of) return -1;
    DryKernels *dry = imitate(of->kernels);
    dry->imitated = of;
    device->state = dry;
    device->kernels = &dry->kernels;
    return 0;
}

static void close(Device *device) {
    DryKernels *dry = device->state;
    device_close(dry->imitated);
    free(dry);
}

static void enter(const Device *device) {
    const DryKernels *dry = device->state;
    dry->imitated->backend->enter(dry->imitated);
}

// The kernel rounds up to its pages, whose size the processor decides.
static size_t mapped(size_t bytes) {
    return bytes ? bytes : 1;
}

static void *promise(Device *device, size_t bytes) {
    (void)device;
    void *memory = mmap(NULL, mapped(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void take_back(Device *device, void *memory, size_t bytes) {
    (void)device;
    munmap(memory, mapped(bytes));
}

static void copy(Device *to, void *destination, Device *from, const void *source, size_t bytes) {
    (void)from, (void)source;
    if (!to) memset(destination, 0, bytes);
}

// (Designators cannot stand in parentheses.) NOLINTBEGIN(bugprone-macro-parentheses)
#define DRY_DEVICE(kind)                                                              \
    {                                                                                 \
        .name = kind, .open = open, .close = close, .enter = enter, .alloc = promise, \
        .free = take_back, .copy = copy                                               \
    }
// NOLINTEND(bugprone-macro-parentheses)

const DeviceBackend device_dry_cpu = DRY_DEVICE("dry-cpu");
const DeviceBackend device_dry_cuda = DRY_DEVICE("dry-cuda");
