/* gpt.c: the model as one would write it in PyTorch. */
#include "common/nn/gpt.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"
#include "common/nn/tuple.h"

enum { GPT_TRANSFORMER, GPT_HEAD };                            // children of a GPT
enum { BODY_WTE, BODY_WPE, BODY_BLOCKS, BODY_NORM };           // children of its transformer
enum { BLOCK_NORM1, BLOCK_ATTENTION, BLOCK_NORM2, BLOCK_MLP }; // children of a block
enum { ATTENTION_QKV, ATTENTION_OUT };                         // children of its attention
enum { MLP_IN, MLP_GELU, MLP_OUT };                            // children of its MLP
enum { CONFIG_HEADS, CONFIG_HEAD_SIZE, CONFIG_LAYERS = 0 };    // config of an attention; of a GPT
enum { VOCABULARY_MULTIPLE = 128 }; // pads the logits' rows in 16 bits: cuBLASLt's tile size

// The residual stream between blocks: a tensor x, or {x, branch}, whose sum the next layer norm
// computes.
static Tensor *stream(Tape *tape, Tensor *x, Tensor *branch) {
    return branch ? tuple_keep(tape, (Tensor *[]){x, branch}, 2) : x;
}

static Tensor *stream_branch(const Tensor *x) {
    return x && x->items ? x->items[1] : NULL;
}

static Tensor *stream_sum(Tensor *x) {
    return x && x->items ? x->items[0] : x;
}

// x + attention(ln_1 x), then x + mlp(ln_2 x). pair: {stream, tokens [batch, length]}
static Tensor *block_forward(Module *self, Tape *tape, Tensor *pair) {
    Module **part = self->children, *attention = part[BLOCK_ATTENTION], *mlp = part[BLOCK_MLP];
    Tensor *x = stream_sum(pair->items[0]), *branch = stream_branch(pair->items[0]);
    const size_t length = pair->items[1]->shape[1];
    Tensor *y = layer_norm_add(part[BLOCK_NORM1], tape, &x, branch);
    y = module_forward(attention->children[ATTENTION_QKV], tape, y);
    y = op_attention(tape, y, length, attention->config[CONFIG_HEADS]);
    branch = layer_linear_add(attention->children[ATTENTION_OUT], tape, y, &x);
    y = layer_norm_add(part[BLOCK_NORM2], tape, &x, branch);
    y = layer_linear_gelu(mlp->children[MLP_IN], mlp->children[MLP_GELU], tape, y);
    branch = layer_linear_add(mlp->children[MLP_OUT], tape, y, &x);
    return stream(tape, x, branch);
}

static Tensor *gpt_forward(Module *self, Tape *tape, Tensor *tokens) {
    Module **part = self->children[GPT_TRANSFORMER]->children, *blocks = part[BODY_BLOCKS];
    Tensor *x = op_embedding(tape, tokens, module_parameter(part[BODY_WTE], 0),
                             module_parameter(part[BODY_WPE], 0));
    for (int i = 0; i < blocks->child_count; i++)
        x = module_forward(blocks->children[i], tape, tuple_keep(tape, (Tensor *[]){x, tokens}, 2));
    Tensor *sum = stream_sum(x);
    x = layer_norm_add(part[BODY_NORM], tape, &sum, stream_branch(x));
    return module_forward(self->children[GPT_HEAD], tape, x);
}

static Tensor *head_forward(Module *self, Tape *tape, Tensor *x) {
    return op_linear_padded(tape, x, module_parameter(self, 0), VOCABULARY_MULTIPLE);
}

static Module *table(Device *device, size_t rows, size_t channels) {
    Module *module = module_create("Embedding", NULL); // GPT looks up both of its tables at once
    module_add_parameter(module, device, "weight", 2, (size_t[]){rows, channels});
    return module;
}

