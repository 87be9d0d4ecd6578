/* kernels.h: the operations that a device computes, as tables of functions.
 *
 *                          Kernels of a backend (kernels_cpu, kernels_ref, kernels_cuda)
 *                                               |
 *      +----------+-------+---------+--------+-+----+------+--------+---------+--------+
 *      |          |       |         |        |      |      |        |         |        |
 * elementwise  slices  matrix  convolution  norm  loss  pixels  transformer  halves  optimizer
 *
 * A family is one table, exported by each backend that implements it: cpu_norm, ref_norm and
 * cuda_norm. cpu is fast (OpenBLAS and vectorised loops), cuda runs on GPUs, ref is the definition
 * of each operation in plain C and the tests' oracle.
 *
 * Conventions, for every function:
 *  - it runs on the calling thread's current device, set by device_kernels(device). All tensors are
 *    in its memory, scalar results too ("device memory"). On a GPU functions are asynchronous and
 *    run in the order of the calls; device_copy to the host, device_synchronize and readback_wait
 *    wait for completion. Structs and lists of tensors are host memory, reusable after the call;
 *  - tensors are row-major float32 and contiguous; images are [n, c, h, w] (PyTorch's layout). Only
 *    the family "halves" has tensors in 16 bits, and images there with the channels last;
 *  - counts are elements and may be 0: an empty tensor is neither read nor written; its sum is 0;
 *  - outputs do not overlap inputs unless the comment says "may be in place";
 *  - `accumulate`: the output is overwritten (false) or added to (true), for tensors that are used
 *    more than once. Formulas write "(+)=";
 *  - a loss is divided by `divisor`, and is 0 if the divisor is not positive;
 *  - the result is a function of the arguments alone: the order of additions is fixed;
 *  - reductions over many elements (statistics, losses, bias gradients) accumulate in double, or in
 *    float lanes of a fixed pattern. Two backends may differ by rounding; one backend is
 *    deterministic.
 */
#ifndef COMMON_DEVICE_KERNELS_H
#define COMMON_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/device/optimizer_kernels.h"

// ---- elementwise -------------------------------------------------------------------------------

// An activation y = f(x). Its gradient is computed from the contents of x's memory after the
// forward pass ("saved").
//
//   kind  f                                                         saved
//   RELU  x < 0 ? 0 : x; NaN stays NaN; may be in place             x or y: their masks are equal
//   GELU  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))),            f'(x) on the CPU, x elsewhere
//         PyTorch's GELU with approximate='tanh'
typedef enum Activation { ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATIONS } Activation;

typedef struct ElementwiseKernels {
    void (*fill)(float *y, float value, size_t count);
    void (*add)(float *y, const float *a, const float *b, size_t count); // may be in place
    void (*accumulate)(float *y, const float *x, size_t count);          // y += x
    void (*scale)(float *y, float factor, size_t count);                 // y *= factor
    // y = f(x). If `save`, the backend may replace x by the values that the gradient needs;
    // otherwise x is unchanged, unless y is x.
    void (*activation)(Activation f, float *y, float *x, size_t count, bool save);
    // dx (+)= dy f'(x); dx may be dy (then accumulate is false)
    void (*activation_gradient)(Activation f, float *dx, const float *saved, const float *dy,
                                size_t count, bool accumulate);
    // To and from 16 bits, rounding to the nearest even; precision is not PRECISION_F32.
    void (*narrow)(Precision precision, uint16_t *y, const float *x, size_t count);
    void (*widen)(Precision precision, float *y, const uint16_t *x, size_t count);
    void (*mean)(const float *x, double divisor, float *y, size_t count); // y[1] = sum / divisor
    // y[count] (+)= x[1] / divisor
    void (*spread)(float *y, const float *x, double divisor, bool accumulate, size_t count);
    void (*count_up)(int64_t *counter); // counter[1] += 1
} ElementwiseKernels;

// ---- slices: several memory ranges in one call -------------------------------------------------

typedef struct Slice {
    float *data; // [count], device memory
    size_t count;
} Slice;

