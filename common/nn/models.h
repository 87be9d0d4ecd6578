/* models.h: the models by name.
 *
 *   toy       net1 Linear 10->10, ReLU, net2 Linear 10->5; squared error (PyTorch's DDP tutorial)
 *   mlp       fc1 .. fcN, ReLU between; hidden sizes from --hidden
 *   convnet   conv1 bn1 relu pool, conv2 bn2 relu pool, fc: two blocks and a linear head
 *   resnet20  of arXiv:1512.03385, for CIFAR: 3 stages of 3 blocks, parameter-free shortcuts,
 *             269,722 parameters for 3x32x32 and 10 classes
 *   segnet    a class for every pixel: encoder, decoder and skip connections over three resolutions
 *   gpt       GPT-2's architecture (gpt.h) for texts, of any size; by itself gpt-small's:
 *   gpt-small 4 layers, 4 heads, 128 channels, texts of 64 tokens
 *   gpt2      12 layers, 12 heads, 768 channels, texts of 1024 tokens; so are the larger ones,
 *             gpt2-medium (24, 16, 1024), gpt2-large (36, 20, 1280), gpt2-xl (48, 25, 1600)
 */
#ifndef COMMON_NN_MODELS_H
#define COMMON_NN_MODELS_H

#include <stdint.h>

#include "common/nn/gpt.h"
#include "common/nn/module.h"

enum { MLP_MAX_HIDDEN = 32, MLP_MAX_WIDTH = 1 << 20 };

typedef struct ModelConfig {
    const char *name;
    const char *hidden; // mlp: "256,128"
    size_t input[3];    // one sample: channels, height, width (a vector: its length, 1, 1)
    size_t outputs;     // classes, or the length of the target vector
    uint64_t seed;
    GptSizes gpt; // fields other than 0 override the sizes of the name
} ModelConfig;

// Builds and initialises a model. Returns NULL with err filled after an unknown name, a bad
// --hidden, an input that is too small, or sizes that do not fit each other. A gpt's vocabulary is
// `outputs`; it ignores `input`.
Module *model_create(const ModelConfig *config, Device *device, Error *err);
// Initialises, as model_create does, a model that was created on a device without memory and has
// memory now. A shard gets its elements of the whole tensor.
void model_initialize(const ModelConfig *config, Module *model);
// Parses --hidden, "256,128", into sizes, {256, 128}. Returns their number, at most MLP_MAX_HIDDEN,
// or -1 with err filled.
int model_parse_hidden(const char *text, size_t *sizes, Error *err);
const char *model_names(void); // "toy|mlp|...|gpt2-xl", for the options table
// Whether the model returns logits for every pixel, [n, outputs, h, w]; others return [n, outputs].
bool model_is_dense(const char *name);
// Whether its input is text, tokens [n, length], and its output has logits for every token,
// [n length, outputs].
bool model_is_text(const char *name);
GptSizes model_gpt_sizes(const ModelConfig *config); // of such a model: all sizes, none 0

#endif
