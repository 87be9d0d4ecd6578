/* models.c: the models by name, each written as one would in PyTorch. */
#include "common/nn/models.h"

#include <string.h>

#include "common/base/format.h"
#include "common/nn/layers.h"
#include "common/nn/ops.h"

// ---- toy and mlp ------------------------------------------------------------------------------

static size_t input_size(const ModelConfig *config) {
    return config->input[0] * config->input[1] * config->input[2];
}

static Module *toy(const ModelConfig *config, Device *device, Error *err) {
    (void)err;
    Module *model = layer_sequential("ToyModel");
    module_add(model, "flatten", layer_flatten());
    module_add(model, "net1", layer_linear(device, input_size(config), 10));
    module_add(model, "relu", layer_relu());
    module_add(model, "net2", layer_linear(device, 10, config->outputs));
    return model;
}

int model_parse_hidden(const char *text, size_t *sizes, Error *err) {
    int count = 0;
    for (const char *at = text; *at;) {
        uint64_t size;
        if (!format_read_number(&at, MLP_MAX_WIDTH, &size) || size == 0 ||
            count == MLP_MAX_HIDDEN || !format_read_comma(&at))
            return error_set(err, STATUS_USAGE,
                             "--hidden %s: expected up to %d sizes from 1 to %d, like 256,128",
                             format_quote(text).text, MLP_MAX_HIDDEN, MLP_MAX_WIDTH);
        sizes[count++] = (size_t)size;
    }
    return count;
}

static Module *mlp(const ModelConfig *config, Device *device, Error *err) {
    size_t hidden[MLP_MAX_HIDDEN];
    if (!config->hidden)
        return error_null(err, STATUS_USAGE,
                          "model mlp without hidden: expected sizes like \"256,128\"");
    int count = model_parse_hidden(config->hidden, hidden, err);
    if (count < 0) return NULL;
    Module *model = layer_sequential("MLP");
    module_add(model, "flatten", layer_flatten());
    size_t in = input_size(config);
    char name[MODULE_NAME];
    for (int i = 0; i <= count; i++) {
        // So many were parsed: NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign)
        size_t out = i < count ? hidden[i] : config->outputs;
        snprintf(name, sizeof name, "fc%d", i + 1);
        module_add(model, name,
                   i < count ? layer_linear_relu(device, in, out) : layer_linear(device, in, out));
        in = out;
    }
    return model;
}

// ---- convnet ----------------------------------------------------------------------------------

// Two blocks of 3x3 convolution (no bias: batch norm has one), batch norm, relu, 2x2 max pool.
static Module *convnet(const ModelConfig *config, Device *device, Error *err) {
    enum { WIDTH1 = 16, WIDTH2 = 32 };
    size_t h = config->input[1] / 4, w = config->input[2] / 4;
    if (h == 0 || w == 0)
        return error_null(err, STATUS_USAGE,
                          "convnet needs images of at least 4x4 pixels, got %zux%zu",
                          config->input[1], config->input[2]);
    Module *model = layer_sequential("ConvNet");
    module_add(model, "conv1", layer_conv2d(device, config->input[0], WIDTH1, 3, 1, 1, false));
    module_add(model, "bn1", layer_batch_norm(device, WIDTH1));
    module_add(model, "relu1", layer_relu());
    module_add(model, "pool1", layer_max_pool(2, 2, 0));
    module_add(model, "conv2", layer_conv2d(device, WIDTH1, WIDTH2, 3, 1, 1, false));
    module_add(model, "bn2", layer_batch_norm(device, WIDTH2));
    module_add(model, "relu2", layer_relu());
    module_add(model, "pool2", layer_max_pool(2, 2, 0));
    module_add(model, "flatten", layer_flatten());
    module_add(model, "fc", layer_linear(device, WIDTH2 * h * w, config->outputs));
    return model;
}

// ---- resnet20 ---------------------------------------------------------------------------------

enum { BLOCK_CHANNELS, BLOCK_STRIDE };
enum { BLOCK_CONV1, BLOCK_BN1, BLOCK_CONV2, BLOCK_BN2 }; // children, in this order

