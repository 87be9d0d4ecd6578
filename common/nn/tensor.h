/* tensor.h: an array on a device, its shape, and its gradient.
 *
 * A Tensor never owns its data. Parameters and buffers point into memory that their Module has
 * allocated on the device; activations point into a tape's arena and are freed when it is reset.
 *
 * The gradient of a parameter has PyTorch's two states: "None" (has_grad false: the contents of
 * `grad` are undefined, and the next backward overwrites them) and defined. zero_grad sets None.
 */
#ifndef COMMON_NN_TENSOR_H
#define COMMON_NN_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/device/device.h"

enum { TENSOR_MAX_DIMS = 4 };

// The output of a product under autocast may be BF16 or F16 (table in tape.h). An image's shape is
// then still [n, c, h, w], its memory order [n, h, w, c] ("channels last").
typedef enum DType { DTYPE_F32, DTYPE_I64, DTYPE_BF16, DTYPE_F16 } DType;

// The rows of a larger tensor that a Tensor holds (fully sharded data parallel: ddp/fsdp).
typedef struct TensorShard {
    size_t first; // the row of the whole tensor that is row 0 here
    size_t rows;  // shape[0] of the whole tensor
} TensorShard;

typedef struct HalfCopy HalfCopy; // a parameter's copy in 16 bits, its optimizer's

typedef struct Tensor {
    Device *device;
    DType dtype;
    int ndim; // 0: a scalar
    size_t shape[TENSOR_MAX_DIMS];
    void *data;
    // Of a matrix in 16 bits: elements from one row to the next, in data and gradient; 0: shape[1].
    // op_linear_padded pads rows; op_float32 and the losses read them, other operations convert.
    size_t pitch;

    // The gradient has the tensor's shape and device, and is float32. A 16-bit tensor's gradient
    // has the tensor's type and memory order; only operations read it.
    bool requires_grad;
    bool has_grad;
    float *grad; // a parameter's: its Module's memory or DDP's bucket; an activation's: the tape's

    // Called once per backward when the last use of this tensor has contributed to its gradient
    // (parameters only). DistributedDataParallel starts its all-reduces from this event. Returns 0,
    // or -1 with err filled, which ends backward with that error.
    int (*on_ready)(void *context, struct Tensor *tensor, Error *err);
    void *on_ready_context;
    // Set by DistributedDataParallel while the gradient is in an all-reduce that its finish has not
    // waited for: optimizer_step is then a failed CHECK.
    bool reducing;

    // Used by the tape during backward: recorded uses that have not contributed yet.
    int pending_uses;

    // Of an activation: whose memory this is (tape.h, "in place"). NULL: memory that no operation
    // may overwrite, as a parameter's or an input's.
    struct Tensor *base;     // the first tensor of the memory; may be this one
    const char *overwritten; // base's: the last operation that has overwritten the memory
    int version,
        last_version; // of the contents when this tensor was made; base's: of the contents now

    const TensorShard *shard; // its owner's; NULL: the tensor is whole

    HalfCopy *half; // of a parameter, its optimizer's; NULL: none. See tensor_changed.

    // A tuple (nn/tuple.h): several tensors passed as one. NULL: an ordinary tensor.
    struct Tensor **items; // [item_count], each a tensor, a tuple, or NULL for PyTorch's None
    int item_count;
} Tensor;

size_t dtype_bytes(DType dtype);
const char *dtype_name(DType dtype); // safetensors' names: "F32", "I64", "BF16", "F16"

Tensor tensor_make(Device *device, DType dtype, int ndim, const size_t *shape, void *data);
size_t tensor_count(const Tensor *tensor); // elements
size_t tensor_bytes(const Tensor *tensor); // padding included
bool tensor_same_shape(const Tensor *a, const Tensor *b);
// Returns the tensor without its memory, in the shape of the whole tensor if it is a shard.
Tensor tensor_whole(const Tensor *tensor);
// The element of the whole tensor that is element 0 of this one.
size_t tensor_first(const Tensor *tensor);
// Returns the index of the first element of an I64 tensor outside [low, high), or tensor_count if
// there is none or the host cannot read the tensor (on a GPU).
size_t tensor_find_outside(const Tensor *tensor, int64_t low, int64_t high);
// "[64, 3, 32, 32]", or "([64, 10], None)" for a tuple; the shapes of a long tuple are truncated.
typedef struct TensorText {
    char text[256];
} TensorText;
TensorText tensor_describe(const Tensor *tensor);
static inline bool tensor_is_half(const Tensor *tensor) {
    return tensor->dtype == DTYPE_BF16 || tensor->dtype == DTYPE_F16;
}
static inline Precision tensor_precision(const Tensor *tensor) { // of the stored elements
    return tensor->dtype == DTYPE_F16    ? PRECISION_F16
           : tensor->dtype == DTYPE_BF16 ? PRECISION_BF16
                                         : PRECISION_F32;
}
// The data as floats, or as 16-bit numbers; CHECKs that they are stored so (op_float32 converts).
static inline float *tensor_f32(const Tensor *tensor) {
    CHECK(tensor->dtype == DTYPE_F32, "a tensor of type %s is taken for float32",
          dtype_name(tensor->dtype));
    return (float *)tensor->data;
}
static inline uint16_t *tensor_half(const Tensor *tensor) {
    CHECK(tensor_is_half(tensor) && !tensor->pitch,
          "a tensor in float32 or with padded rows is taken for one in 16 bits");
    return (uint16_t *)tensor->data;
}
static inline uint16_t *tensor_half_rows(const Tensor *tensor) { // with or without padding
    CHECK(tensor_is_half(tensor) && tensor->ndim == 2, "a tensor is taken for 16-bit rows");
    return (uint16_t *)tensor->data;
}
static inline size_t tensor_pitch(const Tensor *matrix) {
    return matrix->pitch ? matrix->pitch : matrix->shape[1];
}

// Copies between a tensor on any device and the caller's array in host memory: tensor_bytes long,
// of the tensor's type and memory order. Synchronous on a GPU, too: on return the array is complete
// (tensor_to_host) or may be reused (tensor_from_host).
float tensor_item(const Tensor *tensor); // the value of a scalar, as of a loss
void tensor_to_host(const Tensor *tensor, void *host);
void tensor_from_host(Tensor *tensor, const void *host);
// After a parameter's data was written by other means than tensor_from_host, optimizer_step and the
// library's wrappers: its copy in 16 bits (OptimizerConfig.half_copies), if any, is outdated.
void tensor_changed(const Tensor *tensor);

#endif
