/* dnn.c: convolutions by cuDNN, in builds that have it.
 *
 * This is cuDNN's older interface, one function per pass, which cuDNN 9 still has beside the graphs
 * of operations that are to succeed it. A graph's gain is in fusing operations, and here is nothing
 * to fuse; its price is several times the code.
 *
 * Which algorithm is best is asked of cuDNN's heuristics once per pass, precision and window, and
 * kept (a plan). Only algorithms that give the same result every time are taken: some are faster by
 * adding atomically, in whatever order the blocks of the GPU come. If none is left, there is no
 * plan, and conv.cu convolves by im2col.
 *
 * In 16 bits all three tensors are narrow for cuDNN: the factors are narrowed into the workspace,
 * with the channels last if cuDNN has a way for that (it is what tensor cores read), and
 * layout.cu takes the result from there to its place. Sums are in float32.
 */
#include <cudnn.h>

#include <limits.h>

#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"
#include "common/device/plan_cache.h"

#define CUDNN(call) cudnn_check((call), #call, __FILE__, __LINE__)

static void cudnn_check(cudnnStatus_t status, const char *call, const char *file, int line) {
    if (status != CUDNN_STATUS_SUCCESS)
        check_failed(file, line, call, "cuDNN: %s", cudnnGetErrorString(status));
}

// What a plan is found by: fields of one size, so that there is no padding.
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
    bool possible;
    bool channels_last;
    int algorithm;  // cudnnConvolutionFwdAlgo_t, ...BwdDataAlgo_t or ...BwdFilterAlgo_t
    size_t scratch; // bytes for cuDNN
    CudaImages a, b, result;
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

// ---- the choice of an algorithm --------------------------------------------------------------

enum { CANDIDATES = 16 };                           // more than any pass has
static const size_t SCRATCH_MOST = (size_t)1 << 29; // bytes: what is faster is not worth more

typedef struct Candidate {
    int algorithm;
    cudnnMathType_t math;
} Candidate;

// Each of the three passes has types of its own for the same answer.
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

// Without TF32, no answer may bring it in.
static void choose_algorithm(cudnnHandle_t handle, ConvolutionPlan *plan, bool exact) {
    Candidate candidates[CANDIDATES];
    int count = ask_candidates(handle, plan, candidates);
    for (int i = 0; i < count && !plan->possible; i++) {
        cudnnMathType_t math = exact ? CUDNN_FMA_MATH : candidates[i].math;
        CUDNN(cudnnSetConvolutionMathType(plan->convolution, math));
        plan->algorithm = candidates[i].algorithm;
        plan->possible =
            ask_scratch(handle, plan, plan->algorithm, &plan->scratch) == CUDNN_STATUS_SUCCESS &&
            plan->scratch <= SCRATCH_MOST;
    }
}

// ---- plans -----------------------------------------------------------------------------------

static void find_shapes(ConvolutionPlan *plan) {
    const Window *v = &plan->window;
    CudaImages x = {v->n, v->c, v->h * v->w}, y = {v->n, v->k, v->oh * v->ow};
    CudaImages weight = {v->k, v->c, v->kernel * v->kernel};
    plan->a = plan->pass == CONVOLUTION_INPUT_GRADIENT ? weight : x;
    plan->b = plan->pass == CONVOLUTION_FORWARD ? weight : y;
    plan->result = plan->pass == CONVOLUTION_FORWARD          ? y
                   : plan->pass == CONVOLUTION_INPUT_GRADIENT ? x
                                                              : weight;
}

static size_t count_of(const CudaImages *images) {
    return images->n * images->c * images->inner;
}

static void describe_tensors(ConvolutionPlan *plan, bool channels_last) {
    const Window *v = &plan->window;
    cudnnDataType_t type = plan->precision == PRECISION_BF16  ? CUDNN_DATA_BFLOAT16
                           : plan->precision == PRECISION_F16 ? CUDNN_DATA_HALF
                                                              : CUDNN_DATA_FLOAT;
    cudnnTensorFormat_t order = channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    int n = (int)v->n, c = (int)v->c, k = (int)v->k, kernel = (int)v->kernel;
    plan->channels_last = channels_last;
    CUDNN(cudnnSetTensor4dDescriptor(plan->x, order, type, n, c, (int)v->h, (int)v->w));
    CUDNN(cudnnSetTensor4dDescriptor(plan->y, order, type, n, k, (int)v->oh, (int)v->ow));
    CUDNN(cudnnSetFilter4dDescriptor(plan->weight, type, order, k, c, kernel, kernel));
}

