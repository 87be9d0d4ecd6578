/* kernels.h: everything a device can compute, as tables of functions.
 *
 *                          Kernels of a backend (kernels_cpu, kernels_ref, kernels_cuda)
 *                                               |
 *      +----------+-------+---------+--------+-+----+------+--------+---------+--------+
 *      |          |       |         |        |      |      |        |         |        |
 * elementwise  slices  matrix  convolution  norm  loss  pixels  transformer  halves  optimizer
 *
 * A family is one table, and is exported by the file of a backend that computes it: cpu/norm.c has
 * cpu_norm, ref/norm.c ref_norm, cuda/norm.cu cuda_norm. cpu/ is fast (OpenBLAS, and loops that the
 * compiler can vectorise), cuda/ is for GPUs, and ref/ is the plain-C definition of each operation:
 * the one to read, and the tests' oracle.
 *
 * Conventions, for every function:
 *  - it works on the device that device_kernels(device) made the calling thread's current one; all
 *    tensors lie there, small results too ("device memory"). A GPU's functions return before their
 *    work is done: it is carried out in the order of the calls, and only device_copy to the host,
 *    device_synchronize and readback_wait wait for it. Structs and lists of tensors are the host's,
 *    and may change after the call;
 *  - tensors are row-major float32 and contiguous; images are [n, c, h, w] (PyTorch's layout). Only
 *    the family "halves" has tensors in 16 bits, and images there with the channels last;
 *  - counts are elements, and any count may be 0: a tensor without elements is neither read nor
 *    written, and a sum over nothing is 0;
 *  - outputs never overlap inputs unless the comment says "may be in place";
 *  - `accumulate` says whether an output is overwritten (false) or added to (true): gradients of a
 *    tensor that is used twice add up. "(+)=" stands for it in formulas;
 *  - a loss is divided by `divisor` (it is 0 if that is not positive);
 *  - the result depends only on the arguments: no threads, no state, a fixed order of additions;
 *  - reductions over many elements (statistics, losses, bias gradients) add in double or in float
 *    lanes of a fixed pattern; backends may differ by rounding, one backend never from itself.
 */
#ifndef COMMON_DEVICE_KERNELS_H
#define COMMON_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

typedef enum Precision { PRECISION_F32, PRECISION_BF16, PRECISION_F16 } Precision;

// ---- elementwise -------------------------------------------------------------------------------

typedef struct ElementwiseKernels {
    void (*fill)(float *y, float value, size_t count);
    void (*add)(float *y, const float *a, const float *b, size_t count); // may be in place
    void (*accumulate)(float *y, const float *x, size_t count);          // y += x
    void (*scale)(float *y, float factor, size_t count);                 // y *= factor
    void (*relu)(float *y, const float *x, size_t count); // may be in place; NaN stays NaN
    // dx (+)= y > 0 ? dy : 0, where y is relu's output; dx may be dy (then accumulate is false)
    void (*relu_gradient)(float *dx, const float *y, const float *dy, size_t count,
                          bool accumulate);
    // To and from 16 bits, rounding to the nearest even; precision is not PRECISION_F32.
    void (*narrow)(Precision precision, uint16_t *y, const float *x, size_t count);
    void (*widen)(Precision precision, float *y, const uint16_t *x, size_t count);
    void (*mean)(const float *x, double divisor, float *y, size_t count); // y[1] = sum / divisor
    // y[count] (+)= x[1] / divisor
    void (*spread)(float *y, const float *x, double divisor, bool accumulate, size_t count);
    void (*count_up)(int64_t *counter); // counter[1] += 1
} ElementwiseKernels;

// ---- slices: several pieces of memory in one call ----------------------------------------------

typedef struct Slice {
    float *data; // [count], device memory
    size_t count;
} Slice;