// An exact sum of squares, as integers: sums of parts are added entry by entry.
enum { SQUARES_LIMBS = 10, SQUARES_INF = SQUARES_LIMBS, SQUARES_NAN, SQUARES_SIZE };
typedef struct SliceKernels {
    // Multiplies all slices by factor. Sets not_finite[1] (device memory) to 1 if an element was
    // inf or NaN before (PyTorch's _amp_foreach_non_finite_check_and_unscale_).
    void (*unscale)(const Slice *slices, size_t slice_count, float factor, float *not_finite);
    // sum[SQUARES_SIZE] (+)= the squares of all elements, each rounded to float32
    void (*squares)(const Slice *slices, size_t slice_count, bool accumulate, int64_t *sum);
    // norm[1] = sqrt(sum); slices *= max_norm / (norm + 1e-6), if below 1 or NaN (clip_grad_norm_)
    void (*clip)(const Slice *slices, size_t slice_count, double max_norm, const int64_t *sum,
                 double *norm);
    // y = the concatenated slices, copied bit for bit (also integers stored as floats).
    void (*pack)(float *y, const Slice *slices, size_t slice_count);
    void (*unpack)(const Slice *slices, size_t slice_count, const float *x); // the reverse
} SliceKernels;

// ---- matrix products ---------------------------------------------------------------------------

// How a product is computed (PyTorch's autocast): operands and bias are rounded to `precision`,
// accumulated in float32 or better, and the output, bias included, is rounded to `precision` and
// stored as float32. `workspace` is device memory of as many bytes as the function's _workspace
// returns, with undefined contents before and after.
typedef struct Compute {
    Precision precision;
    void *workspace;
} Compute;

typedef struct MatmulShape { // c[m,n] = op(a)[m,k] op(b)[k,n], op: transpose if the flag is set
    bool transpose_a, transpose_b; // true: a is stored [k,m], b is stored [n,k]
    size_t m, n, k;
} MatmulShape;

// The mask y > 0 of a linear layer's relu, for its gradient.
typedef struct ReluMask {
    void *bits;    // set by the caller: device memory of relu_mask bytes; NULL: no gradient
    const void *y; // set by linear: its output
    bool written;  // set by linear: bits contains the mask, in the backend's own format
} ReluMask;

typedef struct LinearShape { // y[rows, out] = x[rows, in] weight[out, in]' + bias[out]
    size_t rows, out, in;
    ReluMask *relu; // not NULL: y = relu(y) in the same call
    // HalfKernels only, without bias and relu: zero rows of the weight behind its `out`, as many
    // columns of y and dy. They align the product's operands; parameters have no padding.
    size_t padding;
} LinearShape;

// In 16 bits a linear layer's two parameters, or their gradients, are contiguous: weight[out +
// padding, in], then bias[out], aligned to 16 bytes.
static inline size_t linear_narrow_bias(LinearShape shape) {
    return ((shape.out + shape.padding) * shape.in + 7) / 8 * 8;
}
static inline size_t linear_narrow_count(LinearShape shape) {
    return linear_narrow_bias(shape) + shape.out;
}

typedef struct LinearGradient { // outputs; NULL: not computed
    float *dweight, *dbias;
    bool add_dweight, add_dbias; // `accumulate` of each one
} LinearGradient;

typedef struct MatrixKernels {
    // A backend with HalfKernels gets PRECISION_F32 only here.
    size_t (*matmul_workspace)(Precision precision, size_t m, size_t n, size_t k);
    void (*matmul)(Compute how, MatmulShape shape, const float *a, const float *b, float *c,
                   bool accumulate);
    // bias may be NULL. The workspace is matmul_workspace(precision, rows, out, in). relu(NaN) is
    // NaN, also where the device's library returns 0.
    void (*linear)(Compute how, LinearShape shape, const float *x, const float *weight,
                   const float *bias, float *y);
    size_t (*relu_mask)(Precision precision, LinearShape shape); // bytes of its bits; may be 0
    // dweight[out, in] (+)= dy[rows, out]' x[rows, in], and dbias[out] (+)= the column sums of dy.
    // The workspace is matmul_workspace(precision, out, in, rows).
    void (*linear_weight_gradient)(Compute how, LinearShape shape, const float *dy, const float *x,
                                   const LinearGradient *to);
    // x is the output of a linear with relu, whose mask is *of: dx[rows, in] = dy weight where
    // x > 0, otherwise 0. (Without relu, dx is a matmul.) The workspace is matmul's.
    void (*linear_relu_gradient)(Compute how, LinearShape shape, const float *dy,
                                 const float *weight, const ReluMask *of, float *dx);
} MatrixKernels;