static Module *create_block(const GptSizes *sizes, Device *device) {
    size_t width = sizes->embedding;
    Module *module = module_create("Block", block_forward),
           *attention = module_create("Attention", NULL);
    module_add(module, "ln_1", layer_norm(device, width));
    module_add(module, "attn", attention);
    attention->config[CONFIG_HEADS] = sizes->heads;
    attention->config[CONFIG_HEAD_SIZE] = width / sizes->heads;
    module_add(attention, "c_attn", layer_linear(device, width, 3 * width));
    module_add(attention, "c_proj", layer_linear(device, width, width));
    module_add(module, "ln_2", layer_norm(device, width));
    Module *wide = module_add(module, "mlp", module_create("MLP", NULL));
    module_add(wide, "c_fc", layer_linear(device, width, 4 * width));
    module_add(wide, "gelu", layer_activation(ACTIVATION_GELU));
    module_add(wide, "c_proj", layer_linear(device, 4 * width, width));
    return module;
}

static int check_sizes(const GptSizes *sizes, size_t vocabulary, Error *err) {
    if (sizes->layers > GPT_MAX_LAYERS || sizes->heads > GPT_MAX_HEADS ||
        sizes->embedding > GPT_MAX_SIZE || sizes->context > GPT_MAX_SIZE ||
        vocabulary > GPT_MAX_SIZE)
        return error_set(err, STATUS_USAGE,
                         "a gpt of %zu layers, %zu heads, embedding %zu, context %zu, vocabulary "
                         "%zu is too large: at most %d, %d, %d, %d, %d",
                         sizes->layers, sizes->heads, sizes->embedding, sizes->context, vocabulary,
                         GPT_MAX_LAYERS, GPT_MAX_HEADS, GPT_MAX_SIZE, GPT_MAX_SIZE, GPT_MAX_SIZE);
    if (sizes->heads == 0 || sizes->embedding % sizes->heads != 0)
        return error_set(err, STATUS_USAGE, "an embedding of %zu does not divide among %zu heads",
                         sizes->embedding, sizes->heads);
    return 0;
}

Module *gpt_create(const GptSizes *sizes, size_t vocabulary, Device *device, Error *err) {
    if (!device_kernels(device)->transformer)
        return error_null(err, STATUS_USAGE, "%s has no kernels for a transformer yet",
                          device->name);
    if (check_sizes(sizes, vocabulary, err) != 0) return NULL;
    Module *gpt = module_create("GPT", gpt_forward), *body = module_create("Transformer", NULL);
    gpt->config[CONFIG_LAYERS] = sizes->layers;
    module_add(gpt, "transformer", body);
    Module *tokens = module_add(body, "wte", table(device, vocabulary, sizes->embedding));
    module_add(body, "wpe", table(device, sizes->context, sizes->embedding));
    Module *blocks = module_add(body, "h", module_create("Blocks", NULL));
    char name[MODULE_NAME];
    for (size_t i = 0; i < sizes->layers; i++) {
        snprintf(name, sizeof name, "%zu", i);
        module_add(blocks, name, create_block(sizes, device));
    }
    module_add(body, "ln_f", layer_norm(device, sizes->embedding));
    Module *head = layer_linear_without_bias(device, sizes->embedding, vocabulary);
    head->forward = head_forward;
    module_tie_parameter(module_add(gpt, "lm_head", head), "weight", tokens, "weight");
    return gpt;
}

void gpt_initialize(Module *gpt, uint64_t seed) {
    NamedTensors list = module_tensors(gpt, MODULE_PARAMETERS);
    double less = sqrt(2.0 * (double)gpt->config[CONFIG_LAYERS]);
    for (size_t i = 0; i < list.count; i++) {
        Tensor *tensor = list.items[i].tensor;
        if (tensor->ndim < 2) continue; // biases are 0 and layer norms 1 already
        bool adds = strstr(list.items[i].name, ".c_proj.") != NULL;
        float deviation = (float)(adds ? 0.02 / less : 0.02);
        size_t count = tensor_count(tensor), first = tensor_first(tensor);
        if (device_is_dry(tensor->device)) continue;
        float *host = memory_zalloc(count * sizeof *host);
        for (size_t j = 0; j < count; j++)
            host[j] = deviation * rng_normal(seed, RNG_STREAM_PARAMETER + i, first + j);
        tensor_from_host(tensor, host);
        free(host);
    }
    named_tensors_free(&list);
}

size_t gpt_attention_size(Module *module, Device **device) {
    if (strcmp(module->type, "Attention") != 0 || !module->config[CONFIG_HEAD_SIZE]) return 0;
    *device = module_parameter(module->children[ATTENTION_QKV], 0)->device;
    return module->config[CONFIG_HEAD_SIZE];
}
