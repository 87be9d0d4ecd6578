/* dnn.cpp: cuDNN's convolutions (the legacy interface), computed by OpenBLAS over columns of pixels
 * (im2col).
 *
 * Tensors are float32, half or bfloat16, all three of one type, channels first or last; sums are
 * float32. The queries for algorithms answer like the real ones: first fast and inaccurate
 * algorithms (Winograd, FFT), then some with an undefined order of additions, some that want an
 * excessive workspace. Here the algorithms differ only in these properties: Winograd and FFT return
 * slightly wrong results, and algorithms with an undefined order differ randomly from call to call.
 * If the math type allows TF32, float32 factors are rounded to it.
 *
 * It is as strict as the real library: operands on the device, and the complete workspace (filled
 * with NaN during the call). It may also refuse convolutions that its queries allowed:
 * DDPC_EMULATED_CUDNN_REFUSES in emulator.cpp.
 */
#include <cblas.h>
#include <cstring>

#include <cudnn.h>

#include "emulator.h"
#include "numbers.h"

namespace emulator {

struct Box { // the shape of a tensor [n, c, h, w] or a filter [k, c, h, w]
    cudnnTensorFormat_t format;
    cudnnDataType_t type;
    int n, c, h, w;
};

} // namespace emulator

struct cudnnContext {
    int device;
    cudaStream_t stream;
};
struct cudnnTensorStruct : emulator::Box {};
struct cudnnFilterStruct : emulator::Box {};
struct cudnnConvolutionStruct {
    int pad, stride;
    cudnnMathType_t math;
};

