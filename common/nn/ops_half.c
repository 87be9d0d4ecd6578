/* ops_half.c: conversions between float32 and 16 bits. */
#include "common/nn/ops_half.h"

bool tape_stores_halves(const Tape *tape) {
    return tape->precision != PRECISION_F32 && tape->device->kernels->halves;
}

DType tape_product_dtype(const Tape *tape) {
    return !tape_stores_halves(tape)          ? DTYPE_F32
           : tape->precision == PRECISION_F16 ? DTYPE_F16
                                              : DTYPE_BF16;
}

ImageSizes half_sizes(const Tensor *x) {
    size_t n = x->shape[0], c = x->ndim > 1 ? x->shape[1] : 1, inner = 1; // no scalar has 16 bits
    for (int i = 2; i < x->ndim; i++) inner *= x->shape[i];
    return (ImageSizes){n, c, inner};
}

static HalfRows rows_of(const Tensor *x) {
    return (HalfRows){x->shape[0], x->shape[1], x->pitch};
}

static void half_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *y = node->output;
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    HALVES(tape)->widen(tensor_precision(y), half_sizes(y), half_gradient(y), dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_half(Tape *tape, Tensor *x) {
    x = op_unpadded(tape, x);
    if (!x || tensor_is_half(x)) return x;
    Tensor *y = tape_tensor(tape, tape_product_dtype(tape), x->ndim, x->shape);
    HALVES(tape)->narrow(tensor_precision(y), half_sizes(x), tensor_f32(x), tensor_half(y), false);
    tape_backward_reads(tape_record(tape, "half", half_backward, y, 1, &x, NULL), 0);
    return y;
}

static void float32_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0];
    bool accumulate;
    float *dx = tape_grad(tape, x, &accumulate);
    const float *dy = node->output->grad;
    if (x->pitch)
        HALVES(tape)->narrow_rows(tensor_precision(x), rows_of(x), dy, (void *)dx, accumulate);
    else
        HALVES(tape)->narrow(tensor_precision(x), half_sizes(x), dy, (void *)dx, accumulate);
    tape_grad_done(tape, x);
}

Tensor *op_float32(Tape *tape, Tensor *x) {
    if (!x || !tensor_is_half(x)) return x;
    Tensor *y = tape_tensor(tape, DTYPE_F32, x->ndim, x->shape);
    if (x->pitch)
        HALVES(tape)->widen_rows(tensor_precision(x), rows_of(x), tensor_half_rows(x),
                                 tensor_f32(y), false);
    else
        HALVES(tape)->widen(tensor_precision(x), half_sizes(x), tensor_half(x), tensor_f32(y),
                            false);
    tape_backward_reads(tape_record(tape, "float32", float32_backward, y, 1, &x, NULL), 0);
    return y;
}

Tensor *op_unpadded(Tape *tape, Tensor *x) {
    return x && x->pitch ? op_float32(tape, x) : x;
}
