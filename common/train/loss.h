/* loss.h: the loss of a run, chosen once by the options and the kind of data.
 *
 *   targets of the data set      --loss    forward                     mean over
 *   labels, tokens               auto      cross-entropy               samples or tokens
 *   labels                       bce       binary cross-entropy of     samples and classes
 *                                          each class: yes or no
 *   numbers                                squared error               samples and numbers
 *   labels of pixels (dense)               cross-entropy, with or      counted pixels: neither
 *                                          without hard-example        ignored nor, with mining,
 *                                          mining (common/nn/ops.h) too easy
 *
 * The divisor of the mean, by strategy. The number of samples is known before the forward; the
 * number of counted pixels only after it, and it differs between ranks:
 *
 *   single, DP                the whole batch's samples or counted pixels: one loss over the
 *                             gathered outputs
 *   DDP                       this rank's, as in PyTorch programs. The average of the ranks' means
 *                             gives a pixel more weight on a rank with fewer counted pixels
 *   DDP, --normalize global   all ranks'. Counted pixels need an all-reduce of one number between
 *                             forward and backward. The gradient is DP's, except with mining: each
 *                             rank mines its own samples, and --ohem-min applies per rank
 */
#ifndef COMMON_TRAIN_LOSS_H
#define COMMON_TRAIN_LOSS_H

#include "common/nn/ops.h"
#include "common/train/batch_input.h"
#include "common/train/strategy.h"
#include "common/train/train_config.h"

typedef struct BatchLoss { // the tape owns all tensors
    Tensor *outputs, *target;
    Tensor *loss;     // [1]: sum / divisor
    Tensor *root;     // the root of backward: the loss, scaled under --amp fp16 (step_loss)
    int64_t *hits;    // [hits_size], device memory: step_loss's, or the tape's if it was NULL
    bool counts_hits; // loss_forward has set the hits; otherwise hits_count does
    size_t count;     // samples, tokens or counted pixels of this process in the sum
    double divisor; // the whole batch's, also for one micro-batch: micro-batches' losses are summed
} BatchLoss;

typedef enum LossForm {
    LOSS_CROSS_ENTROPY,
    LOSS_BINARY_CROSS_ENTROPY,
    LOSS_SQUARED_ERROR,
    LOSS_PIXEL_CROSS_ENTROPY,
} LossForm;

typedef struct Loss {
    LossForm form;
    double pos_weight; // of binary cross-entropy
    double threshold;  // of mining: pixels of smaller loss are too easy; -INFINITY: no mining
    size_t least;      // of mining: minimum number of counted pixels in a batch; 0: 1/16 of them
} Loss;

// The loss of training steps; the loss of evaluation, which is without mining.
Loss loss_of_training(const TrainConfig *config, const Dataset *set);
Loss loss_of_evaluation(const TrainConfig *config, const Dataset *set);

// Runs the module on the selected micro-batch (batch_input_select) and sets outputs and target.
// Returns 0, or -1 with err filled.
int batch_forward(BatchLoss *batch, Tape *tape, Module *module, const BatchInput *input,
                  Error *err);
// Sets batch's loss, count and divisor from outputs and target, in the phase PHASE_LOSS. Of
// cross-entropy it sets the hits, too, and the outputs' contents are undefined afterwards. strategy
// defines the samples of the mean; NULL: this process's batch. Returns 0, or -1 with err filled.
int loss_forward(const Loss *loss, BatchLoss *batch, Tape *tape, const BatchInput *input,
                 Strategy *strategy, Error *err);

#endif
