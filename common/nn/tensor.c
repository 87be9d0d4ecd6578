/* tensor.c: shapes and sizes. */
#include "common/nn/tensor.h"

#include <stdio.h>

size_t dtype_bytes(DType dtype) {
    return dtype == DTYPE_I64 ? 8 : 4;
}

const char *dtype_name(DType dtype) {
    return dtype == DTYPE_I64 ? "I64" : "F32";
}

Tensor tensor_make(Device *device, DType dtype, int ndim, const size_t *shape, void *data) {
    CHECK(ndim >= 0 && ndim <= TENSOR_MAX_DIMS, "a tensor of %d dimensions", ndim);
    Tensor tensor = {.device = device, .dtype = dtype, .ndim = ndim, .data = data};
    for (int i = 0; i < ndim; i++) tensor.shape[i] = shape[i];
    return tensor;
}

size_t tensor_count(const Tensor *tensor) {
    size_t count = 1;
    for (int i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
    return count;
}

size_t tensor_bytes(const Tensor *tensor) {
    return tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

bool tensor_same_shape(const Tensor *a, const Tensor *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}

char *tensor_describe(const Tensor *tensor, char *buffer, size_t capacity) {
    size_t used = (size_t)snprintf(buffer, capacity, "[");
    for (int i = 0; i < tensor->ndim && used < capacity; i++)
        used += (size_t)snprintf(buffer + used, capacity - used, "%s%zu", i ? ", " : "",
                                 tensor->shape[i]);
    if (used < capacity) snprintf(buffer + used, capacity - used, "]");
    return buffer;
}

float tensor_item(const Tensor *tensor) {
    CHECK(tensor->dtype == DTYPE_F32 && tensor_count(tensor) == 1, "tensor_item of %zu elements",
          tensor_count(tensor));
    float value;
    device_copy(NULL, &value, tensor->device, tensor->data, sizeof value);
    return value;
}