// relu(bn2(conv2(relu(bn1(conv1 x)))) + shortcut x)
static Tensor *block_forward(Module *self, Tape *tape, Tensor *x) {
    Tensor *y = module_forward(self->children[BLOCK_CONV1], tape, x);
    y = layer_batch_norm_relu(self->children[BLOCK_BN1], tape, y, NULL);
    y = module_forward(self->children[BLOCK_CONV2], tape, y);
    size_t channels = self->config[BLOCK_CHANNELS], stride = self->config[BLOCK_STRIDE];
    bool same = x && stride == 1 && x->shape[1] == channels;
    Tensor *shortcut = same ? x : op_shortcut(tape, x, channels, stride);
    return layer_batch_norm_relu(self->children[BLOCK_BN2], tape, y, shortcut);
}

static Module *block(Device *device, size_t in, size_t out, size_t stride) {
    Module *module = module_create("BasicBlock", block_forward);
    module->config[BLOCK_CHANNELS] = out;
    module->config[BLOCK_STRIDE] = stride;
    module_add(module, "conv1", layer_conv2d(device, in, out, 3, stride, 1, false));
    module_add(module, "bn1", layer_batch_norm(device, out));
    module_add(module, "conv2", layer_conv2d(device, out, out, 3, 1, 1, false));
    module_add(module, "bn2", layer_batch_norm(device, out));
    return module;
}

static Module *stage(Device *device, size_t in, size_t out, size_t stride) {
    Module *module = layer_sequential("Sequential");
    module_add(module, "0", block(device, in, out, stride));
    module_add(module, "1", block(device, out, out, 1));
    module_add(module, "2", block(device, out, out, 1));
    return module;
}

// The average pool covers the image that the two strides of 2 leave: images are square.
static Module *resnet20(const ModelConfig *config, Device *device, Error *err) {
    size_t size = config->input[1];
    if (size != config->input[2] || size < 4)
        return error_null(err, STATUS_USAGE,
                          "resnet20 needs square images of at least 4x4, got %zux%zu", size,
                          config->input[2]);
    Module *model = layer_sequential("ResNet20");
    module_add(model, "conv1", layer_conv2d(device, config->input[0], 16, 3, 1, 1, false));
    module_add(model, "bn1", layer_batch_norm(device, 16));
    module_add(model, "relu", layer_relu());
    module_add(model, "layer1", stage(device, 16, 16, 1));
    module_add(model, "layer2", stage(device, 16, 32, 2));
    module_add(model, "layer3", stage(device, 32, 64, 2));
    size_t left = ((size + 1) / 2 + 1) / 2;
    module_add(model, "pool", layer_avg_pool(left, 1, 0));
    module_add(model, "flatten", layer_flatten());
    module_add(model, "fc", layer_linear(device, 64, config->outputs));
    return model;
}

// ---- segnet -----------------------------------------------------------------------------------

enum { SEG_ENC1, SEG_ENC2, SEG_MIDDLE, SEG_DEC2, SEG_DEC1, SEG_HEAD }; // children, in this order

// The encoder reduces to a quarter of the resolution, where a pixel depends on most of the image;
// the decoder restores it, and adds the encoder's output of the same resolution (skip connections).
static Tensor *segnet_forward(Module *self, Tape *tape, Tensor *x) {
    Module **part = self->children;
    Tensor *full = module_forward(part[SEG_ENC1], tape, x);
    Tensor *half = module_forward(part[SEG_ENC2], tape, op_max_pool(tape, full, 2, 2, 0));
    Tensor *y = module_forward(part[SEG_MIDDLE], tape, op_max_pool(tape, half, 2, 2, 0));
    y = module_forward(part[SEG_DEC2], tape, op_add(tape, op_upsample2x(tape, y), half));
    y = module_forward(part[SEG_DEC1], tape, op_add(tape, op_upsample2x(tape, y), full));
    return module_forward(part[SEG_HEAD], tape, y);
}

// 3x3 convolution, batch norm, relu
static Module *conv_block(Device *device, size_t in, size_t out) {
    Module *module = layer_sequential("ConvBlock");
    module_add(module, "conv", layer_conv2d(device, in, out, 3, 1, 1, false));
    module_add(module, "bn", layer_batch_norm(device, out));
    module_add(module, "relu", layer_relu());
    return module;
}

static Module *two_blocks(Device *device, size_t in, size_t between, size_t out) {
    Module *module = layer_sequential("Sequential");
    module_add(module, "0", conv_block(device, in, between));
    module_add(module, "1", conv_block(device, between, out));
    return module;
}

