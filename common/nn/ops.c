/* ops.c: linear, and the operations that work element by element. Each is a forward function that
 * checks shapes, runs a kernel and records a node, and a backward function below it.
 */
#include "common/nn/half_copy.h"
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)

// ---- linear -----------------------------------------------------------------------------------

static Compute matmul_room(Tape *tape, size_t m, size_t n, size_t k) {
    size_t bytes = KERNELS(tape)->matrix->matmul_workspace(tape->precision, m, n, k);
    return (Compute){tape->precision, tape_scratch(tape, bytes)};
}

static Compute half_room(Tape *tape, const Tensor *x, LinearShape shape) {
    size_t bytes = HALVES(tape)->linear_workspace(tensor_precision(x), shape);
    return (Compute){tensor_precision(x), tape_scratch(tape, bytes)};
}

typedef struct LinearRelu { // saved by the relu's node
    ReluMask mask;
    bool done; // the output's gradient is already masked
} LinearRelu;

typedef struct LinearGelu { // saved by the gelu's node
    bool done;              // the output's gradient is already multiplied by the derivative
} LinearGelu;

static void relu_backward(Tape *tape, TapeNode *node);
static void gelu_backward(Tape *tape, TapeNode *node);

// Returns the previous node's saved values if that is the activation that computed x, the node's
// input, and no other use of x has contributed a gradient. (Other uses were recorded later, so
// their backward ran earlier.)
static void *activation_before(const Tape *tape, const TapeNode *node,
                               void (*backward)(Tape *tape, TapeNode *node)) {
    const Tensor *x = node->inputs[0];
    const TapeNode *before = node - 1;
    if (node == tape->nodes || before->output != x || before->backward != backward) return NULL;
    if (node->input_count > 3) return NULL; // linear_add, whose residual may be x, too
    return x->has_grad ? NULL : before->saved;
}

// dx = dy w. If x is the output of a linear_relu or a linear_gelu, one kernel computes the product
// and the activation's gradient; that one's node then passes the gradient on unchanged.
static void input_gradient(Tape *tape, const TapeNode *node, LinearShape shape) {
    Tensor *x = node->inputs[0];
    const float *dy = node->output->grad, *weight = tensor_f32(node->inputs[1]);
    LinearRelu *relu = activation_before(tape, node, relu_backward);
    LinearGelu *gelu = activation_before(tape, node, gelu_backward);
    bool accumulate;
    float *grad = tape_grad(tape, x, &accumulate);
    if (!grad) return;
    if (relu) relu->done = true;
    if (gelu) gelu->done = true;
    const Compute how = tensor_is_half(x) ? half_room(tape, x, shape)
                                          : matmul_room(tape, shape.rows, shape.in, shape.out);
    if (gelu)
        HALVES(tape)->linear_gelu_gradient(how, shape, half_gradient(node->output), node->saved,
                                           tensor_half((node - 1)->inputs[0]), (void *)grad);
    else if (tensor_is_half(x))
        HALVES(tape)->linear_input_gradient(how, shape, half_gradient(node->output), node->saved,
                                            relu ? &relu->mask : NULL, (void *)grad, accumulate);
    else if (relu)
        KERNELS(tape)->matrix->linear_relu_gradient(how, shape, dy, weight, &relu->mask, grad);
    else
        KERNELS(tape)->matrix->matmul(how,
                                      (MatmulShape){false, false, shape.rows, shape.in, shape.out},
                                      dy, weight, grad, accumulate);
}

// y = x w' + b:  dx = dy w,  dw = dy' x,  db = column sums of dy
static void linear_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    LinearShape shape = {x->shape[0], weight->shape[0], weight->shape[1], NULL, 0};
    if (node->output->pitch) shape.padding = node->output->pitch - shape.out;
    LinearGradient to = {0};
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    if (tensor_is_half(x))
        HALVES(tape)->linear_weight_gradient(half_room(tape, x, shape), shape,
                                             half_gradient(node->output), tensor_half(x), &to);
    else
        KERNELS(tape)->matrix->linear_weight_gradient(
            matmul_room(tape, shape.out, shape.in, shape.rows), shape, node->output->grad,
            tensor_f32(x), &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    input_gradient(tape, node, shape);
    tape_grad_done(tape, x);
}

typedef struct Product {
    Tensor *weight, *bias; // bias may be NULL
    ReluMask *relu; // receives device memory for the mask, NULL if the tape is not recording or the
                    // device needs none; NULL: no relu
    size_t multiple; // rows of y in 16 bits are padded to a multiple of it; 0: they are not
    Tensor **gelu;   // receives gelu(y), in 16 bits; NULL: no gelu
    void *saved;     // set by product: the 16-bit weight, for backward
} Product;

