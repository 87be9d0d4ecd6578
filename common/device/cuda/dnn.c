/* dnn.c: convolutions by cuDNN, in builds that have it.
 *
 * This is cuDNN's older interface, one function per pass, which cuDNN 9 still has beside the graphs
 * of operations that are to succeed it. A graph's gain is in fusing operations, and here is nothing
 * to fuse; its price is several times the code.
 *
 * Which algorithm is best is asked of cuDNN's heuristics once per pass, precision and window, and
 * kept (a plan). Only algorithms that give the same result every time are taken: some are faster by
 * adding atomically, in the order in which the blocks of the GPU happen to run. Nor are algorithms
 * taken whose transforms lose accuracy, in float32. cuDNN may refuse to run an algorithm that its
 * queries offered, so each candidate is run once before it becomes the plan. If none is left, there
 * is no plan, and conv.cu convolves by im2col. Every refusal is told on stderr, once.
 *
 * All three tensors are float32 with the channels first, or in 16 bits with the channels last (it
 * is what tensor cores read). Sums are in float32. A convolution that cuDNN refuses in one order
 * of channels is not tried in the other, which would cost two transposed copies: im2col needs none.
 */
#include <cudnn.h>

#include <limits.h>

#include "common/base/memory.h"
#include "common/device/cuda/allocator.h"
#include "common/device/cuda/kernels.h"
#include "common/device/plan_cache.h"

#define CUDNN(call) cudnn_check((call), #call, __FILE__, __LINE__)

static void cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line) {
    if (status != CUDNN_STATUS_SUCCESS)
        check_failed(file, line, call, "cuDNN: %s", cudnnGetErrorString(status));
}

// The key of a plan: fields of one size, so that there is no padding.
typedef struct Key {
    uint64_t pass, precision, tf32;
    uint64_t n, c, h, w, k, kernel, stride, pad, oh, ow; // Window
} Key;

struct ConvolutionPlan {
    ConvolutionPass pass;
    Precision precision;
    Window window;
    cudnnTensorDescriptor_t x, y; // and of their gradients
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t convolution;
    bool exact; // float32 without TF32: no answer may bring it in
    bool possible;
    int algorithm; // cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t or ...BwdFilterAlgo_t
    cudnnMathType_t math;
    size_t scratch;      // bytes for cuDNN
    size_t a, b, result; // elements of the three tensors, in the order of a call
};

struct CudaConvolutions {
    cudnnHandle_t handle;
    PlanCache *plans; // of ConvolutionPlan, by Key
};

static void close_plan(void *memory) {
    ConvolutionPlan *plan = memory;
    CUDNN(cudnnDestroyTensorDescriptor(plan->x));
    CUDNN(cudnnDestroyTensorDescriptor(plan->y));
    CUDNN(cudnnDestroyFilterDescriptor(plan->weight));
    CUDNN(cudnnDestroyConvolutionDescriptor(plan->convolution));
    free(plan);
}

CudaConvolutions *cuda_convolutions_create(CudaDevice *cuda) {
    CudaConvolutions *convolutions = memory_zalloc(sizeof *convolutions);
    CUDNN(cudnnCreate(&convolutions->handle));
    CUDNN(cudnnSetStream(convolutions->handle, cuda->compute));
    convolutions->plans = plan_cache_create(sizeof(Key), close_plan);
    return convolutions;
}

void cuda_convolutions_close(CudaConvolutions *convolutions) {
    if (!convolutions) return;
    plan_cache_close(convolutions->plans);
    CUDNN(cudnnDestroy(convolutions->handle));
    free(convolutions);
}