typedef struct SliceKernels {
    // All of the slices times factor; *not_finite, device memory, becomes 1 if one of their numbers
    // was inf or NaN before (PyTorch's _amp_foreach_non_finite_check_and_unscale_), and is left
    // alone otherwise.
    void (*unscale)(const Slice *slices, size_t slice_count, float factor, float *not_finite);
    // PyTorch's clip_grad_norm_. squares[slice_count] = the sum of squares of each slice; norm[1] =
    // the square root of their sum, added in order; and the slices times max_norm / (norm + 1e-6),
    // if that is under 1 or not a number.
    void (*clip)(const Slice *slices, size_t slice_count, double max_norm, float *squares,
                 double *norm);
    // y[i] = x[i] of slice after slice: the slices, packed. Bits are kept, so that integers can be
    // packed as floats.
    void (*pack)(float *y, const Slice *slices, size_t slice_count);
    void (*unpack)(const Slice *slices, size_t slice_count, const float *x); // the reverse
} SliceKernels;

// ---- matrix products ---------------------------------------------------------------------------

// How a product is computed. Its factors and its bias are rounded to `precision` before, and the
// result, bias included, after it (PyTorch's autocast). Products are added up in float32 at least,
// and stored as float32. `workspace` is device memory of so many bytes as the function's _workspace
// says, its contents undefined before and after.
typedef struct Compute {
    Precision precision;
    void *workspace;
} Compute;

typedef struct MatmulShape { // c[m,n] = op(a)[m,k] op(b)[k,n], where op transposes if asked for:
    bool transpose_a, transpose_b; // then a is stored [k,m], b is stored [n,k]
    size_t m, n, k;
} MatmulShape;

// What is kept of a relu for its gradient.
typedef struct ReluMask {
    void *bits;    // the caller's: device memory of relu_mask bytes; NULL: there is no gradient
    const void *y; // linear's: its output
    bool written;  // linear's: bits say where y > 0, in a form that only its device knows
} ReluMask;

typedef struct LinearShape { // y[rows, out] = x[rows, in] weight[out, in]' + bias[out]
    size_t rows, out, in;
    ReluMask *relu; // and then relu, if this is not NULL
} LinearShape;

// In 16 bits a linear layer's two parameters, or their gradients, lie in one piece of memory: the
// weight[out, in], and the bias[out] from the next multiple of 16 bytes on.
static inline size_t linear_narrow_bias(LinearShape shape) {
    return (shape.out * shape.in + 7) / 8 * 8;
}
static inline size_t linear_narrow_count(LinearShape shape) {
    return linear_narrow_bias(shape) + shape.out;
}

typedef struct LinearGradient { // where gradients go; NULL: nobody wants it
    float *dweight, *dbias;
    bool add_dweight, add_dbias; // `accumulate` of each one
} LinearGradient;

typedef struct MatrixKernels {
    // Where there are halves, 16 bits are theirs, and all of these functions are of float32 alone.
    size_t (*matmul_workspace)(Precision precision, size_t m, size_t n, size_t k);
    void (*matmul)(Compute how, MatmulShape shape, const float *a, const float *b, float *c,
                   bool accumulate);
    // bias may be NULL. The workspace is matmul_workspace(precision, rows, out, in). A NaN goes
    // through the relu as one, whatever the device's library would make of it.
    void (*linear)(Compute how, LinearShape shape, const float *x, const float *weight,
                   const float *bias, float *y);
    size_t (*relu_mask)(Precision precision, LinearShape shape); // bytes of its bits; may be 0
    // dweight[out, in] (+)= dy[rows, out]' x[rows, in], and dbias[out] (+)= the column sums of dy.
    // The workspace is matmul_workspace(precision, out, in, rows).
    void (*linear_weight_gradient)(Compute how, LinearShape shape, const float *dy, const float *x,
                                   const LinearGradient *to);
    // Where x was made by a linear with relu, which left *of: dx[rows, in] = dy weight where x > 0,
    // 0 elsewhere. (Other gradients of x are a matmul.) The workspace is as matmul's.
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
    // chosen[n,c,oh,ow] remembers the position in the channel's h*w plane of each maximum (the
    // first of equals; a NaN wins). Padding never wins.
    void (*max_pool)(const Window *window, const float *x, float *y, int32_t *chosen);
    void (*max_pool_gradient)(const Window *window, const int32_t *chosen, const float *dy,
                              float *dx, bool accumulate);
    // Divides by kernel^2, padding included (PyTorch's count_include_pad default).
    void (*avg_pool)(const Window *window, const float *x, float *y);
    void (*avg_pool_gradient)(const Window *window, const float *dy, float *dx, bool accumulate);
} ConvolutionKernels;

