/* tensor.c: shapes and sizes. Independent of the device layer (tensor_host.c copies), so a program
 * that only reads tensor files links no kernels and loads no OpenBLAS.
 */
#include "common/nn/tensor.h"

#include "common/base/format.h"

size_t dtype_bytes(DType dtype) {
    static const size_t bytes[] = {4, 8, 2, 2};
    return bytes[dtype];
}

const char *dtype_name(DType dtype) {
    static const char *const names[] = {"F32", "I64", "BF16", "F16"};
    return names[dtype];
}

Tensor tensor_make(Device *device, DType dtype, int ndim, const size_t *shape, void *data) {
    CHECK(ndim >= 0 && ndim <= TENSOR_MAX_DIMS, "ndim: a tensor of %d dimensions", ndim);
    CHECK(ndim == 0 || shape, "shape is NULL, of a tensor of %d dimensions", ndim);
    Tensor tensor = {.device = device, .dtype = dtype, .ndim = ndim, .data = data};
    size_t bytes = dtype_bytes(dtype);
    for (int i = 0; i < ndim; i++) {
        tensor.shape[i] = shape[i];
        CHECK(!__builtin_mul_overflow(bytes, shape[i], &bytes), "shape: the bytes of %s overflow",
              tensor_describe(&tensor).text);
    }
    return tensor;
}

size_t tensor_count(const Tensor *tensor) {
    size_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

size_t tensor_bytes(const Tensor *tensor) {
    const size_t count = tensor->pitch ? tensor->shape[0] * tensor->pitch : tensor_count(tensor);
    return count * dtype_bytes(tensor->dtype);
}

bool tensor_same_shape(const Tensor *a, const Tensor *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

Tensor tensor_whole(const Tensor *tensor) {
    Tensor whole = tensor_make(tensor->device, tensor->dtype, tensor->ndim, tensor->shape, NULL);
    if (tensor->shard) whole.shape[0] = tensor->shard->rows;
    return whole;
}

size_t tensor_first(const Tensor *tensor) {
    size_t row = 1;
    for (int i = 1; i < tensor->ndim; i++) row *= tensor->shape[i];
    return tensor->shard ? tensor->shard->first * row : 0;
}

size_t tensor_find_outside(const Tensor *tensor, int64_t low, int64_t high) {
    const int64_t *values = tensor->data;
    size_t count = tensor_count(tensor);
    for (size_t i = 0; device_is_addressable(tensor->device) && i < count; i++)
        if (values[i] < low || values[i] >= high) return i;
    return count;
}

static void describe(TensorText *to, const Tensor *tensor) {
    if (!tensor) {
        format_append(to->text, sizeof to->text, "None");
        return;
    }
    int count = tensor->items ? tensor->item_count : tensor->ndim;
    format_append(to->text, sizeof to->text, tensor->items ? "(" : "[");
    for (int i = 0; i < count; i++) {
        if (i > 0) format_append(to->text, sizeof to->text, ", ");
        if (tensor->items)
            describe(to, tensor->items[i]);
        else
            format_append(to->text, sizeof to->text, "%zu", tensor->shape[i]);
    }
    format_append(to->text, sizeof to->text, tensor->items ? ")" : "]");
}

TensorText tensor_describe(const Tensor *tensor) {
    TensorText text = {""};
    describe(&text, tensor);
    return text;
}