void cuda_convolution_describe(char *buffer, size_t capacity) {
    size_t version = cudnnGetVersion();
    snprintf(buffer, capacity, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
}

// ---- in words --------------------------------------------------------------------------------

enum { PLAN_TEXT = 96 }; // bytes that the description of a plan needs

// The algorithms have numbers of their own in each pass.
static const struct {
    const char *name;
    const char *algorithms[8];
    int exact[2]; // sum as an exact product does
    int winograd; // stores its transformed factors in 16 bits again, if they are
} passes[] = {
    [CONVOLUTION_FORWARD] = {"convolution",
                             {"IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT",
                              "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"},
                             {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM},
                             CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED},
    [CONVOLUTION_INPUT_GRADIENT] = {"convolution's input gradient",
                                    {"ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD",
                                     "WINOGRAD_NONFUSED"},
                                    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
                                     CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
                                    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED},
    [CONVOLUTION_WEIGHT_GRADIENT] = {"convolution's weight gradient",
                                     {"ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD",
                                      "WINOGRAD_NONFUSED", "FFT_TILING"},
                                     {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
                                      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
                                     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED},
};

static void describe_choice(const ConvolutionPlan *plan, char *buffer, size_t capacity) {
    static const char *const maths[] = {"default math", "tensor cores", "tensor cores, narrowed",
                                        "FMA"};
    size_t math = (size_t)plan->math, i = (size_t)plan->algorithm;
    const char *name = i < 8 ? passes[plan->pass].algorithms[i] : NULL;
    snprintf(buffer, capacity, "cuDNN's %s (channels %s, %s)", name ? name : "?",
             plan->precision == PRECISION_F32 ? "first" : "last", math < 4 ? maths[math] : "?");
}

void cuda_convolution_plan_describe(const ConvolutionPlan *plan, char *buffer, size_t capacity) {
    if (plan)
        describe_choice(plan, buffer, capacity);
    else
        snprintf(buffer, capacity, "im2col");
}

// ---- one pass --------------------------------------------------------------------------------

static void find_counts(ConvolutionPlan *plan) {
    const Window *v = &plan->window;
    size_t x = v->n * v->c * v->h * v->w, y = v->n * v->k * v->oh * v->ow;
    size_t weight = v->k * v->c * v->kernel * v->kernel;
    plan->a = plan->pass == CONVOLUTION_INPUT_GRADIENT ? weight : x;
    plan->b = plan->pass == CONVOLUTION_FORWARD ? weight : y;
    plan->result = plan->pass == CONVOLUTION_FORWARD          ? y
                   : plan->pass == CONVOLUTION_INPUT_GRADIENT ? x
                                                              : weight;
}

static void describe_tensors(ConvolutionPlan *plan) {
    const Window *v = &plan->window;
    cudnnDataType_t type = plan->precision == PRECISION_BF16  ? CUDNN_DATA_BFLOAT16
                           : plan->precision == PRECISION_F16 ? CUDNN_DATA_HALF
                                                              : CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t order =
        plan->precision == PRECISION_F32 ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
    int n = (int)v->n, c = (int)v->c, k = (int)v->k, kernel = (int)v->kernel;
    CUDNN(cudnnSetTensor4dDescriptor(plan->x, order, type, n, c, (int)v->h, (int)v->w));
    CUDNN(cudnnSetTensor4dDescriptor(plan->y, order, type, n, k, (int)v->oh, (int)v->ow));
    CUDNN(cudnnSetFilter4dDescriptor(plan->weight, type, order, k, c, kernel, kernel));
}

// out = the product + old out
static cudnnStatus_t convolve(cudnnHandle_t handle, const ConvolutionPlan *p, const void *a,
                              const void *b, float old, void *out, void *scratch) {
    const float one = 1;
    if (p->pass == CONVOLUTION_FORWARD)
        return cudnnConvolutionForward(handle, &one, p->x, a, p->weight, b, p->convolution,
                                       (cudnnConvolutionFwdAlgo_t)p->algorithm, scratch, p->scratch,
                                       &old, p->y, out);
    if (p->pass == CONVOLUTION_INPUT_GRADIENT)
        return cudnnConvolutionBackwardData(handle, &one, p->weight, a, p->y, b, p->convolution,
                                            (cudnnConvolutionBwdDataAlgo_t)p->algorithm, scratch,
                                            p->scratch, &old, p->x, out);
    return cudnnConvolutionBackwardFilter(handle, &one, p->x, a, p->y, b, p->convolution,
                                          (cudnnConvolutionBwdFilterAlgo_t)p->algorithm, scratch,
                                          p->scratch, &old, p->weight, out);
}

// ---- the choice of an algorithm --------------------------------------------------------------

enum { CANDIDATES = 16 }; // more than any pass has
// bytes; an algorithm that needs more is not used, even if it is faster
static const size_t SCRATCH_MOST = (size_t)512 << 20;

typedef struct Candidate {
    int algorithm;
    cudnnMathType_t math;
} Candidate;

// Appends the deterministic algorithms among answers[found] to candidates. A macro, because cuDNN
// has another type of answer for each of the three passes.
#define KEEP_DETERMINISTIC(answers, found, candidates, count) \
    for (int i = 0; i < (found); i++)                         \
        if ((answers)[i].status == CUDNN_STATUS_SUCCESS &&    \
            (answers)[i].determinism == CUDNN_DETERMINISTIC)  \
            (candidates)[(count)++] = (Candidate) {           \
                (int)(answers)[i].algo, (answers)[i].mathType \
            }

// Best first; returns how many.
static int ask_candidates(cudnnHandle_t handle, const ConvolutionPlan *p,
                          Candidate candidates[CANDIDATES]) {
    int found = 0, count = 0;
    if (p->pass == CONVOLUTION_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t answers[CANDIDATES];
        if (cudnnGetConvolutionForwardAlgorithm_v7(handle, p->x, p->weight, p->convolution, p->y,
                                                   CANDIDATES, &found, answers))
            return 0;
        KEEP_DETERMINISTIC(answers, found, candidates, count);
    } else if (p->pass == CONVOLUTION_INPUT_GRADIENT) {
        cudnnConvolutionBwdDataAlgoPerf_t answers[CANDIDATES];
        if (cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p->weight, p->y, p->convolution,
                                                        p->x, CANDIDATES, &found, answers))
            return 0;
        KEEP_DETERMINISTIC(answers, found, candidates, count);
    } else {
        cudnnConvolutionBwdFilterAlgoPerf_t answers[CANDIDATES];
        if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p->x, p->y, p->convolution,
                                                          p->weight, CANDIDATES, &found, answers))
            return 0;
        KEEP_DETERMINISTIC(answers, found, candidates, count);
    }
    return count;
}