// ---- batch norm --------------------------------------------------------------------------------

// The tensors of a batch norm over x[n, c, inner] (inner = h w; 1 for a matrix); the others are
// [c]. A function uses those that its comment names.
typedef struct BatchNorm {
    const float *x;
    size_t n, c, inner;
    const float *weight, *bias;
    float *mean, *invstd; // of this batch: average, 1/sqrt(variance + eps)
    float *running_mean, *running_var;
    float momentum, eps;
    int64_t *num_batches_tracked; // [1]; NULL: not counted
    // Functions whose comment says "then" do y = relu(y + residual) in the same pass.
    bool relu;
    const float *residual; // [n, c, inner], with relu only; NULL: nothing is added
    const float *y;        // with relu: forward's result, for the gradient
} BatchNorm;

typedef struct NormGradient { // where gradients go; a tensor whose gradient nobody wants is NULL
    float *dx, *dweight, *dbias;
    bool add_dx, add_dweight, add_dbias; // `accumulate` of each one
} NormGradient;

typedef struct NormKernels {
    // Training: y = (x - mean) invstd weight + bias, then relu if asked for. Writes mean and invstd
    // (with the biased variance), moves the running ones: running = (1-momentum) running + momentum
    // batch, with the unbiased variance, and counts the batch. n*inner == 0 leaves everything but
    // the count untouched (1 is refused by the op).
    void (*batch_norm)(const BatchNorm *norm, float *y);
    // Evaluation: y = (x - running_mean) / sqrt(running_var + eps) weight + bias, then relu if
    // asked for; may be in place
    void (*batch_norm_eval)(const BatchNorm *norm, float *y);
    // From x, dy, weight, mean and invstd: dx (+)=, dweight (+)=, dbias (+)=. After a relu, dy
    // counts where y > 0 only, and its contents are undefined afterwards. (This is not for a norm
    // with a residual: the caller cuts dy so first, because that is the residual's gradient.)
    void (*batch_norm_gradient)(const BatchNorm *norm, float *dy, const NormGradient *to);
    // The gradient of batch_norm_eval, for which the running statistics are constants.
    void (*batch_norm_eval_gradient)(const BatchNorm *norm, const float *dy,
                                     const NormGradient *to);

    // What follows is for a batch that is spread over ranks: the steps between which they talk.
    // Writes mean and invstd of this rank's elements; without elements, zeros.
    void (*batch_norm_statistics)(const BatchNorm *norm);
    // rows[ranks, 2c + 1] hold each rank's mean[c], invstd[c] and count of elements per channel:
    // mean, invstd and the running statistics become those of all elements together, added up in
    // rank order. count[1] is how many those are; one below 2 leaves everything else untouched.
    void (*batch_norm_merge)(const BatchNorm *norm, const float *rows, size_t ranks, double *count);
    // y = (x - mean) invstd weight + bias
    void (*batch_norm_apply)(const BatchNorm *norm, float *y);
    // sums[2, c]: the sums of dy and of dy (x - mean). dweight (+)= the second times invstd,
    // dbias (+)= the first.
    void (*batch_norm_gradient_sums)(const BatchNorm *norm, const float *dy, float *sums,
                                     const NormGradient *to);
    // dx (+)=, from such sums over all ranks' count[1] elements per channel (not 0)
    void (*batch_norm_gradient_apply)(const BatchNorm *norm, const float *dy, const float *sums,
                                      const double *count, const NormGradient *to);
} NormKernels;

// ---- losses ------------------------------------------------------------------------------------

typedef struct Labels {    // of rows, for logits [n, classes]
    const int64_t *target; // [n]
    size_t n, classes;
} Labels;