// ---- windows that slide over images: convolution, pooling, ResNet's shortcut -------------------

// A window (kernel, stride, padding; square) sliding over n images of c channels.
// Output: oh = (h + 2 pad - kernel) / stride + 1, and the same for ow.
typedef struct Window {
    size_t n, c, h, w; // input
    size_t k;          // output channels (convolution); == c for pooling
    size_t kernel, stride, pad;
    size_t oh, ow; // output
} Window;

typedef struct ConvolutionKernels {
    // x[n,c,h,w], weight[k,c,kernel,kernel], y[n,k,oh,ow]; bias[k] may be NULL
    size_t (*conv2d_workspace)(Precision precision, const Window *window);
    void (*conv2d)(Compute how, const Window *window, const float *x, const float *weight,
                   const float *bias, float *y);
    void (*conv2d_input_gradient)(Compute how, const Window *window, const float *weight,
                                  const float *dy, float *dx, bool accumulate);
    void (*conv2d_weight_gradient)(Compute how, const Window *window, const float *x,
                                   const float *dy, float *dweight, bool accumulate);
    // dbias[k] (+)= sums of dy over n, oh, ow
    void (*conv2d_bias_gradient)(const Window *window, const float *dy, float *dbias,
                                 bool accumulate);
    // ResNet's parameter-free shortcut (option A): y[n, k, oh, ow] takes every stride-th pixel of
    // x[n, c, h, w], with (k - c) / 2 channels of zeros before and the rest after. kernel 1, pad 0.
    void (*shortcut)(const Window *window, const float *x, float *y);
    void (*shortcut_gradient)(const Window *window, const float *dy, float *dx, bool accumulate);
    // chosen[n,c,oh,ow] = the index of each maximum in the channel's plane of h*w (the first of
    // equals; NaN is the largest; padding is never chosen).
    void (*max_pool)(const Window *window, const float *x, float *y, int32_t *chosen);
    void (*max_pool_gradient)(const Window *window, const int32_t *chosen, const float *dy,
                              float *dx, bool accumulate);
    // Divides by kernel^2, padding included (PyTorch's count_include_pad default).
    void (*avg_pool)(const Window *window, const float *x, float *y);
    void (*avg_pool_gradient)(const Window *window, const float *dy, float *dx, bool accumulate);
} ConvolutionKernels;

// ---- batch norm --------------------------------------------------------------------------------

// The tensors of a batch norm over x[n, c, inner] (inner = h w; 1 for a matrix); the others are
// [c]. A function uses the fields that its comment names.
typedef struct BatchNorm {
    const float *x;
    size_t n, c, inner;
    const float *weight, *bias;
    float *mean, *invstd; // of this batch: mean, 1/sqrt(variance + eps)
    float *running_mean, *running_var;
    float momentum, eps;
    int64_t *num_batches_tracked; // [1]; NULL: not counted
    // Functions documented with "then relu" compute y = relu(y + residual) in the same pass.
    bool relu;
    const float *residual; // [n, c, inner], with relu only; NULL: nothing is added
    const float *y;        // with relu: forward's result, for the gradient
} BatchNorm;

typedef struct NormGradient { // outputs; NULL: not computed
    float *dx, *dweight, *dbias;
    bool add_dx, add_dweight, add_dbias; // `accumulate` of each one
} NormGradient;

