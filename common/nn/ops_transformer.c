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

static void layer_norm_backward(Tape *tape, TapeNode *node) {
    Tensor *x = node->inputs[0], *weight = node->inputs[1], *bias = node->inputs[2];
    LayerNorm norm = *(const LayerNorm *)node->saved;
    norm.weight = tensor_f32(weight); // a sharded weight is elsewhere now
    norm.bias = tensor_f32(bias);
    NormGradient to = {0};
    to.dx = tape_grad(tape, x, &to.add_dx);
    to.dweight = tape_grad(tape, weight, &to.add_dweight);
    to.dbias = tape_grad(tape, bias, &to.add_dbias);
    KERNELS(tape)->layer_norm_gradient(&norm, node->output->grad, &to);
    tape_grad_done(tape, bias);
    tape_grad_done(tape, weight);
    tape_grad_done(tape, x);
}

Tensor *op_layer_norm(Tape *tape, Tensor *x, Tensor *weight, Tensor *bias) {
    if (!x) return NULL;
    if (x->ndim != 2 || x->shape[1] != tensor_count(weight))
        return tape_fail(tape, "layer_norm", "input %s does not fit %zu channels",
                         tensor_describe(x).text, tensor_count(weight));
    x = op_float32(tape, x);
    LayerNorm *norm = tape_alloc(tape, sizeof *norm);
    *norm = (LayerNorm){.x = tensor_f32(x),
                        .rows = x->shape[0],
                        .channels = x->shape[1],
                        .weight = tensor_f32(weight),
                        .bias = tensor_f32(bias),
                        .mean = tape_memory(tape, x->shape[0] * sizeof(float)),
                        .invstd = tape_memory(tape, x->shape[0] * sizeof(float)),
                        .eps = 1e-5f};
    Tensor *y = tape_tensor(tape, DTYPE_F32, 2, x->shape);
    KERNELS(tape)->layer_norm(norm, tensor_f32(y));
    tape_record(tape, "layer_norm", layer_norm_backward, y, 3, (Tensor *[]){x, weight, bias}, norm);
    return y;
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