namespace emulator {

enum Pass { FORWARD, DATA, FILTER };
enum : size_t { SOME = 4096, TOO_MUCH = size_t{1} << 40 }; // bytes of workspace

// An algorithm: its number and its special property.
struct Way {
    int algorithm;
    bool any_order, inaccurate;
    size_t workspace;
};

struct Convolution { // with copies of all values that the caller may change afterwards
    Pass pass;
    Box x, w, y;
    int pad, stride;
    cudnnMathType_t math;
    const Way *way;
    const void *a, *b; // the operands, in the order of the call
    void *result, *workspace;
    float alpha, beta;
};

// ---- supported convolutions --------------------------------------------------------------------

static const std::vector<Way> &ways_of(Pass pass) {
    static const std::vector<Way> ways[] = {
        {{CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, false, true, SOME},
         {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, false, true, TOO_MUCH},
         {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, false, false, SOME},
         {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, false, false, 0}},
        {{CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, true, false, 0},
         {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, false, true, SOME},
         {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, false, true, TOO_MUCH},
         {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, false, false, SOME}},
        {{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, true, false, 0},
         {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, false, true, SOME},
         {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING, false, true, TOO_MUCH},
         {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, false, false, SOME}}};
    return ways[pass];
}

static const Way *find_way(Pass pass, int algorithm) {
    for (const Way &way : ways_of(pass))
        if (way.algorithm == algorithm) return &way;
    return nullptr;
}

static size_t count_of(const Box &box) {
    return static_cast<size_t>(box.n) * static_cast<size_t>(box.c) * static_cast<size_t>(box.h) *
           static_cast<size_t>(box.w);
}

static uint32_t type_of(const Box &box) {
    return box.type == CUDNN_DATA_FLOAT  ? CUDA_R_32F
           : box.type == CUDNN_DATA_HALF ? CUDA_R_16F
                                         : CUDA_R_16BF;
}

static size_t bytes_of(const Box &box) {
    return count_of(box) * type_size(type_of(box));
}

static cudnnStatus_t check(const Convolution &v) {
    auto outputs = [&v](int in, int kernel) { return (in + 2 * v.pad - kernel) / v.stride + 1; };
    bool fit = v.x.c == v.w.c && v.y.n == v.x.n && v.y.c == v.w.n &&
               v.y.h == outputs(v.x.h, v.w.h) && v.y.w == outputs(v.x.w, v.w.w);
    for (const Box *box : {&v.x, &v.w, &v.y})
        fit = fit && count_of(*box) > 0 && box->type == v.x.type && box->format == v.x.format;
    if (v.x.type == CUDNN_DATA_BFLOAT16 && runtime().settings.capability < 80)
        return CUDNN_STATUS_NOT_SUPPORTED;
    return fit ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static bool is_preferred(const Way &way) {
    static_assert(int(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) ==
                          int(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) &&
                      int(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) ==
                          int(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1),
                  "one number for the preferred algorithm of each pass");
    return way.algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
}

// The error that the settings demand although the queries allowed the convolution.
static cudnnStatus_t refusal(const Convolution &v) {
    const Settings &settings = runtime().settings;
    bool preferred = is_preferred(*v.way);
    if (settings.refuses_memory && preferred)
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    bool refused = settings.refuses_all || (settings.refuses_preferred && preferred) ||
                   (settings.refuses_channels_last && v.x.format == CUDNN_TENSOR_NHWC);
    return refused ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

// ---- execution ---------------------------------------------------------------------------------

// Visits a tensor's elements in the order channels, pixels: the index there, and in memory for any
// format.
template <typename Visit> static void for_each(const Box &box, Visit visit) {
    auto c_count = static_cast<size_t>(box.c), pixels = static_cast<size_t>(box.h * box.w);
    for (size_t n = 0, i = 0; n < static_cast<size_t>(box.n); n++)
        for (size_t c = 0; c < c_count; c++)
            for (size_t p = 0; p < pixels; p++, i++)
                visit(i, box.format == CUDNN_TENSOR_NHWC ? (n * pixels + p) * c_count + c : i);
}

static std::vector<float> read(const Convolution &v, const Box &box, const void *data) {
    std::vector<float> values(count_of(box));
    bool tf32 = box.type == CUDNN_DATA_FLOAT && v.math != CUDNN_FMA_MATH;
    for_each(box, [&](size_t i, size_t place) {
        float value = load(data, type_of(box), place);
        values[i] = tf32 ? round_to_tf32(value) : value;
    });
    return values;
}

static void write(const Convolution &v, const Box &box, const std::vector<float> &values) {
    float error = v.way->inaccurate ? box.type == CUDNN_DATA_FLOAT ? 0x1p-12f : 0x1p-5f : 0;
    if (v.way->any_order && runtime().random() % 2 == 0) error = 0x1p-18f;
    for_each(box, [&](size_t i, size_t place) {
        float value = v.alpha * values[i] * (1 + error);
        if (v.beta != 0) value += v.beta * load(v.result, type_of(box), place);
        store(v.result, type_of(box), place, value);
    });
}

// Visits the pairs of an image [c, h, w] and its columns [taps, pixels] (im2col): visit gets both
// indices.
template <typename Visit> static void for_each_tap(const Convolution &v, Visit visit) {
    int pixels = v.y.h * v.y.w;
    for (int tap = 0; tap < v.w.c * v.w.h * v.w.w; tap++) {
        int c = tap / (v.w.h * v.w.w), ky = tap / v.w.w % v.w.h, kx = tap % v.w.w;
        for (int oy = 0; oy < v.y.h; oy++)
            for (int ox = 0; ox < v.y.w; ox++) {
                int row = oy * v.stride + ky - v.pad, column = ox * v.stride + kx - v.pad;
                bool inside = row >= 0 && row < v.x.h && column >= 0 && column < v.x.w;
                visit(inside ? (c * v.x.h + row) * v.x.w + column : -1,
                      static_cast<size_t>(tap * pixels + oy * v.y.w + ox));
            }
    }
}

static void convolve_image(const Convolution &v, float *x, float *w, float *y, float *columns) {
    int taps = v.w.c * v.w.h * v.w.w, pixels = v.y.h * v.y.w, k = v.w.n;
    if (v.pass != DATA)
        for_each_tap(v, [=](int pixel, size_t at) { columns[at] = pixel < 0 ? 0 : x[pixel]; });
    if (v.pass == FORWARD)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, k, pixels, taps, 1, w, taps, columns,
                    pixels, 0, y, pixels);
    else if (v.pass == FILTER)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, k, taps, pixels, 1, y, pixels, columns,
                    pixels, 1, w, taps);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, taps, pixels, k, 1, w, taps, y, pixels,
                    0, columns, pixels);
    if (v.pass == DATA)
        for_each_tap(v, [=](int pixel, size_t at) {
            if (pixel >= 0) x[pixel] += columns[at];
        });
}