typedef struct NormKernels {
    // Training: y = (x - mean) invstd weight + bias, then relu if `relu`. Writes mean and invstd
    // (biased variance), updates running = (1-momentum) running + momentum batch (unbiased
    // variance), and increments num_batches_tracked. If n*inner == 0, only the counter changes (the
    // operation rejects 1).
    void (*batch_norm)(const BatchNorm *norm, float *y);
    // Evaluation: y = (x - running_mean) / sqrt(running_var + eps) weight + bias, then relu if
    // `relu`; may be in place
    void (*batch_norm_eval)(const BatchNorm *norm, float *y);
    // dx (+)=, dweight (+)=, dbias (+)=, from x, dy, weight, mean and invstd. If `relu`, dy is
    // masked with y > 0 and its contents are undefined afterwards. Precondition: no residual (the
    // caller masks dy before, because the masked dy is the residual's gradient).
    void (*batch_norm_gradient)(const BatchNorm *norm, float *dy, const NormGradient *to);
    // The gradient of batch_norm_eval; the running statistics are constants.
    void (*batch_norm_eval_gradient)(const BatchNorm *norm, const float *dy,
                                     const NormGradient *to);

    // The functions below are for a batch that is divided over ranks; between them the ranks
    // exchange statistics. This one writes mean and invstd of this rank's elements; zeros if none.
    void (*batch_norm_statistics)(const BatchNorm *norm);
    // rows[ranks, 2c + 1] = each rank's mean[c], invstd[c] and elements per channel. Sets mean,
    // invstd and the running statistics to those of all elements, accumulated in rank order, and
    // count[1] to the elements per channel. If that is below 2, only count changes.
    void (*batch_norm_merge)(const BatchNorm *norm, const float *rows, size_t ranks, double *count);
    // y = (x - mean) invstd weight + bias
    void (*batch_norm_apply)(const BatchNorm *norm, float *y);
    // sums[2, c]: the sums of dy and of dy (x - mean). dweight (+)= the second times invstd,
    // dbias (+)= the first.
    void (*batch_norm_gradient_sums)(const BatchNorm *norm, const float *dy, float *sums,
                                     const NormGradient *to);
    // dx (+)=, from the sums over all ranks and their count[1] elements per channel (not 0)
    void (*batch_norm_gradient_apply)(const BatchNorm *norm, const float *dy, const float *sums,
                                      const double *count, const NormGradient *to);
} NormKernels;

// ---- losses ------------------------------------------------------------------------------------

typedef struct Labels {    // of rows, for logits [n, classes]
    const int64_t *target; // [n]
    size_t n, classes;
} Labels;

// Independent binary labels per class; the probability of 1 is the sigmoid of the logit.
typedef struct Answers {
    const float *logits;     // [n, classes]
    const float *target;     // [n, classes], from 0 to 1
    const float *pos_weight; // [classes]: weight of the positive term; NULL: 1
    size_t n, classes;
} Answers;

typedef struct Upstream {  // a loss's own gradient, divided by the loss's divisor
    const float *gradient; // [1], device memory
    double divisor;
} Upstream;

typedef struct LossKernels {
    // probabilities[n,classes] = softmax of each row; loss[1] = the sum over rows of
    // -log probabilities[row, target[row]], divided by the divisor; NaN if a target is outside
    // [0, classes).
    void (*cross_entropy)(Labels labels, const float *logits, double divisor, float *probabilities,
                          float *loss);
    // dlogits (+)= (probabilities - onehot(target)) * upstream
    void (*cross_entropy_gradient)(Labels labels, const float *probabilities, Upstream upstream,
                                   float *dlogits, bool accumulate);
    // loss[1] = sum (x-t)^2 / divisor
    void (*squared_error)(const float *x, const float *target, double divisor, float *loss,
                          size_t count);
    // dx (+)= 2 (x - target) * upstream
    void (*squared_error_gradient)(const float *x, const float *target, Upstream upstream,
                                   float *dx, bool accumulate, size_t count);
    // loss[1] = the sum of (1 - t) x + (1 + (p - 1) t) log(1 + exp(-x)) over all logits x with
    // target t and weight p, over the divisor (PyTorch's binary_cross_entropy_with_logits).
    void (*binary_cross_entropy)(const Answers *answers, double divisor, float *loss);
    // dlogits (+)= ((1 + (p - 1) t) sigmoid(x) - p t) * upstream
    void (*binary_cross_entropy_gradient)(const Answers *answers, Upstream upstream, float *dlogits,
                                          bool accumulate);
    // y[n, classes] = 1 at labels[row], 0 elsewhere; NaN in a row whose label is no class.
    void (*one_hot)(const int64_t *labels, float *y, size_t n, size_t classes);
    // correct[1] = the number of rows whose largest logit is at target[row] (the first of equals).
    // Rows with a NaN or with a target outside [0, classes) are not counted.
    void (*count_correct)(Labels labels, const float *logits, int64_t *correct);
} LossKernels;

