/* generation.h: text that a trained model makes up, character after character.
 *
 * The first token of the vocabulary stands before the text and is not printed (of a text file that
 * is its smallest character, most often the end of a line). Each token is drawn from the model's
 * probabilities after the tokens before it, as many as the context holds. The draw is a pure
 * function of --seed and the token's place, and the main process draws alone, with its own weights:
 * so the same weights write the same text, however many devices trained them.
 */
#ifndef COMMON_TRAIN_GENERATION_H
#define COMMON_TRAIN_GENERATION_H

#include "common/train/run.h"

// Prints the text that --sample asks for on stdout, between two lines; where the data are token
// files, it prints the tokens' numbers. Does nothing without --sample, and on other processes than
// the main one.
int generation_print(Run *run, Error *err);
// Returns the token whose part of [0, 1) holds `at`, when each token has a part as large as the
// softmax of its logit says.
size_t generation_draw(const float *logits, size_t count, double at);

#endif