static cudnnStatus_t ask_scratch(cudnnHandle_t handle, const ConvolutionPlan *p, int algorithm,
                                 size_t *bytes) {
    if (p->pass == CONVOLUTION_FORWARD)
        return cudnnGetConvolutionForwardWorkspaceSize(handle, p->x, p->weight, p->convolution,
                                                       p->y, (cudnnConvolutionFwdAlgo_t)algorithm,
                                                       bytes);
    if (p->pass == CONVOLUTION_INPUT_GRADIENT)
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            handle, p->weight, p->y, p->convolution, p->x, (cudnnConvolutionBwdDataAlgo_t)algorithm,
            bytes);
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(
        handle, p->x, p->y, p->convolution, p->weight, (cudnnConvolutionBwdFilterAlgo_t)algorithm,
        bytes);
}

// "Deterministic" is not "accurate": Winograd's and Fourier's transforms lose digits, in float32
// more than the 1e-6 that is asked of an exact product.
static bool is_accurate(const ConvolutionPlan *p, int algorithm) {
    const int *exact = passes[p->pass].exact;
    if (p->exact) return algorithm == exact[0] || algorithm == exact[1];
    return p->precision == PRECISION_F32 || algorithm != passes[p->pass].winograd;
}

static void set_math(ConvolutionPlan *plan, cudnnMathType_t math) {
    plan->math = math;
    CUDNN(cudnnSetConvolutionMathType(plan->convolution, math));
}

// The memory of a plan's trial run: its three tensors and cuDNN's scratch.
typedef struct TrialMemory {
    void *a, *b, *result, *scratch;
    size_t bytes;
} TrialMemory;

static TrialMemory trial_split(const ConvolutionPlan *plan, void *memory) {
    TrialMemory trial = {0};
    size_t bytes = plan->precision == PRECISION_F32 ? sizeof(float) : sizeof(uint16_t);
    trial.scratch = cuda_part(memory, &trial.bytes, plan->scratch);
    trial.a = cuda_part(memory, &trial.bytes, plan->a * bytes);
    trial.b = cuda_part(memory, &trial.bytes, plan->b * bytes);
    trial.result = cuda_part(memory, &trial.bytes, plan->result * bytes);
    return trial;
}

// Runs the plan once over zeros, in memory that is given back: NULL, or why it cannot be run.
static const char *try_plan(const CudaDevice *cuda, cudnnHandle_t handle, ConvolutionPlan *plan) {
    cudnnStatus_t status = ask_scratch(handle, plan, plan->algorithm, &plan->scratch);
    if (status != CUDNN_STATUS_SUCCESS) return cudnnGetErrorString(status);
    if (plan->scratch > SCRATCH_MOST) return "it wants more than 512 MiB of scratch";
    size_t bytes = trial_split(plan, NULL).bytes;
    void *memory = cuda_allocator_take(cuda->allocator, bytes);
    if (!memory) return "the GPU has no memory to try it";
    CUDA(cudaMemsetAsync(memory, 0, bytes, cuda->compute));
    TrialMemory trial = trial_split(plan, memory);
    bool adds = plan->pass != CONVOLUTION_FORWARD;
    status = convolve(handle, plan, trial.a, trial.b, adds ? 1 : 0, trial.result, trial.scratch);
    cuda_wait_stream(cuda->compute);
    cuda_allocator_give_back(cuda->allocator, memory);
    return status == CUDNN_STATUS_SUCCESS ? NULL : cudnnGetErrorString(status);
}