static size_t padding_of(const Product *p) {
    size_t beyond = p->multiple ? p->weight->shape[0] % p->multiple : 0;
    return beyond ? p->multiple - beyond : 0;
}

// Returns the layer's parameters in 16 bits: the optimizer's copies, or memory of this step.
static uint16_t *narrow_parameters(Tape *tape, Precision precision, LinearShape of,
                                   const Product *p) {
    uint16_t *narrow = half_copy_linear(p->weight, p->bias, precision, of, tape->recording);
    if (narrow) return narrow;
    narrow = tape_memory(tape, linear_narrow_count(of) * sizeof *narrow);
    HALVES(tape)->narrow_linear(precision, of, tensor_f32(p->weight),
                                p->bias ? tensor_f32(p->bias) : NULL, narrow);
    return narrow;
}

static Tensor *half_product(Tape *tape, const Tensor *x, LinearShape of, Product *p) {
    of.padding = padding_of(p);
    const float *addend = p->bias ? tensor_f32(p->bias) : NULL;
    Compute how = half_room(tape, x, of);
    uint16_t *narrow = p->saved = narrow_parameters(tape, how.precision, of, p);
    Tensor *y = tape_tensor(tape, x->dtype, 2, (size_t[]){of.rows, of.out + of.padding});
    y->shape[1] = of.out;
    y->pitch = of.padding ? of.out + of.padding : 0;
    if (p->gelu) {
        *p->gelu = tape_tensor(tape, x->dtype, 2, y->shape);
        HALVES(tape)->linear_gelu(how, of, tensor_half(x), narrow, addend,
                                  (HalfGelu){tensor_half(y), tensor_half(*p->gelu)});
    } else {
        HALVES(tape)->linear(how, of, tensor_half(x), narrow, addend, tensor_half_rows(y));
    }
    return y;
}

// Computes the product without recording it.
static Tensor *product(Tape *tape, Tensor *x, Product *p) {
    const Tensor *weight = p->weight, *bias = p->bias;
    ReluMask *relu = p->relu;
    if (!x) return NULL;
    if (weight->ndim != 2 || x->ndim != 2 || x->shape[1] != weight->shape[1])
        return tape_fail(tape, "linear", "input %s does not fit a weight of %s",
                         tensor_describe(x).text, tensor_describe(weight).text);
    if (bias && tensor_count(bias) != weight->shape[0])
        return tape_fail(tape, "linear", "a bias of %s does not fit a weight of %s",
                         tensor_describe(bias).text, tensor_describe(weight).text);
    size_t n = x->shape[0], in = weight->shape[1], out = weight->shape[0];
    const LinearShape of = {n, out, in, relu, 0};
    if (relu && tape->recording) {
        size_t bytes = KERNELS(tape)->matrix->relu_mask(tape->precision, of);
        relu->bits = bytes ? tape_memory(tape, bytes) : NULL;
    }
    if (tensor_is_half(x)) return half_product(tape, x, of, p);
    Tensor *y = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){n, out});
    KERNELS(tape)->matrix->linear(matmul_room(tape, n, out, in), of, tensor_f32(x),
                                  tensor_f32(weight), bias ? tensor_f32(bias) : NULL,
                                  tensor_f32(y));
    return y;
}

static Tensor *linear(Tape *tape, Tensor *x, Product p) {
    if (tape_stores_halves(tape)) x = op_half(tape, x);
    Tensor *y = product(tape, x, &p), *inputs[] = {x, p.weight, p.bias};
    if (y)
        tape_backward_reads(tape_record(tape, "linear", linear_backward, y, 3, inputs, p.saved),
                            TAPE_READS_INPUTS);
    return y;
}

Tensor *op_linear(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias) {
    return linear(tape, x, (Product){.weight = weight, .bias = bias});
}

Tensor *op_linear_padded(Tape *tape, Tensor *x, Tensor *weight, size_t multiple) {
    return linear(tape, x, (Product){.weight = weight, .multiple = multiple});
}

// After the product's backward, the output's gradient moves to the residual.
static void linear_add_backward(Tape *tape, TapeNode *node) {
    linear_backward(tape, node);
    tape_pass_gradient(tape, node, node->inputs[3], true);
}

Tensor *op_linear_add(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias, Tensor *residual) {
    if (tape_stores_halves(tape)) return op_add(tape, residual, op_linear(tape, x, weight, bias));
    Product p = {.weight = weight, .bias = bias};
    Tensor *y = residual ? product(tape, x, &p) : NULL;
    if (!y) return NULL;
    if (!tensor_same_shape(y, residual))
        return tape_fail(tape, "linear", "a residual %s does not fit %s",
                         tensor_describe(residual).text, tensor_describe(y).text);
    KERNELS(tape)->elementwise->add(tensor_f32(y), tensor_f32(residual), tensor_f32(y),
                                    tensor_count(y));
    Tensor *const inputs[] = {x, weight, bias, residual};
    tape_backward_reads(tape_record(tape, "linear", linear_add_backward, y, 4, inputs, p.saved),
                        TAPE_READS_INPUTS);
    return y;
}

