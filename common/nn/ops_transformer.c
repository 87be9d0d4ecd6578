/* ops_transformer.c: the operations of a transformer. Texts are tokens [batch, length]; activations
 * are rows [batch length, channels], one per token, text after text.
 */
#include "common/nn/ops_half.h"

#define KERNELS(tape) device_kernels((tape)->device)->transformer

// ---- embedding ----------------------------------------------------------------------------------

static Embedding embedding_of(const Tensor *tokens, const Tensor *wte) {
    return (Embedding){.tokens = tokens->data,
                       .rows = tensor_count(tokens),
                       .length = tokens->shape[1],
                       .vocabulary = wte->shape[0],
                       .channels = wte->shape[1]};
}

static void embedding_backward(Tape *tape, TapeNode *node) {
    Tensor *tokens = node->inputs[0], *wte = node->inputs[1], *wpe = node->inputs[2];
    const Embedding of = embedding_of(tokens, wte);
    const float *dy = node->output->grad;
    bool accumulate;
    float *grad = tape_grad(tape, wpe, &accumulate);
    if (grad) KERNELS(tape)->position_gradient(&of, dy, grad, accumulate);
    if (grad && !accumulate) { // positions beyond the texts' length have gradient 0
        size_t used = of.length * of.channels;
        device_kernels(tape->device)
            ->elementwise->fill(grad + used, 0.0f, tensor_count(wpe) - used);
    }
    tape_grad_done(tape, wpe);
    grad = tape_grad(tape, wte, &accumulate);
    if (grad)
        KERNELS(tape)->embedding_gradient(
            &of, dy, grad, accumulate, tape_scratch(tape, KERNELS(tape)->embedding_workspace(&of)));
    tape_grad_done(tape, wte);
}

Tensor *op_embedding(Tape *tape, Tensor *tokens, Tensor *wte, Tensor *wpe) {
    if (!tokens) return NULL;
    if (wte->ndim != 2 || wpe->ndim != 2 || wte->shape[1] != wpe->shape[1])
        return tape_fail(tape, "embedding", "wte %s and wpe %s differ in channels",
                         tensor_describe(wte).text, tensor_describe(wpe).text);
    if (tokens->ndim != 2 || tokens->dtype != DTYPE_I64 || tokens->shape[1] > wpe->shape[0])
        return tape_fail(tape, "embedding", "expected tokens [batch, length up to %zu], got %s %s",
                         wpe->shape[0], dtype_name(tokens->dtype), tensor_describe(tokens).text);
    const Embedding of = embedding_of(tokens, wte);
    // If the host cannot read the tokens, the kernel sets the rows of invalid tokens to NaN.
    size_t bad = tensor_find_outside(tokens, 0, (int64_t)of.vocabulary);
    if (bad < of.rows)
        return tape_fail(tape, "embedding", "token %lld is out of range [0, %zu)",
                         (long long)of.tokens[bad], of.vocabulary);
    Tensor *y = tape_tensor(tape, DTYPE_F32, 2, (size_t[]){of.rows, of.channels});
    KERNELS(tape)->embedding(&of, tensor_f32(wte), tensor_f32(wpe), tensor_f32(y));
    tape_record(tape, "embedding", embedding_backward, y, 3, (Tensor *[]){tokens, wte, wpe}, NULL);
    return y;
}

// ---- layer norm ---------------------------------------------------------------------------------

// The sum x + branch of a layer norm in 16 bits: a node of its own, because the sum is used later.
typedef struct BranchAdd {
    Tensor *branch; // in 16 bits; NULL: nothing was added
    bool done;      // the branch's gradient is computed
} BranchAdd;

typedef struct LayerNormSaved {
    LayerNorm norm;
    BranchAdd add;
} LayerNormSaved;

static void branch_add_backward(Tape *tape, TapeNode *node) {
    BranchAdd *add = node->saved;
    const Tensor *branch = add->branch;
    bool accumulate;
    float *grad = add->done ? NULL : tape_grad(tape, node->inputs[1], &accumulate);
    if (grad)
        HALVES(tape)->narrow(tensor_precision(branch), half_sizes(branch), node->output->grad,
                             (void *)grad, accumulate);
    add->done = false;
    tape_grad_done(tape, node->inputs[1]);
    tape_pass_gradient(tape, node, node->inputs[0], true);
}

// The layer norm is the first use of the sum, so its backward is the last: the gradient of the sum
// is complete then, and the branch's is the same, rounded. Returns its memory; NULL: left to
// branch_add_backward.
static uint16_t *branch_gradient(Tape *tape, BranchAdd *add) {
    bool accumulate;
    if (!add->branch || !add->branch->requires_grad || add->branch->has_grad) return NULL;
    add->done = true;
    return (void *)tape_grad(tape, add->branch, &accumulate);
}

static void layer_norm_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    LayerNormSaved *saved = node->saved;
    LayerNorm norm = saved->norm;
    norm.weight = tensor_f32(weight); // a sharded weight is elsewhere now
    norm.bias = tensor_f32(bias);
    NormGradient to = {0};
    to.dx = tape_grad(tape, x, &to.add_dx);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    if (tensor_is_half(node->output))
        HALVES(tape)->layer_norm_gradient(tensor_precision(node->output), &norm,
                                          half_gradient(node->output), &to,
                                          branch_gradient(tape, &saved->add));
    else
        KERNELS(tape)->layer_norm_gradient(&norm, node->output->grad, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    tape_grad_done(tape, x);
}