static void tell(const ConvolutionPlan *plan, const char *algorithm, const char *why) {
    const Window *v = &plan->window;
    fprintf(stderr,
            "note: %s: the %s of [%zu, %zu, %zu, %zu], kernel %zux%zu to %zu channels, goes "
            "without %s: %s\n",
            cuda_current()->device->name, passes[plan->pass].name, v->n, v->c, v->h, v->w,
            v->kernel, v->kernel, v->k, algorithm, why);
}

// The first candidate that keeps its promises. Sets the math type for each: the
// previous candidate left its own in the descriptor.
static void choose_algorithm(const CudaDevice *cuda, cudnnHandle_t handle, ConvolutionPlan *plan) {
    Candidate candidates[CANDIDATES];
    set_math(plan, plan->exact                        ? CUDNN_FMA_MATH
                   : plan->precision == PRECISION_F32 ? CUDNN_DEFAULT_MATH
                                                      : CUDNN_TENSOR_OP_MATH);
    int count = ask_candidates(handle, plan, candidates);
    for (int i = 0; i < count && !plan->possible; i++) {
        plan->algorithm = candidates[i].algorithm;
        if (!is_accurate(plan, plan->algorithm)) continue;
        set_math(plan, plan->exact ? CUDNN_FMA_MATH : candidates[i].math);
        const char *why = try_plan(cuda, handle, plan);
        plan->possible = !why;
        if (!why) return;
        char name[PLAN_TEXT];
        describe_choice(plan, name, sizeof name);
        tell(plan, name, why);
    }
}

// ---- plans -----------------------------------------------------------------------------------

static ConvolutionPlan *plan_create(const CudaDevice *cuda, ConvolutionPass pass,
                                    Precision precision, const Window *v) {
    CHECK(!cuda->capturing, "%s meets a new convolution while it records a graph",
          cuda->device->name);
    cudnnHandle_t handle = cuda->convolutions->handle;
    ConvolutionPlan *plan = memory_zalloc(sizeof *plan);
    plan->pass = pass;
    plan->precision = precision;
    plan->window = *v;
    plan->exact = precision == PRECISION_F32 && !cuda->device->tf32;
    find_counts(plan);
    int stride = (int)v->stride, pad = (int)v->pad;
    CUDNN(cudnnCreateTensorDescriptor(&plan->x));
    CUDNN(cudnnCreateTensorDescriptor(&plan->y));
    CUDNN(cudnnCreateFilterDescriptor(&plan->weight));
    CUDNN(cudnnCreateConvolutionDescriptor(&plan->convolution));
    CUDNN(cudnnSetConvolution2dDescriptor(plan->convolution, pad, pad, stride, stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    const size_t most = INT_MAX; // cuDNN counts in int
    if (plan->a <= most && plan->b <= most && plan->result <= most) {
        describe_tensors(plan);
        choose_algorithm(cuda, handle, plan);
    }
    if (!plan->possible) tell(plan, "cuDNN", "none of its algorithms will do, im2col takes over");
    return plan;
}

const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *v) {
    const CudaDevice *cuda = cuda_current();
    bool empty = v->n * v->c * v->h * v->w == 0 || v->k * v->oh * v->ow == 0;
    if (!cuda->convolutions || empty) return NULL; // cuDNN knows no tensors without elements
    PlanCache *plans = cuda->convolutions->plans;
    Key key = {pass, precision, cuda->device->tf32, v->n,   v->c,  v->h, v->w,
               v->k, v->kernel, v->stride,          v->pad, v->oh, v->ow};
    ConvolutionPlan *plan = plan_cache_find(plans, &key);
    if (!plan) {
        plan = plan_create(cuda, pass, precision, v);
        plan_cache_add(plans, &key, plan);
    }
    return plan->possible ? plan : NULL;
}

// ---- running one -----------------------------------------------------------------------------

size_t cuda_convolution_workspace(const ConvolutionPlan *plan) {
    return plan->scratch;
}

void cuda_convolution_run(const ConvolutionPlan *plan, const void *a, const void *b, void *out,
                          bool accumulate, void *workspace) {
    cudnnHandle_t handle = cuda_current()->convolutions->handle;
    CUDNN(convolve(handle, plan, a, b, accumulate ? 1 : 0, out, workspace));
}
