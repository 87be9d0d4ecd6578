/* half_copy.c: which copies a linear layer may read, and their rounding outside the optimizer. */
#include "common/nn/half_copy.h"

// Gives a weight without a copy's memory room for both parameters of its layer.
static void allocate_both(const Tensor *weight, HalfCopy *bias, LinearShape shape) {
    weight->half->bytes = linear_narrow_count(shape) * sizeof *weight->half->data;
    weight->half->data = device_alloc(weight->device, weight->half->bytes);
    if (bias) bias->data = weight->half->data + linear_narrow_bias(shape);
}

uint16_t *half_copy_linear(Tensor *weight, Tensor *bias, Precision precision, LinearShape shape,
                           bool allocate) {
    HalfCopy *of_weight = weight->half, *of_bias = bias ? bias->half : NULL;
    if (!of_weight || of_weight->precision != precision || (bias && !of_bias)) return NULL;
    if (!of_weight->data && allocate && !(of_bias && of_bias->data))
        allocate_both(weight, of_bias, shape);
    uint16_t *data = of_weight->data;
    if (!data || of_weight->bytes != linear_narrow_count(shape) * sizeof *data) return NULL;
    if (of_bias && of_bias->data != data + linear_narrow_bias(shape)) return NULL;
    if (!of_weight->current || (of_bias && !of_bias->current))
        device_kernels(weight->device)
            ->halves->narrow_linear(precision, shape, tensor_f32(weight),
                                    bias ? tensor_f32(bias) : NULL, data);
    of_weight->current = true;
    if (of_bias) of_bias->current = true;
    return data;
}

void half_copy_refresh(const Tensor *parameter) {
    HalfCopy *half = parameter->half;
    if (!half || !half->data || half->current) return;
    device_kernels(parameter->device)
        ->elementwise->narrow(half->precision, half->data, tensor_f32(parameter),
                              tensor_count(parameter));
    half->current = true;
}

void half_copy_close(Tensor *parameter) {
    HalfCopy *half = parameter->half;
    if (half) device_free(parameter->device, half->bytes ? half->data : NULL, half->bytes);
    parameter->half = NULL;
}