static bool convolve(const Convolution &v) {
    if (v.way->workspace > 0) memset(v.workspace, 0xff, v.way->workspace);
    std::vector<float> x(count_of(v.x)), w(count_of(v.w)), y(count_of(v.y));
    if (v.pass == FORWARD) x = read(v, v.x, v.a), w = read(v, v.w, v.b);
    if (v.pass == DATA) w = read(v, v.w, v.a), y = read(v, v.y, v.b);
    if (v.pass == FILTER) x = read(v, v.x, v.a), y = read(v, v.y, v.b);
    auto images = static_cast<size_t>(v.x.n);
    std::vector<float> columns(count_of(v.w) / static_cast<size_t>(v.w.n) * count_of(v.y) / images /
                               static_cast<size_t>(v.y.c));
    for (size_t i = 0; i < images; i++)
        convolve_image(v, &x[i * x.size() / images], w.data(), &y[i * y.size() / images],
                       columns.data());
    if (v.pass == FORWARD) write(v, v.y, y);
    if (v.pass == DATA) write(v, v.x, x);
    if (v.pass == FILTER) write(v, v.w, w);
    return true;
}

// ---- calls of the three passes -----------------------------------------------------------------

static Convolution convolution_of(Pass pass, const Box &x, const Box &w, const Box &y,
                                  const cudnnConvolutionStruct &c) {
    Convolution v = {};
    v.pass = pass;
    v.x = x;
    v.w = w;
    v.y = y;
    v.pad = c.pad;
    v.stride = c.stride;
    v.math = c.math;
    return v;
}

