/* tensor_host.c: copies between a tensor and host memory. */
#include "common/nn/half_copy.h"
#include "common/nn/tensor.h"

float tensor_item(const Tensor *tensor) {
    CHECK(tensor->dtype == DTYPE_F32 && tensor_count(tensor) == 1, "tensor_item of %zu elements",
          tensor_count(tensor));
    float value;
    tensor_to_host(tensor, &value);
    return value;
}

void tensor_to_host(const Tensor *tensor, void *host) {
    device_copy(NULL, host, tensor->device, tensor->data, tensor_bytes(tensor));
}

void tensor_from_host(Tensor *tensor, const void *host) {
    device_copy(tensor->device, tensor->data, NULL, host, tensor_bytes(tensor));
    tensor_changed(tensor);
}

void tensor_changed(const Tensor *tensor) {
    if (tensor->half) tensor->half->current = false;
}