// Rows of yes-or-no questions: how likely each is "yes" is the sigmoid of its logit.
typedef struct Answers {
    const float *logits;     // [n, classes]
    const float *target;     // [n, classes]: 1 yes, 0 no, or in between
    const float *pos_weight; // [classes]: how many times a "yes" counts; NULL: once
    size_t n, classes;
} Answers;

typedef struct Upstream {  // what backward starts with at a loss: its gradient over its divisor
    const float *gradient; // [1], device memory
    double divisor;
} Upstream;

typedef struct LossKernels {
    // probabilities[n,classes] = softmax of each row; loss[1] = the sum over rows of
    // -log probabilities[row, target[row]], over the divisor. A target outside [0, classes) makes
    // it NaN.
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
    // correct[1] = how many rows have their largest logit at target[row] (the first of equals; NaN
    // is wrong, and so is a target that is no class).
    void (*count_correct)(Labels labels, const float *logits, int64_t *correct);
} LossKernels;

// ---- labels of pixels --------------------------------------------------------------------------

// For logits [n, classes, inner], inner pixels per image. A negative target means that the pixel is
// ignored; one that is no class makes its loss NaN.
typedef struct PixelLabels {
    const int64_t *target; // [n, inner]
    size_t n, classes, inner;
} PixelLabels;

// Hard-example mining keeps the pixels whose loss is above the threshold or, if those are fewer
// than `least`, the `least` hardest (of equals the first; all, if there are no more). Ignored
// pixels are never kept, a NaN counts as the largest loss.
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
    // kept[count] = 1 for the pixels to keep, 0 for others; kept_count[1] is how many those are,
    // sum[1] the sum of their losses.
    void (*hard_pixels)(const HardPixels *of, uint8_t *kept, int64_t *kept_count, float *sum);
    // dlogits (+)= (probabilities - onehot(target)) * upstream[1] for kept pixels, 0 for others
    void (*pixel_cross_entropy_gradient)(PixelLabels labels, const float *probabilities,
                                         const uint8_t *kept, const float *upstream, float *dlogits,
                                         bool accumulate);
    // predicted[n, inner] = the class with the largest logit (the first of equals), -1 where one of
    // the logits is NaN.
    void (*predict_pixels)(const float *logits, int32_t *predicted, size_t n, size_t classes,
                           size_t inner);
    // confusion[classes, classes + 1]: how many pixels are of the row's class and predicted as the
    // column's, predicted[n, inner]; the last column counts those predicted as none. Pixels whose
    // target is negative or no class are not counted.
    void (*count_pixels)(PixelLabels labels, const int32_t *predicted, int64_t *confusion);
} PixelKernels;

// ---- transformers ------------------------------------------------------------------------------

// Rows of a table are looked up: row r of y[rows, channels] is wte[tokens[r]] + wpe[r % length],
// as `rows / length` texts of `length` tokens lie one behind the other. A token that is not in
// [0, vocabulary) makes its row NaN, and has no gradient.
typedef struct Embedding {
    const int64_t *tokens; // [rows]
    size_t rows, length, vocabulary, channels;
} Embedding;

// Every row of x[rows, channels] gets mean 0 and variance 1, then a weight and a bias per channel.
typedef struct LayerNorm {
    const float *x;
    size_t rows, channels;
    const float *weight, *bias; // [channels]
    float *mean, *invstd;       // [rows]: average, 1/sqrt(biased variance + eps)
    float eps;
} LayerNorm;

// Causal attention. Each row of qkv[batch length, 3 heads size] holds the query, key and value of
// one token: 3 times `heads` vectors of `size`. In each of the batch's texts and each head, token t
// takes the average of the values of the tokens s <= t, with the softmax over those s of
// q[t].k[s] / sqrt(size) as weights. y is [batch length, heads size].
typedef struct Attention {
    size_t batch, length, heads, size;
} Attention;