// ---- activations, clone, add, flatten ----------------------------------------------------------

const ActivationName activation_names[ACTIVATIONS] = {
    [ACTIVATION_RELU] = {"relu", "ReLU"},
    [ACTIVATION_GELU] = {"gelu", "GELU"},
};

// y = f(x), in x's type.
static void activate(Tape *tape, Activation f, const Tensor *y, const Tensor *x, bool save) {
    if (tensor_is_half(x))
        HALVES(tape)->activation((HalfActivation){tensor_precision(x), f}, tensor_half(y),
                                 tensor_half(x), tensor_count(x));
    else
        KERNELS(tape)->elementwise->activation(f, tensor_f32(y), tensor_f32(x), tensor_count(x),
                                               save);
}

void activation_gradient(Tape *tape, Activation f, const Tensor *x, float *dx, const float *dy,
                         bool accumulate) {
    if (tensor_is_half(x))
        HALVES(tape)->activation_gradient((HalfActivation){tensor_precision(x), f}, (void *)dx,
                                          tensor_half(x), (const void *)dy, tensor_count(x),
                                          accumulate);
    else
        KERNELS(tape)->elementwise->activation_gradient(f, dx, tensor_f32(x), dy, tensor_count(x),
                                                        accumulate);
}

// The gradient of the node's input, in the memory of the output's gradient if possible.
static void activation_input_gradient(Tape *tape, TapeNode *node, Activation f) {
    Tensor *x = node->inputs[0];
    bool accumulate = false;
    const bool in_place = tape_grad_take(tape, node, x);
    float *dx = in_place ? x->grad : tape_grad(tape, x, &accumulate);
    activation_gradient(tape, f, x, dx, in_place ? dx : node->output->grad, accumulate);
    tape_grad_done(tape, x);
}

static void activation_backward(Tape *tape, TapeNode *node) {
    activation_input_gradient(tape, node, *(const Activation *)node->saved);
}

// x's memory contains the output, which has the same mask: y > 0 exactly where x > 0.
static void relu_backward(Tape *tape, TapeNode *node) {
    LinearRelu *before = node->saved;
    if (before && before->done) {
        before->done = false;
        tape_pass_gradient(tape, node, node->inputs[0], true);
    } else {
        activation_input_gradient(tape, node, ACTIVATION_RELU);
    }
}

// x's memory contains relu(x). of: the mask that linear saved, or NULL.
static Tensor *record_relu(Tape *tape, Tensor *x, LinearRelu *of) {
    Tensor *y = tape_alias(tape, x);
    tape_record(tape, "relu", relu_backward, y, 1, &x, of);
    return y;
}

static void identity_backward(Tape *tape, TapeNode *node) {
    tape_pass_gradient(tape, node, node->inputs[0], true);
}

Tensor *op_clone(Tape *tape, Tensor *x) {
    x = op_unpadded(tape, x);
    if (!x) return NULL;
    Tensor *y = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    device_copy(tape->device, y->data, x->device, x->data, tensor_bytes(x));
    tape_backward_reads(tape_record(tape, "clone", identity_backward, y, 1, &x, NULL), 0);
    return y;
}

// x, if it still has its values and its memory may be overwritten, or a copy; NULL: an error.
static Tensor *writable(Tape *tape, const char *op, Tensor *x) {
    x = op_unpadded(tape, x);
    if (!x || !tape_check_values(tape, op, &x, 1)) return NULL;
    return tape_may_overwrite(tape, x) ? x : op_clone(tape, x);
}

Tensor *op_relu(Tape *tape, Tensor *x) {
    x = writable(tape, "relu", x);
    if (!x) return NULL;
    activate(tape, ACTIVATION_RELU, x, x, false);
    Tensor *y = record_relu(tape, x, NULL);
    tape_overwrite(x, y, "relu");
    return y;
}

Tensor *op_activation(Tape *tape, Activation f, Tensor *x) {
    const char *name = activation_names[f].function;
    if (f == ACTIVATION_RELU) return op_relu(tape, x);
    x = writable(tape, name, x);
    if (!x) return NULL;
    Activation *saved = tape_alloc(tape, sizeof *saved);
    *saved = f;
    Tensor *y = tape_tensor(tape, x->dtype, x->ndim, x->shape);
    TapeNode *node = tape_record(tape, name, activation_backward, y, 1, &x, saved);
    tape_backward_reads(node, TAPE_READS_INPUTS);
    activate(tape, f, y, x, node != NULL);
    tape_overwrite(x, NULL, name);
    return y;
}