static void half_layer_norm(Tape *tape, Tensor **x, LayerNormSaved *saved, const Tensor *y) {
    Tensor *branch = saved->add.branch, *sum = *x;
    if (branch) sum = tape_tensor(tape, DTYPE_F32, 2, y->shape);
    HALVES(tape)->layer_norm(tensor_precision(y), &saved->norm, branch ? tensor_half(branch) : NULL,
                             tensor_f32(sum), tensor_half(y));
    if (!branch) return;
    saved->norm.x = tensor_f32(sum);
    tape_record(tape, "add", branch_add_backward, sum, 2, (Tensor *[]){*x, branch}, &saved->add);
    *x = sum;
}

Tensor *op_add_layer_norm(Tape *tape, Tensor **sum, Tensor *branch, Tensor *weight, Tensor *bias) {
    const bool narrows = tape_stores_halves(tape);
    Tensor *x = op_float32(tape, *sum);
    const bool fused = narrows && branch && tensor_is_half(branch);
    if (branch && !fused) x = op_add(tape, x, branch);
    *sum = x;
    if (!x) return NULL;
    if (fused && !tensor_same_shape(x, branch))
        return tape_fail(tape, "layer_norm", "a branch %s does not fit %s",
                         tensor_describe(branch).text, tensor_describe(x).text);
    if (tensor_count(bias) != tensor_count(weight))
        return tape_fail(tape, "layer_norm", "a bias of %s does not fit a weight of %s",
                         tensor_describe(bias).text, tensor_describe(weight).text);
    if (x->ndim != 2 || x->shape[1] != tensor_count(weight))
        return tape_fail(tape, "layer_norm", "input %s does not fit %zu channels",
                         tensor_describe(x).text, tensor_count(weight));
    LayerNormSaved *saved = tape_alloc(tape, sizeof *saved);
    saved->add = (BranchAdd){.branch = fused ? branch : NULL};
    saved->norm = (LayerNorm){.x = tensor_f32(x),
                              .rows = x->shape[0],
                              .channels = x->shape[1],
                              .weight = tensor_f32(weight),
                              .bias = tensor_f32(bias),
                              .mean = tape_memory(tape, x->shape[0] * sizeof(float)),
                              .invstd = tape_memory(tape, x->shape[0] * sizeof(float)),
                              .eps = 1e-5f};
    Tensor *y = tape_tensor(tape, tape_product_dtype(tape), 2, x->shape);
    if (narrows)
        half_layer_norm(tape, sum, saved, y);
    else
        KERNELS(tape)->layer_norm(&saved->norm, tensor_f32(y));
    tape_record(tape, "layer_norm", layer_norm_backward, y, 3, (Tensor *[]){*sum, weight, bias},
                saved);
    return y;
}

Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias) {
    return op_add_layer_norm(tape, &x, NULL, weight, bias);
}

// ---- attention ----------------------------------------------------------------------------------

typedef struct AttentionSaved {
    Attention of;
    void *kernel; // saved by the kernel for its gradient, device memory
} AttentionSaved;

static Compute attention_room(Tape *tape, const Attention *of) {
    size_t bytes = KERNELS(tape)->attention_workspace(tape->precision, of);
    return (Compute){tape->precision, tape_scratch(tape, bytes)};
}

static void attention_backward(Tape *tape, TapeNode *node) {
    Tensor *qkv = node->inputs[0], *y = node->output;
    const AttentionSaved *saved = node->saved;
    bool accumulate;
    float *grad = tape_grad(tape, qkv, &accumulate);
    Compute how = attention_room(tape, &saved->of);
    if (grad && tensor_is_half(qkv))
        HALVES(tape)->attention_gradient(how, &saved->of, tensor_half(qkv), tensor_half(y),
                                         saved->kernel, half_gradient(y), (void *)grad, accumulate);
    else if (grad)
        KERNELS(tape)->attention_gradient(how, &saved->of, tensor_f32(qkv), tensor_f32(y),
                                          saved->kernel, y->grad, grad, accumulate);
    tape_grad_done(tape, qkv);
}

Tensor *op_attention(Tape *tape, Tensor *qkv, size_t length, size_t heads) {
    if (!qkv) return NULL;
    size_t rows = qkv->shape[0], channels = qkv->shape[1] / 3;
    if (qkv->ndim != 2 || channels * 3 != qkv->shape[1] || heads == 0 || channels % heads != 0 ||
        (length == 0 ? rows > 0 : rows % length != 0))
        return tape_fail(tape, "attention",
                         "%s is no query, key and value of %zu heads for texts "
                         "of %zu tokens",
                         tensor_describe(qkv).text, heads, length);
    if (tape_stores_halves(tape)) qkv = op_half(tape, qkv);
    AttentionSaved *saved = tape_alloc(tape, sizeof *saved);
    saved->of = (Attention){length ? rows / length : 0, length, heads, channels / heads};
    saved->kernel = tape_memory(tape, KERNELS(tape)->attention_saved(&saved->of));
    Tensor *y = tape_tensor(tape, qkv->dtype, 2, (size_t[]){rows, channels});
    Compute how = attention_room(tape, &saved->of);
    if (tensor_is_half(qkv))
        HALVES(tape)->attention(how, &saved->of, tensor_half(qkv), tensor_half(y), saved->kernel);
    else
        KERNELS(tape)->attention(how, &saved->of, tensor_f32(qkv), tensor_f32(y), saved->kernel);
    tape_record(tape, "attention", attention_backward, y, 1, &qkv, saved);
    return y;
}