static ConvolutionPlan *plan_create(cudnnHandle_t handle, ConvolutionPass pass, Precision precision,
                                    const Window *v, bool tf32) {
    ConvolutionPlan *plan = memory_zalloc(sizeof *plan);
    plan->pass = pass;
    plan->precision = precision;
    plan->window = *v;
    find_shapes(plan);
    bool exact = precision == PRECISION_F32 && !tf32;
    int stride = (int)v->stride, pad = (int)v->pad;
    CUDNN(cudnnCreateTensorDescriptor(&plan->x));
    CUDNN(cudnnCreateTensorDescriptor(&plan->y));
    CUDNN(cudnnCreateFilterDescriptor(&plan->weight));
    CUDNN(cudnnCreateConvolutionDescriptor(&plan->convolution));
    CUDNN(cudnnSetConvolution2dDescriptor(plan->convolution, pad, pad, stride, stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    CUDNN(cudnnSetConvolutionMathType(plan->convolution, exact ? CUDNN_FMA_MATH
                                                         : precision == PRECISION_F32
                                                             ? CUDNN_DEFAULT_MATH
                                                             : CUDNN_TENSOR_OP_MATH));
    if (precision != PRECISION_F32) {
        describe_tensors(plan, true);
        choose_algorithm(handle, plan, exact);
    }
    if (!plan->possible) {
        describe_tensors(plan, false);
        choose_algorithm(handle, plan, exact);
    }
    return plan;
}

// cuDNN counts in int, and knows no tensors without elements.
static bool fits(const Window *v) {
    const size_t most = INT_MAX;
    size_t x = v->n * v->c * v->h * v->w, y = v->n * v->k * v->oh * v->ow;
    size_t weight = v->k * v->c * v->kernel * v->kernel;
    return x > 0 && y > 0 && weight > 0 && x <= most && y <= most && weight <= most;
}

const ConvolutionPlan *cuda_convolution_plan(ConvolutionPass pass, Precision precision,
                                             const Window *v) {
    const CudaDevice *cuda = cuda_current();
    CudaConvolutions *convolutions = cuda->convolutions;
    if (!convolutions || !fits(v)) return NULL;
    bool tf32 = cuda->device->tf32;
    Key key = {pass, precision, tf32,      v->n,   v->c,  v->h, v->w,
               v->k, v->kernel, v->stride, v->pad, v->oh, v->ow};
    ConvolutionPlan *plan = plan_cache_find(convolutions->plans, &key);
    if (!plan) {
        plan = plan_create(convolutions->handle, pass, precision, v, tf32);
        plan_cache_add(convolutions->plans, &key, plan);
    }
    return plan->possible ? plan : NULL;
}

// ---- running one -----------------------------------------------------------------------------

// The caller's workspace: cuDNN's scratch, and in 16 bits the three tensors.
typedef struct Room {
    uint16_t *a, *b, *result;
    void *scratch;
    size_t bytes;
} Room;

static void *room_take(Room *room, char *memory, size_t bytes) {
    char *place = memory ? memory + room->bytes : NULL;
    room->bytes += (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return place;
}

static Room room_split(const ConvolutionPlan *plan, void *memory) {
    Room room = {0};
    room.scratch = room_take(&room, memory, plan->scratch);
    if (plan->precision == PRECISION_F32) return room;
    room.a = room_take(&room, memory, count_of(&plan->a) * sizeof *room.a);
    room.b = room_take(&room, memory, count_of(&plan->b) * sizeof *room.b);
    room.result = room_take(&room, memory, count_of(&plan->result) * sizeof *room.result);
    return room;
}

size_t cuda_convolution_workspace(const ConvolutionPlan *plan) {
    return room_split(plan, NULL).bytes;
}

// out = the product + old out
static void convolve(cudnnHandle_t handle, const ConvolutionPlan *p, const void *a, const void *b,
                     float old, void *out, void *scratch) {
    const float one = 1;
    if (p->pass == CONVOLUTION_FORWARD)
        CUDNN(cudnnConvolutionForward(handle, &one, p->x, a, p->weight, b, p->convolution,
                                      (cudnnConvolutionFwdAlgo_t)p->algorithm, scratch, p->scratch,
                                      &old, p->y, out));
    else if (p->pass == CONVOLUTION_INPUT_GRADIENT)
        CUDNN(cudnnConvolutionBackwardData(handle, &one, p->weight, a, p->y, b, p->convolution,
                                           (cudnnConvolutionBwdDataAlgo_t)p->algorithm, scratch,
                                           p->scratch, &old, p->x, out));
    else
        CUDNN(cudnnConvolutionBackwardFilter(handle, &one, p->x, a, p->y, b, p->convolution,
                                             (cudnnConvolutionBwdFilterAlgo_t)p->algorithm, scratch,
                                             p->scratch, &old, p->weight, out));
}

static void narrow(const ConvolutionPlan *plan, const float *a, const float *b, const Room *room) {
    const CudaNarrowing first = {plan->a, a, room->a}, second = {plan->b, b, room->b};
    if (plan->channels_last) {
        cuda_narrow_images(plan->precision, &first, &second);
        return;
    }
    cuda_elementwise.narrow(plan->precision, room->a, a, count_of(&plan->a));
    cuda_elementwise.narrow(plan->precision, room->b, b, count_of(&plan->b));
}

void cuda_convolution_run(const ConvolutionPlan *plan, const float *a, const float *b,
                          const float *bias, float *out, bool accumulate, void *workspace) {
    cudnnHandle_t handle = cuda_current()->convolutions->handle;
    Room room = room_split(plan, workspace);
    CudaFinish finish = {.stored = plan->precision,
                         .rounding = plan->precision,
                         .bias = bias,
                         .inner = plan->window.oh * plan->window.ow,
                         .channels = plan->window.k};
    if (plan->precision == PRECISION_F32) {
        convolve(handle, plan, a, b, accumulate ? 1 : 0, out, room.scratch);
        if (bias) cuda_finish(&finish, out, out, count_of(&plan->result));
        return;
    }
    narrow(plan, a, b, &room);
    convolve(handle, plan, room.a, room.b, 0, room.result, room.scratch);
    finish.accumulate = accumulate;
    if (plan->channels_last)
        cuda_finish_images(&finish, &plan->result, out, room.result);
    else
        cuda_finish(&finish, out, room.result, count_of(&plan->result));
}