Tensor *op_linear_relu(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias) {
    LinearRelu *relu = tape_alloc(tape, sizeof *relu);
    *relu = (LinearRelu){0};
    Tensor *y = linear(tape, x, (Product){.weight = weight, .bias = bias, .relu = &relu->mask});
    return y ? record_relu(tape, y, relu) : NULL;
}

static void gelu_backward(Tape *tape, TapeNode *node) {
    LinearGelu *of = node->saved;
    if (of->done) {
        of->done = false;
        tape_pass_gradient(tape, node, node->inputs[0], true);
    } else {
        activation_input_gradient(tape, node, ACTIVATION_GELU);
    }
}

Tensor *op_linear_gelu(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias) {
    if (!tape_stores_halves(tape))
        return op_activation(tape, ACTIVATION_GELU, op_linear(tape, x, weight, bias));
    LinearGelu *gelu = tape_alloc(tape, sizeof *gelu);
    *gelu = (LinearGelu){0};
    Tensor *y = NULL;
    Tensor *before = linear(tape, x, (Product){.weight = weight, .bias = bias, .gelu = &y});
    if (before) tape_record(tape, "gelu", gelu_backward, y, 1, &before, gelu);
    return y;
}

// The narrow input's gradient is the output's, rounded; the wide input's is the output's itself.
static void add_to_backward(Tape *tape, TapeNode *node) {
    Tensor *wide = node->inputs[0], *narrow = node->inputs[1];
    bool accumulate;
    float *grad = tape_grad(tape, narrow, &accumulate);
    if (grad)
        HALVES(tape)->narrow(tensor_precision(narrow), half_sizes(narrow), node->output->grad,
                             (void *)grad, accumulate);
    tape_grad_done(tape, narrow);
    tape_pass_gradient(tape, node, wide, true);
}

// The sum of a float32 and a 16-bit tensor of rows, in float32 (PyTorch's type promotion).
static Tensor *add_to(Tape *tape, Tensor *wide, Tensor *narrow) {
    Tensor *y = tape_tensor(tape, DTYPE_F32, wide->ndim, wide->shape);
    HALVES(tape)->add_to(tensor_precision(narrow), tensor_f32(y), tensor_f32(wide),
                         tensor_half(narrow), tensor_count(y));
    Tensor *const inputs[] = {wide, narrow};
    tape_backward_reads(tape_record(tape, "add", add_to_backward, y, 2, inputs, NULL), 0);
    return y;
}

static void add_backward(Tape *tape, TapeNode *node) {
    tape_pass_gradient(tape, node, node->inputs[0], false);
    tape_pass_gradient(tape, node, node->inputs[1], true);
}

Tensor *op_add(Tape *tape, Tensor *a, Tensor *b) {
    a = op_unpadded(tape, a);
    b = op_unpadded(tape, b);
    if (!a || !b) return NULL;
    if (!tensor_same_shape(a, b))
        return tape_fail(tape, "add", "shapes %s and %s differ", tensor_describe(a).text,
                         tensor_describe(b).text);
    if (tensor_is_half(a) != tensor_is_half(b)) {
        if (a->ndim == 2) return tensor_is_half(b) ? add_to(tape, a, b) : add_to(tape, b, a);
        a = op_float32(tape, a);
        b = op_float32(tape, b);
    }
    Tensor *y = tape_tensor(tape, a->dtype, a->ndim, a->shape);
    if (tensor_is_half(a))
        HALVES(tape)->add(tensor_precision(a), tensor_half(y), tensor_half(a), tensor_half(b),
                          tensor_count(a));
    else
        KERNELS(tape)->elementwise->add(tensor_f32(y), tensor_f32(a), tensor_f32(b),
                                        tensor_count(a));
    tape_backward_reads(tape_record(tape, "add", add_backward, y, 2, (Tensor *[]){a, b}, NULL), 0);
    return y;
}

Tensor *op_flatten(Tape *tape, Tensor *x) {
    x = op_unpadded(tape, x);
    if (!x) return NULL;
    if (x->ndim < 1) return tape_fail(tape, "flatten", "a scalar has no rows");
    size_t rest = 1;
    for (int i = 1; i < x->ndim; i++) rest *= x->shape[i];
    if (x->ndim > 2 && rest != x->shape[1]) x = op_float32(tape, x); // to pixels side by side
    Tensor *y = tape_alias_as(tape, x, 2, (size_t[]){x->shape[0], rest});
    tape_backward_reads(tape_record(tape, "flatten", identity_backward, y, 1, &x, NULL), 0);
    return y;
}
