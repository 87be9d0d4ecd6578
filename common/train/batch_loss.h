/* batch_loss.h: one batch through a module and the loss of what comes out: cross-entropy of samples
 * or of pixels, or squared error, whatever the data set's targets ask for; or, of labels, binary
 * cross-entropy of the questions "is it this class?", one for each class (--loss bce).
 *
 * What the mean is taken over: the number of samples is known to every strategy beforehand. The
 * number of pixels that count (neither ignored nor, with hard-example mining, too easy) is known
 * only after the forward pass, and differs from rank to rank:
 *
 *   single, DP       one loss over the gathered outputs: the mining looks at the whole batch, and
 *                    the mean is over the pixels that it kept
 *   DDP              every rank mines its own rows and takes the mean over its own kept pixels; the
 *                    average of these means weighs a pixel more where fewer were kept. This is what
 *                    PyTorch programs do.
 *   DDP, --normalize global   every rank mines its own rows, but divides by the kept pixels of all
 *                    ranks, which takes a small all-reduce between forward and backward. Without
 *                    mining the gradient is DP's; with it, --ohem-min counts per rank.
 */
#ifndef COMMON_TRAIN_BATCH_LOSS_H
#define COMMON_TRAIN_BATCH_LOSS_H

#include "common/nn/mining.h"
#include "common/train/batch_input.h"
#include "common/train/strategy.h"
#include "common/train/train_config.h"

typedef struct BatchLoss {
    Tensor *outputs, *target;
    Tensor *loss;   // a scalar: sum / divisor
    Tensor *root;   // where backward begins: at the loss, which fp16 scales (step_loss)
    size_t count;   // how many samples, tokens or kept pixels of this rank are in the sum
    double divisor; // if the step is in parts, that of the whole batch: the parts' losses add up
} BatchLoss;

typedef struct LossRule { // which loss, as the options say
    LossKind kind;
    double pos_weight; // of bce
    Mining mining;     // of pixels; with a threshold of -INFINITY all pixels count
} LossRule;

// The loss that the options ask for: without hard-example mining, as evaluation has it, or with it,
// for the batch that was sent last.
LossRule loss_rule(const TrainConfig *config);
LossRule loss_rule_mining(const TrainConfig *config, const BatchInput *input);

// Runs the module on the batch that was sent last, and sets outputs and target. As the functions
// below, returns 0, or -1 with err filled.
int batch_forward(BatchLoss *result, Tape *tape, Module *module, const BatchInput *input,
                  Error *err);
// Computes the loss of these outputs. strategy says what a training step's mean is over; with NULL
// it is over this batch alone.
int batch_mean_loss(BatchLoss *result, Tape *tape, const BatchInput *input, const LossRule *rule,
                    Strategy *strategy, Error *err);
// Calls batch_forward and then batch_mean_loss.
int batch_loss(BatchLoss *result, Tape *tape, Module *module, const BatchInput *input,
               const LossRule *rule, Strategy *strategy, Error *err);

#endif
