/* gpt.h: GPT-2's architecture (Radford et al. 2019) under the names of Karpathy's nanoGPT, so that
 * its state dict loads there with strict=True; lm_head.weight is transformer.wte.weight.
 *
 *   tokens [batch, length] --wte + wpe--> h.0, h.1, ... --ln_f--> lm_head --> logits
 *   a block: x + c_proj(attention(c_attn(ln_1 x))), then x + c_proj(gelu(c_fc(ln_2 x)))
 *
 * Logits are [batch length, vocabulary]: a row for every token, which predicts the next token.
 * There is no dropout. Where a device stores logits in 16 bits, their rows are padded to a multiple
 * of 128 in memory; parameters and shapes keep the vocabulary's size.
 */
#ifndef COMMON_NN_GPT_H
#define COMMON_NN_GPT_H

#include <stdint.h>

#include "common/nn/module.h"

typedef struct GptSizes {
    size_t layers, heads, embedding; // blocks; heads of attention; channels, which heads divides
    size_t context;                  // the longest text, in tokens
} GptSizes;
enum { GPT_MAX_LAYERS = 1000, GPT_MAX_HEADS = 1000 };
enum { GPT_MAX_SIZE = 1 << 16 }; // of embedding, context and vocabulary

// Returns NULL with err filled if the sizes are too large or do not fit each other, or if the
// device lacks the kernels.
Module *gpt_create(const GptSizes *sizes, size_t vocabulary, Device *device, Error *err);
// Initialises as GPT-2 does. Weights are normal with deviation 0.02, which is divided by sqrt(2
// layers) where a block adds to x; biases are 0; layer norms have weight 1 and bias 0. An element
// is a pure function of (seed, its parameter, its place).
void gpt_initialize(Module *gpt, uint64_t seed);

// Returns the elements of a head, and *device, of an attention module; 0: the module is not an
// attention.
size_t gpt_attention_size(Module *module, Device **device);

#endif
