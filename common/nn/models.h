/* models.h: the models by name.
 *
 *   toy       net1 Linear 10->10, ReLU, net2 Linear 10->5; squared error (PyTorch's DDP tutorial)
 *   mlp       fc1 .. fcN, ReLU between; hidden sizes from --hidden
 *   convnet   conv1 bn1 relu pool, conv2 bn2 relu pool, fc: two blocks and a linear head
 *   resnet20  He et al. 2015 for CIFAR: 3 stages of 3 blocks, parameter-free shortcuts, 269,722
 *             parameters for 3x32x32 and 10 classes
 *   segnet    a class for every pixel: encoder, decoder and skip connections over three resolutions
 */
#ifndef COMMON_NN_MODELS_H
#define COMMON_NN_MODELS_H

#include <stdint.h>

#include "common/nn/module.h"

enum { MLP_MAX_HIDDEN = 32, MLP_MAX_WIDTH = 1 << 20 };

typedef struct ModelConfig {
    const char *name;
    const char *hidden; // mlp: "256,128"
    size_t input[3];    // one sample: channels, height, width (a vector: its length, 1, 1)
    size_t outputs;     // classes, or the length of the target vector
    uint64_t seed;
} ModelConfig;

// Builds and initialises. NULL with err filled: unknown name, bad --hidden, an input too small.
Module *model_create(const ModelConfig *config, Device *device, Error *err);
// --hidden, "256,128" -> {256, 128}. Returns how many, at most MLP_MAX_HIDDEN, or -1 with err
// filled.
int model_parse_hidden(const char *text, size_t *sizes, Error *err);
const char *model_names(void); // "toy|mlp|convnet|resnet20|segnet", for the options table
// Does the model give logits for every pixel, [n, outputs, h, w]? The others': [n, outputs].
bool model_is_dense(const char *name);

#endif