// ---- labels of pixels --------------------------------------------------------------------------

// For logits [n, classes, inner], inner pixels per image. A pixel with a negative target is
// ignored; a target >= classes makes the pixel's loss NaN.
typedef struct PixelLabels {
    const int64_t *target; // [n, inner]
    size_t n, classes, inner;
} PixelLabels;

// Hard-example mining keeps the pixels whose loss is above the threshold or, if fewer than `least`
// are, the `least` pixels of largest loss (the first of equals). Ignored pixels are never kept; NaN
// is the largest loss.
typedef struct HardPixels {
    const float *losses;   // [count]
    const int64_t *target; // [count]
    size_t count;
    float threshold;
    size_t least;
} HardPixels;

typedef struct PixelKernels {
    // x[planes, h, w] -> y[planes, 2h, 2w]: every pixel becomes four (PyTorch's mode "nearest").
    void (*upsample2x)(const float *x, float *y, size_t planes, size_t h, size_t w);
    // dx (+)= sums of four pixels of dy
    void (*upsample2x_gradient)(const float *dy, float *dx, bool accumulate, size_t planes,
                                size_t h, size_t w);
    // probabilities[n, classes, inner] = softmax over the classes of each pixel;
    // losses[n, inner] = -log probability of the target, 0 where the pixel is ignored.
    void (*pixel_cross_entropy)(PixelLabels labels, const float *logits, float *probabilities,
                                float *losses);
    // kept[count] = 1 for kept pixels, otherwise 0; kept_count[1] = their number; sum[1] = the sum
    // of their losses.
    void (*hard_pixels)(const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum);
    // dlogits (+)= (probabilities - onehot(target)) * upstream[1] for kept pixels, 0 for others
    void (*pixel_cross_entropy_gradient)(PixelLabels labels, const float *probabilities,
                                         const uint8_t *kept, const float *upstream, float *dlogits,
                                         bool accumulate);
    // predicted[n, inner] = the class with the largest logit (the first of equals), or -1 if one of
    // the pixel's logits is NaN.
    void (*predict_pixels)(const float *logits, int32_t *predicted, size_t n, size_t classes,
                           size_t inner);
    // confusion[classes, classes + 1] = the number of pixels by target (row) and predicted[n,
    // inner] (column); the last column counts predictions of -1. Pixels whose target is outside [0,
    // classes) are not counted.
    void (*count_pixels)(PixelLabels labels, const int32_t *predicted, int64_t *confusion);
} PixelKernels;

// ---- transformers ------------------------------------------------------------------------------

// y[r] = wte[tokens[r]] + wpe[r % length] for every row r of y[rows, channels]; the rows are rows /
// length texts of `length` tokens, one after the other. A token outside [0, vocabulary) makes its
// row NaN and has no gradient.
typedef struct Embedding {
    const int64_t *tokens; // [rows]
    size_t rows, length, vocabulary, channels;
} Embedding;

// Every row of x[rows, channels] gets mean 0 and variance 1, then a weight and a bias per channel.
typedef struct LayerNorm {
    const float *x;
    size_t rows, channels;
    const float *weight, *bias; // [channels]
    float *mean, *invstd;       // [rows]: mean, 1/sqrt(biased variance + eps)
    float eps;
} LayerNorm;

// Causal attention. Each row of qkv[batch length, 3 heads size] holds the query, key and value of
// one token: 3 times `heads` vectors of `size`. In each of the batch's texts and each head, token t
// is the weighted mean of the values of the tokens s <= t; the weights are the softmax over s of
// q[t].k[s] / sqrt(size). y is [batch length, heads size].
typedef struct Attention {
    size_t batch, length, heads, size;
} Attention;