// In 16 bits (PyTorch's scaled_dot_product_attention under autocast): qkv and dy are rounded
// before, the weights before they meet the values (and before or after they are divided by their
// sum), the gradients of the scores before they meet queries and keys, and what comes out after it;
// scores, softmax and sums stay in float32. Where there are halves, 16 bits are theirs.
typedef struct TransformerKernels {
    void (*embedding)(const Embedding *of, const float *wte, const float *wpe, float *y);
    // dwte[vocabulary, channels] (+)= for each token the sum of its rows of dy, in their order;
    // rows of tokens that do not occur are 0 (or left alone). The workspace is device memory.
    size_t (*embedding_workspace)(const Embedding *of);
    void (*embedding_gradient)(const Embedding *of, const float *dy, float *dwte, bool accumulate,
                               void *workspace);
    // dwpe[length, channels] (+)= for each position the sum over the texts, in their order
    void (*position_gradient)(const Embedding *of, const float *dy, float *dwpe, bool accumulate);

    void (*layer_norm)(const LayerNorm *norm, float *y); // writes mean and invstd
    // From x, dy, weight, mean and invstd: dx (+)=, dweight (+)=, dbias (+)=
    void (*layer_norm_gradient)(const LayerNorm *norm, const float *dy, const NormGradient *to);

    // y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): PyTorch's GELU, approximate='tanh'. If
    // the gradient will be wanted, x becomes `saved`: what the backend computes it from, which is
    // the derivative at x, or x as it was.
    void (*gelu)(float *y, float *x, size_t count, bool save);
    // dx (+)= dy times the derivative at x; dx may be dy (then accumulate is false)
    void (*gelu_gradient)(float *dx, const float *saved, const float *dy, size_t count,
                          bool accumulate);

    // What attention saves for its gradient, in bytes of device memory: a backend keeps all weights
    // of its averages, or as little as a number per row and computes them again.
    size_t (*attention_saved)(const Attention *of);
    size_t (*attention_workspace)(Precision precision, const Attention *of);
    void (*attention)(Compute how, const Attention *of, const float *qkv, float *y, void *saved);
    // dqkv (+)= from qkv, y, what was saved, and dy[batch length, heads size]
    void (*attention_gradient)(Compute how, const Attention *of, const float *qkv, const float *y,
                               const void *saved, const float *dy, float *dqkv, bool accumulate);
} TransformerKernels;

// ---- tensors in 16 bits ------------------------------------------------------------------------

// What PyTorch's autocast stores: activations and their gradients as 16-bit numbers. Of images (on
// GPUs) the channels of a pixel lie side by side, [n, h, w, c] ("channels last"), as tensor cores
// read them; rows [n, c] are images of one pixel, in whose memory nothing changes its place. Each
// function does over such tensors what its namesake above does over float32 [n, c, h, w]. It
// computes in float32 and rounds what it stores, once: a gradient that is added to is rounded with
// the sum. All 16-bit numbers of a call are of `precision`, which is not PRECISION_F32. Parameters,
// their gradients and statistics are float32 in their usual order; only the weight of a product
// comes from `narrow`, a convolution's as [k, kernel, kernel, c].
typedef struct ImageSizes { // images [n, c, inner], inner = h w; in 16 bits [n, inner, c]
    size_t n, c, inner;
} ImageSizes;

typedef struct HalfNorm {
    BatchNorm of;                     // all but x, residual and y, which are these:
    const uint16_t *x, *residual, *y; // [n, inner, c]
} HalfNorm;

