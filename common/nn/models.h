/* models.h: the models by name.
 *
 *   toy       net1 Linear 10->10, ReLU, net2 Linear 10->5; squared error (PyTorch's DDP tutorial)
 *   mlp       fc1 .. fcN, ReLU between; hidden sizes from --hidden
 *   convnet   conv1 bn1 relu pool, conv2 bn2 relu pool, fc: two blocks and a linear head
 *   resnet20  He et al. 2015 for CIFAR: 3 stages of 3 blocks, parameter-free shortcuts, 269,722
 *             parameters for 3x32x32 and 10 classes
 */
#ifndef COMMON_NN_MODELS_H
#define COMMON_NN_MODELS_H

#include <stdint.h>

#include "common/nn/module.h"

typedef struct ModelConfig {
    const char *name;
    const char *hidden; // mlp: "256,128"
    size_t input[3];    // one sample: channels, height, width (a vector: its length, 1, 1)
    size_t outputs;     // classes, or the length of the target vector
    uint64_t seed;
} ModelConfig;

// Builds and initialises. NULL with err filled: unknown name, bad --hidden, an input too small.
Module *model_create(const ModelConfig *config, Device *device, Error *err);
const char *model_names(void); // "toy|mlp|convnet|resnet20", for the options table

#endif