// Attention in 16 bits (PyTorch's scaled_dot_product_attention under autocast). A backend with
// HalfKernels gets PRECISION_F32 only here.
//
//   rounded to 16 bits                                in float32
//   qkv and dy, on input                              scores
//   weights, before the product with the values       softmax
//     (before or after the division by their sum)     sums
//   gradients of the scores, before the products
//     with queries and keys
//   outputs
typedef struct TransformerKernels {
    void (*embedding)(const Embedding *of, const float *wte, const float *wpe, float *y);
    // dwte[vocabulary, channels] (+)= for each token the sum of its rows of dy, in row order; rows
    // of tokens that do not occur (+)= 0. The workspace is device memory.
    size_t (*embedding_workspace)(const Embedding *of);
    void (*embedding_gradient)(const Embedding *of, const float *dy, float *dwte, bool accumulate,
                               void *workspace);
    // dwpe[length, channels] (+)= for each position the sum over the texts, in their order
    void (*position_gradient)(const Embedding *of, const float *dy, float *dwpe, bool accumulate);

    void (*layer_norm)(const LayerNorm *norm, float *y); // writes mean and invstd
    // From x, dy, weight, mean and invstd: dx (+)=, dweight (+)=, dbias (+)=
    void (*layer_norm_gradient)(const LayerNorm *norm, const float *dy, const NormGradient *to);

    // Bytes of device memory that attention saves for its gradient: either all weights, or one
    // number per row, from which the backend recomputes them.
    size_t (*attention_saved)(const Attention *of);
    size_t (*attention_workspace)(Precision precision, const Attention *of);
    void (*attention)(Compute how, const Attention *of, const float *qkv, float *y, void *saved);
    // dqkv (+)=, from qkv, y, saved and dy[batch length, heads size]
    void (*attention_gradient)(Compute how, const Attention *of, const float *qkv, const float *y,
                               const void *saved, const float *dy, float *dqkv, bool accumulate);
} TransformerKernels;

// ---- tensors in 16 bits ------------------------------------------------------------------------

// The kernels of tensors that PyTorch's autocast stores in 16 bits. Each computes the function of
// the same name above, in float32, and rounds once, on storing (after accumulation, if it adds).
//
//   tensor                                        type        memory order
//   activations and their gradients, images       16 bits     [n, h, w, c] ("channels last")
//   activations and their gradients, rows         16 bits     [n, c]; of logits [n, pitch]
//   weight of a product (narrow)                  16 bits     linear [out, in],
//                                                             convolution [k, kernel, kernel, c]
//   parameters, their gradients, statistics       float32     as above
//   input of a layer norm, and its gradient       float32     [n, c]
//
// All 16-bit tensors of a call have the type `precision`, which is not PRECISION_F32.
typedef struct ImageSizes { // images [n, c, inner], inner = h w; in 16 bits [n, inner, c]
    size_t n, c, inner;
} ImageSizes;

typedef struct HalfActivation {
    Precision precision;
    Activation kind;
} HalfActivation;

typedef struct HalfNorm {
    BatchNorm of;                     // all fields except x, residual and y
    const uint16_t *x, *residual, *y; // [n, inner, c]
} HalfNorm;

// Rows of a matrix [n, columns], in 16 bits `pitch` elements apart; pitch >= columns.
typedef struct HalfRows {
    size_t n, columns, pitch;
} HalfRows;

typedef struct HalfLogits {
    Precision precision;
    Labels labels;
    size_t pitch;     // elements from one row of the logits to the next, >= labels.classes
    uint16_t *logits; // [n, pitch]
    double divisor;
    bool gradient; // replace the logits by their gradient
} HalfLogits;

typedef struct HalfGelu { // outputs [rows, out] of a linear layer with GELU
    uint16_t *before, *y; // y = gelu(before)
} HalfGelu;