typedef struct HalfKernels {
    // From float32, and back.
    void (*narrow)(Precision precision, ImageSizes of, const float *x, uint16_t *y,
                   bool accumulate);
    void (*widen)(Precision precision, ImageSizes of, const uint16_t *x, float *y, bool accumulate);
    void (*add)(Precision precision, uint16_t *y, const uint16_t *a, const uint16_t *b,
                size_t count); // may be in place
    // y = a + b in float32, which may be a's place: the sum of a tensor of each kind
    void (*add_to)(Precision precision, float *y, const float *a, const uint16_t *b, size_t count);
    void (*relu)(Precision precision, uint16_t *y, const uint16_t *x,
                 size_t count); // in place, too
    // dx may be dy (then accumulate is false)
    void (*relu_gradient)(Precision precision, uint16_t *dx, const uint16_t *y, const uint16_t *dy,
                          size_t count, bool accumulate);
    // TransformerKernels' GELU, whose gradient is made from x as it was.
    void (*gelu)(Precision precision, uint16_t *y, const uint16_t *x, size_t count);
    void (*gelu_gradient)(Precision precision, uint16_t *dx, const uint16_t *x, const uint16_t *dy,
                          size_t count, bool accumulate);
    // TransformerKernels says how much is saved, and how large the workspace is. The weights are
    // rounded before they are divided by their sum, as in FlashAttention; the gradient, which knows
    // the sum, rounds them after it.
    void (*attention)(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                      void *saved);
    void (*attention_gradient)(Compute how, const Attention *of, const uint16_t *qkv,
                               const uint16_t *y, const void *saved, const uint16_t *dy,
                               uint16_t *dqkv, bool accumulate);
    // The linear layer's parameters as its products take them in narrow[linear_narrow_count]; the
    // bias may be NULL.
    void (*narrow_linear)(Precision precision, LinearShape shape, const float *weight,
                          const float *bias, uint16_t *narrow);
    // The three products: the workspace is linear_workspace, the mask is that of MatrixKernels. The
    // gradients of the two parameters are rounded to 16 bits, as PyTorch's are, and then added.
    size_t (*linear_workspace)(Precision precision, LinearShape shape);
    // Of the bias, which may be NULL, the rounded values are added.
    void (*linear)(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *narrow,
                   const float *bias, uint16_t *y);
    void (*linear_weight_gradient)(Compute how, LinearShape shape, const uint16_t *dy,
                                   const uint16_t *x, const LinearGradient *to);
    // dx[rows, in] (+)= dy weight; if x was made by a linear with relu, which left *of, only where
    // x > 0 (then accumulate is false). of is NULL otherwise.
    void (*linear_input_gradient)(Compute how, LinearShape shape, const uint16_t *dy,
                                  const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                  bool accumulate);
    size_t (*conv2d_workspace)(Precision precision, const Window *window);
    void (*conv2d)(Compute how, const Window *window, const uint16_t *x, const uint16_t *weight,
                   const float *bias, uint16_t *y);
    void (*conv2d_input_gradient)(Compute how, const Window *window, const uint16_t *weight,
                                  const uint16_t *dy, uint16_t *dx, bool accumulate);
    // Both are rounded and then added, as a linear layer's.
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
    // The window's n, c, h and w are x's; the rest of it means nothing.
    void (*upsample2x)(Precision precision, const Window *window, const uint16_t *x, uint16_t *y);
    void (*upsample2x_gradient)(Precision precision, const Window *window, const uint16_t *dy,
                                uint16_t *dx, bool accumulate);
    // With a residual the result is rounded before it is added, too.
    void (*batch_norm)(Precision precision, const HalfNorm *norm, uint16_t *y);
    void (*batch_norm_eval)(Precision precision, const HalfNorm *norm, uint16_t *y);
    // dx (NULL: nobody wants it) stands for to->dx; dy stays as it is.
    void (*batch_norm_gradient)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                uint16_t *dx, const NormGradient *to);
    // The steps over several ranks, but for the merge, which has no images. dx is never NULL.
    void (*batch_norm_statistics)(Precision precision, const HalfNorm *norm);
    void (*batch_norm_apply)(Precision precision, const HalfNorm *norm, uint16_t *y);
    void (*batch_norm_gradient_sums)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                     float *sums, const NormGradient *to);
    void (*batch_norm_gradient_apply)(Precision precision, const HalfNorm *norm, const uint16_t *dy,
                                      const float *sums, const double *count, uint16_t *dx,
                                      const NormGradient *to);
} HalfKernels;

// ---- optimizers: a list of parameters in one call ----------------------------------------------