// Answers a query, best algorithm first. 16-bit algorithms on tensor cores have a variant without
// them at the end of the list.
template <typename Answer, typename Algorithm>
static cudnnStatus_t answer(const Convolution &v, int requested, int *returned, Answer *results) {
    *returned = 0;
    if (check(v) != CUDNN_STATUS_SUCCESS) return check(v);
    bool narrow = v.x.type != CUDNN_DATA_FLOAT;
    for (int again = 0; again < (narrow && v.math != CUDNN_DEFAULT_MATH ? 2 : 1); again++)
        for (const Way &way : ways_of(v.pass)) {
            if (*returned == requested) return CUDNN_STATUS_SUCCESS;
            Answer &result = results[(*returned)++];
            result = {};
            result.algo = static_cast<Algorithm>(way.algorithm);
            result.memory = way.workspace;
            result.determinism = way.any_order ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
            result.mathType = again == 1 ? CUDNN_DEFAULT_MATH : v.math;
        }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t answer_workspace(const Convolution &v, int algorithm, size_t *bytes) {
    const Way *way = find_way(v.pass, algorithm);
    if (check(v) != CUDNN_STATUS_SUCCESS) return check(v);
    if (way == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
    if (runtime().settings.refuses_queries && is_preferred(*way)) return CUDNN_STATUS_NOT_SUPPORTED;
    *bytes = way->workspace;
    return CUDNN_STATUS_SUCCESS;
}

struct Arguments { // the remaining arguments of all three calls
    const char *what;
    int algorithm;
    const void *alpha, *a, *b, *beta;
    void *result, *workspace;
    size_t bytes;
};

static cudnnStatus_t run(cudnnHandle_t handle, Convolution v, const Arguments &call) {
    const char *what = call.what;
    v.a = call.a;
    v.b = call.b;
    v.result = call.result;
    v.workspace = call.workspace;
    v.alpha = *static_cast<const float *>(call.alpha);
    v.beta = *static_cast<const float *>(call.beta);
    v.way = find_way(v.pass, call.algorithm);
    cudnnStatus_t status = check(v);
    if (status != CUDNN_STATUS_SUCCESS || handle->device != thread_state().device)
        return CUDNN_STATUS_BAD_PARAM;
    if (v.way == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
    if (v.way->workspace > call.bytes) return CUDNN_STATUS_BAD_PARAM;
    status = refusal(v);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    Runtime &r = runtime();
    Lock lock(r.mutex);
    memory_check(r, what, v.a, bytes_of(v.pass == DATA ? v.w : v.x));
    memory_check(r, what, v.b, bytes_of(v.pass == FORWARD ? v.w : v.y));
    memory_check(r, what, v.result, bytes_of(v.pass == FORWARD ? v.y : v.pass == DATA ? v.x : v.w));
    if (v.way->workspace > 0) memory_check(r, what, v.workspace, v.way->workspace);
    if (stream_find(r, handle->stream) == nullptr) return CUDNN_STATUS_BAD_PARAM;
    Task task;
    task.what = what;
    task.device = handle->device;
    task.work = [v] { return convolve(v); };
    stream_enqueue(r, lock, handle->stream, std::move(task));
    return CUDNN_STATUS_SUCCESS;
}

} // namespace emulator

using namespace emulator;

size_t cudnnGetVersion(void) {
    return 91900;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    default:
        return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{device, nullptr};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor) {
    *tensor = new cudnnTensorStruct{};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
    delete tensor;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    static_cast<Box &>(*tensor) = {format, type, n, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter) {
    *filter = new cudnnFilterStruct{};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
    delete filter;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    static_cast<Box &>(*filter) = {format, type, k, c, h, w};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution) {
    *convolution = new cudnnConvolutionStruct{0, 1, CUDNN_DEFAULT_MATH};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
    delete convolution;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
    bool known = pad_h == pad_w && stride_h == stride_w && dilation_h == 1 && dilation_w == 1 &&
                 mode == CUDNN_CROSS_CORRELATION && compute == CUDNN_DATA_FLOAT;
    if (!known) return CUDNN_STATUS_NOT_SUPPORTED;
    *convolution = {pad_h, stride_h, convolution->math};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
    convolution->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x_shape,
                                                     cudnnFilterDescriptor_t w_shape,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y_shape, int requested,
                                                     int *returned,
                                                     cudnnConvolutionFwdAlgoPerf_t *results) {
    return answer<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(
        convolution_of(FORWARD, *x_shape, *w_shape, *y_shape, *convolution), requested, returned,
        results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x_shape, cudnnFilterDescriptor_t w_shape,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y_shape,
    cudnnConvolutionFwdAlgo_t algorithm, size_t *bytes) {
    return answer_workspace(convolution_of(FORWARD, *x_shape, *w_shape, *y_shape, *convolution),
                            algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x_shape, const void *x,
                                      cudnnFilterDescriptor_t w_shape, const void *w,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void *workspace,
                                      size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_shape, void *y) {
    return run(handle, convolution_of(FORWARD, *x_shape, *w_shape, *y_shape, *convolution),
               {"cudnnConvolutionForward", algorithm, alpha, x, w, beta, y, workspace, bytes});
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w_shape, cudnnTensorDescriptor_t dy_shape,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx_shape, int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results) {
    return answer<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
        convolution_of(DATA, *dx_shape, *w_shape, *dy_shape, *convolution), requested, returned,
        results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, cudnnFilterDescriptor_t w_shape, cudnnTensorDescriptor_t dy_shape,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx_shape,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes) {
    return answer_workspace(convolution_of(DATA, *dx_shape, *w_shape, *dy_shape, *convolution),
                            algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_shape, const void *w,
                                           cudnnTensorDescriptor_t dy_shape, const void *dy,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx_shape, void *dx) {
    return run(
        handle, convolution_of(DATA, *dx_shape, *w_shape, *dy_shape, *convolution),
        {"cudnnConvolutionBackwardData", algorithm, alpha, w, dy, beta, dx, workspace, bytes});
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x_shape, cudnnTensorDescriptor_t dy_shape,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw_shape, int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    return answer<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
        convolution_of(FILTER, *x_shape, *dw_shape, *dy_shape, *convolution), requested, returned,
        results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x_shape, cudnnTensorDescriptor_t dy_shape,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dw_shape,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes) {
    return answer_workspace(convolution_of(FILTER, *x_shape, *dw_shape, *dy_shape, *convolution),
                            algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_shape, const void *x,
                                             cudnnTensorDescriptor_t dy_shape, const void *dy,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void *workspace, size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw_shape, void *dw) {
    return run(
        handle, convolution_of(FILTER, *x_shape, *dw_shape, *dy_shape, *convolution),
        {"cudnnConvolutionBackwardFilter", algorithm, alpha, x, dy, beta, dw, workspace, bytes});
}