typedef struct HalfKernels {
    // From float32, and back.
    void (*narrow)(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                   bool accumulate);
    void (*widen)(Precision precision, ImageSizes of, const uint16_t *x, float *y, bool accumulate);
    // The same for x[n, columns] in float32 and padded rows in 16 bits. Sets the padding to 0.
    void (*narrow_rows)(Precision precision, HalfRows of, const float *x, uint16_t *y,
                        bool accumulate);
    void (*widen_rows)(Precision precision, HalfRows of, const uint16_t *x, float *y,
                       bool accumulate);
    void (*add)(Precision precision, uint16_t *y, const uint16_t *a, const uint16_t *b,
                size_t count); // may be in place
    // y = a + b in float32; may be in place (y is a)
    void (*add_to)(Precision precision, float *y, const float *a, const uint16_t *b, size_t count);
    // x is unchanged, unless y is x (RELU); the gradient's `saved` is x (RELU: or y).
    void (*activation)(HalfActivation f, uint16_t *y, const uint16_t *x, size_t count);
    // dx may be dy (then accumulate is false)
    void (*activation_gradient)(HalfActivation f, uint16_t *dx, const uint16_t *saved,
                                const uint16_t *dy, size_t count, bool accumulate);
    // y = layer_norm(x + branch), where x is norm->x; stores x + branch in sum [rows, channels],
    // float32. branch[rows, channels] may be NULL: nothing is added, sum is ignored.
    void (*layer_norm)(Precision precision, const LayerNorm *norm, const uint16_t *branch,
                       float *sum, uint16_t *y);
    // norm->x is the sum. dbranch[rows, channels] = to->dx after accumulation; may be NULL.
    void (*layer_norm_gradient)(Precision precision, const LayerNorm *norm, const uint16_t *dy,
                                const NormGradient *to, uint16_t *dbranch);
    // `saved` and the workspace have the sizes that TransformerKernels returns. The weights are
    // rounded before the division by their sum (as in FlashAttention); the gradient rounds them
    // after it.
    void (*attention)(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                      void *saved);
    void (*attention_gradient)(Compute how, const Attention *of, const uint16_t *qkv,
                               const uint16_t *y, const void *saved, const uint16_t *dy,
                               uint16_t *dqkv, bool accumulate);
    // Heads of some sizes have a fast attention (on tensor cores) beside the exact one. Returns the
    // largest difference between their outputs, divided by the largest that rounding can cause: the
    // fast one is used if it is at most 1. INFINITY: there is no fast one. The first call runs both
    // on random numbers.
    float (*attention_difference)(Precision precision, size_t head_size);
    // Replaces it, for the attention's later calls.
    void (*set_attention_difference)(Precision precision, size_t head_size, float difference);
    // narrow[linear_narrow_count] = the linear layer's parameters in 16 bits; bias may be NULL.
    void (*narrow_linear)(Precision precision, LinearShape shape, const float *weight,
                          const float *bias, uint16_t *narrow);
    // The workspace of the three products is linear_workspace, the mask is MatrixKernels'. The
    // gradients of weight and bias are sums in float32; in float16 they are rounded before they are
    // accumulated (as PyTorch's), so that its range still decides which steps a GradScaler skips.
    size_t (*linear_workspace)(Precision precision, LinearShape shape);
    // Adds the rounded values of bias, which may be NULL.
    void (*linear)(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow,
                   const float *bias, uint16_t *y);
    void (*linear_weight_gradient)(Compute how, LinearShape shape, const uint16_t *dy,
                                   const uint16_t *x, const LinearGradient *to);
    // dx[rows, in] (+)= dy weight. of is not NULL: x is the output of a linear with relu, dx is
    // masked with x > 0, and accumulate is false.
    void (*linear_input_gradient)(Compute how, LinearShape shape, const uint16_t *dy,
                                  const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                  bool accumulate);
    // linear, then GELU of its output before or after that is rounded. bias is not NULL.
    void (*linear_gelu)(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow,
                        const float *bias, HalfGelu to);
    // x is the y of linear_gelu: dbefore[rows, in] = (dy weight) gelu'(before).
    void (*linear_gelu_gradient)(Compute how, LinearShape shape, const uint16_t *dy,
                                 const uint16_t *weight, const uint16_t *before, uint16_t *dbefore);
    // In one pass over the logits: loss[1] (LossKernels.cross_entropy), correct[1]
    // (count_correct) and, if `gradient`, (probabilities - onehot(target)) / divisor in the place
    // of the logits. A row's elements from `classes` on are not read; the gradient has zeros there.
    void (*cross_entropy)(const HalfLogits *of, float *loss, int64_t *correct);
    size_t (*conv2d_workspace)(Precision precision, const Window *window);
    void (*conv2d)(Compute how, const Window *window, const uint16_t *x, const uint16_t *weight,
                   const float *bias, uint16_t *y);
    void (*conv2d_input_gradient)(Compute how, const Window *window, const uint16_t *weight,
                                  const uint16_t *dy, uint16_t *dx, bool accumulate);
    // Both gradients are rounded to 16 bits (as PyTorch's), then accumulated.
    void (*conv2d_weight_gradient)(Compute how, const Window *window, const uint16_t *x,
                                   const uint16_t *dy, float *dweight, bool accumulate);
    void (*conv2d_bias_gradient)(Precision precision, const Window *window, const uint16_t *dy,
                                 float *dbias, bool accumulate);
    void (*shortcut)(Precision precision, const Window *window, const uint16_t *x, uint16_t *y);
    void (*shortcut_gradient)(Precision precision, const Window *window, const uint16_t *dy,
                              uint16_t *dx, bool accumulate);
    void (*max_pool)(Precision precision, const Window *window, const uint16_t *x, uint16_t *y,
                     int32_t *chosen); // [n, oh, ow, c]
    void (*max_pool_gradient)(Precision precision, const Window *window, const int32_t *chosen,
                              const uint16_t *dy, uint16_t *dx, bool accumulate);
    void (*avg_pool)(Precision precision, const Window *window, const uint16_t *x, uint16_t *y);
    void (*avg_pool_gradient)(Precision precision, const Window *window, const uint16_t *dy,
                              uint16_t *dx, bool accumulate);
    // The window's n, c, h and w are x's; the other fields are ignored.
    void (*upsample2x)(Precision precision, const Window *window, const uint16_t *x, uint16_t *y);
    void (*upsample2x_gradient)(Precision precision, const Window *window, const uint16_t *dy,
                                uint16_t *dx, bool accumulate);
    // With a residual, y is rounded before and after the addition.
    void (*batch_norm)(Precision precision, const HalfNorm *norm, uint16_t *y);
    void (*batch_norm_eval)(Precision precision, const HalfNorm *norm, uint16_t *y);
    // dx (NULL: not computed) replaces to->dx; dy is unchanged.
    void (*batch_norm_gradient)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                uint16_t *dx, const NormGradient *to);
    // NormKernels' functions for several ranks, except the merge, which reads no images. dx is not
    // NULL.
    void (*batch_norm_statistics)(Precision precision, const HalfNorm *norm);
    void (*batch_norm_apply)(Precision precision, const HalfNorm *norm, uint16_t *y);
    void (*batch_norm_gradient_sums)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                     float *sums, const NormGradient *to);
    void (*batch_norm_gradient_apply)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                      const float *sums, const double *count, uint16_t *dx,
                                      const NormGradient *to);
} HalfKernels;