// What an optimizer's step multiplies by, computed in double and rounded once. It lies in device
// memory, because a captured graph of a step (device.h) keeps all that is passed by value.
enum { SCALAR_LR, SCALAR_KEEP, SCALAR_STEP_SIZE, SCALAR_BIAS_CORRECTION, SCALARS };

typedef struct SgdConfig { // PyTorch's torch.optim.SGD
    float momentum, weight_decay;
    bool nesterov;
} SgdConfig;

typedef struct SgdTensor {
    float *weight; // [count], as all that follows
    const float *gradient;
    float *velocity;      // may be NULL when momentum is 0
    const float *scalars; // [SCALARS], device memory; SCALAR_LR only
    bool first;           // (PyTorch) velocity is set to the gradient
    size_t count;
} SgdTensor;

// PyTorch's torch.optim.Adam and AdamW, which differ in where the weight decays: Adam adds
// weight_decay times the weight to the gradient, AdamW multiplies the weight by SCALAR_KEEP.
typedef struct AdamConfig {
    float beta1, beta2, eps;
    float weight_decay; // Adam's; 0 in AdamW
} AdamConfig;

typedef struct AdamTensor {
    float *weight; // [count], as all that follows
    const float *gradient;
    float *exp_avg, *exp_avg_sq;
    // [SCALARS], device memory: KEEP 1 - lr weight_decay (1 in Adam), STEP_SIZE lr / (1 - beta1^t),
    // BIAS_CORRECTION sqrt(1 - beta2^t)
    const float *scalars;
    size_t count;
} AdamTensor;

// What another process has of a tensor, in memory that this device reaches. In one pass the step
// adds that gradient to the tensor's, and gives the new weights to both.
typedef struct OptimizerPeer {
    const float *gradient; // [count] the step's is (tensor's + this) * factor; NULL: the tensor's
    float factor;
    float *weight; // [count], on 16 bytes; NULL: nobody else gets it
} OptimizerPeer;

typedef struct OptimizerKernels {
    void (*sgd)(const SgdConfig *config, const SgdTensor *tensors, size_t tensor_count);
    void (*adam)(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count);
    // One tensor, with a peer. NULL where a device reaches no other process's memory.
    void (*sgd_with_peer)(const SgdConfig *config, const SgdTensor *t, const OptimizerPeer *peer);
    void (*adam_with_peer)(const AdamConfig *config, const AdamTensor *t,
                           const OptimizerPeer *peer);
} OptimizerKernels;

// ---- a backend's -------------------------------------------------------------------------------

typedef struct Kernels {
    const char *name; // "cpu", "ref", "cuda"
    // What kind of device this is. Asked by device_is_cpu and its neighbours (device.h).
    bool is_cpu;         // it computes on the host's own cores
    bool is_synchronous; // what is asked of it is done when the call returns
    bool is_addressable; // the host can read and write its memory as its own
    // What computes: "OpenBLAS 0.3.21 SkylakeX, pthread, 1 thread, ...", filled into
    // buffer[capacity].
    void (*describe)(char *buffer, size_t capacity);
    // Called by device_open: makes the library behind the table usable from several threads, or
    // says why it is not. 0, or -1 with err filled.
    int (*prepare)(Error *err);
    // From now on so many threads compute a matrix product. They are the process's, and callers of
    // several devices would take turns with them. NULL: its products are not divided so. 0, or -1
    // with err filled.
    int (*use_threads)(int count, Error *err);

    const ElementwiseKernels *elementwise;
    const SliceKernels *slices;
    const MatrixKernels *matrix;
    const ConvolutionKernels *convolution;
    const NormKernels *norm;
    const LossKernels *loss;
    const PixelKernels *pixels;
    const TransformerKernels *transformer; // NULL where a backend has none: gpt is refused there
    const HalfKernels *halves; // NULL where all is stored in float32, in 16-bit precision, too
    const OptimizerKernels *optimizer;
} Kernels;

extern const Kernels kernels_cpu, kernels_ref, kernels_cuda; // kernels_cuda: builds with CUDA

#endif