static Module *segnet(const ModelConfig *config, Device *device, Error *err) {
    enum { FULL = 16, HALF = 32, QUARTER = 32 }; // channels at each resolution
    if (config->input[1] == 0 || config->input[1] % 4 || config->input[2] % 4)
        return error_null(err, STATUS_USAGE,
                          "segnet halves images twice: it needs sides that 4 divides, got %zux%zu",
                          config->input[1], config->input[2]);
    Module *model = module_create("SegNet", segnet_forward);
    module_add(model, "enc1", two_blocks(device, config->input[0], FULL, FULL));
    module_add(model, "enc2", two_blocks(device, FULL, HALF, HALF));
    module_add(model, "middle", two_blocks(device, HALF, QUARTER, HALF));
    module_add(model, "dec2", conv_block(device, HALF, FULL));
    module_add(model, "dec1", conv_block(device, FULL, FULL));
    module_add(model, "head", layer_conv2d(device, FULL, config->outputs, 1, 1, 0, true));
    return model;
}

// ---- gpt --------------------------------------------------------------------------------------

static Module *gpt(const ModelConfig *config, Device *device, Error *err) {
    GptSizes sizes = model_gpt_sizes(config);
    return gpt_create(&sizes, config->outputs, device, err);
}

// ---- by name ----------------------------------------------------------------------------------

typedef struct NamedModel {
    const char *name;
    Module *(*build)(const ModelConfig *config, Device *device, Error *err);
    void (*initialize)(Module *model, uint64_t seed);
    bool dense;
    GptSizes gpt; // all 0: it is no gpt
} NamedModel;

static const NamedModel MODELS[] = {
    {"toy", toy, module_initialize, false, {0}},
    {"mlp", mlp, module_initialize, false, {0}},
    {"convnet", convnet, module_initialize, false, {0}},
    {"resnet20", resnet20, module_initialize, false, {0}},
    {"segnet", segnet, module_initialize, true, {0}},
    {"gpt", gpt, gpt_initialize, false, {4, 4, 128, 64}},
    {"gpt-small", gpt, gpt_initialize, false, {4, 4, 128, 64}},
    {"gpt2", gpt, gpt_initialize, false, {12, 12, 768, 1024}},
    {"gpt2-medium", gpt, gpt_initialize, false, {24, 16, 1024, 1024}},
    {"gpt2-large", gpt, gpt_initialize, false, {36, 20, 1280, 1024}},
    {"gpt2-xl", gpt, gpt_initialize, false, {48, 25, 1600, 1024}}};

const char *model_names(void) {
    return "toy|mlp|convnet|resnet20|segnet|gpt|gpt-small|gpt2|gpt2-medium|gpt2-large|gpt2-xl";
}

static const NamedModel *find_model(const char *name) {
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].name, name) == 0) return &MODELS[i];
    return NULL;
}

bool model_is_dense(const char *name) {
    const NamedModel *model = find_model(name);
    return model && model->dense;
}

bool model_is_text(const char *name) {
    const NamedModel *model = find_model(name);
    return model && model->gpt.layers > 0;
}

GptSizes model_gpt_sizes(const ModelConfig *config) {
    const NamedModel *model = find_model(config->name);
    CHECK(model, "there is no model %s", config->name);
    GptSizes sizes = model->gpt, wanted = config->gpt;
    return (GptSizes){.layers = wanted.layers ? wanted.layers : sizes.layers,
                      .heads = wanted.heads ? wanted.heads : sizes.heads,
                      .embedding = wanted.embedding ? wanted.embedding : sizes.embedding,
                      .context = wanted.context ? wanted.context : sizes.context};
}

void model_initialize(const ModelConfig *config, Module *model) {
    module_fill_constants(model);
    find_model(config->name)->initialize(model, config->seed);
}

Module *model_create(const ModelConfig *config, Device *device, Error *err) {
    CHECK(config->name, "model_create: config->name is NULL");
    const NamedModel *named = find_model(config->name);
    if (!named)
        return error_null(err, STATUS_USAGE, "there is no model \"%s\"; there are %s", config->name,
                          model_names());
    Module *model = named->build(config, device, err);
    if (model) named->initialize(model, config->seed);
    return model;
}