// ---- a backend's -------------------------------------------------------------------------------

typedef struct Kernels {
    const char *name; // "cpu", "ref", "cuda"
    // Returned by device_is_cpu and the functions beside it (device.h).
    bool is_cpu;         // computes on the host's cores
    bool is_synchronous; // kernels have completed when the call returns
    bool is_addressable; // the host can read and write device memory directly
    // Writes the libraries' names and versions into buffer[capacity]: "OpenBLAS 0.3.21 SkylakeX,
    // pthread, 1 thread, ...".
    void (*describe)(char *buffer, size_t capacity);
    // Called by device_open: makes the libraries usable from several threads. Returns 0, or -1 with
    // err filled.
    int (*prepare)(Error *err);
    // Sets the number of threads of a matrix product. The threads belong to the process: concurrent
    // callers on several devices serialise on them. NULL: not supported. Returns 0, or -1 with err
    // filled.
    int (*use_threads)(int count, Error *err);

    const ElementwiseKernels *elementwise;
    const SliceKernels *slices;
    const MatrixKernels *matrix;
    const ConvolutionKernels *convolution;
    const NormKernels *norm;
    const LossKernels *loss;
    const PixelKernels *pixels;
    const TransformerKernels *transformer; // NULL: none; gpt is rejected
    const HalfKernels *halves;             // NULL: every tensor is stored in float32
    const OptimizerKernels *optimizer;
} Kernels;

#endif
