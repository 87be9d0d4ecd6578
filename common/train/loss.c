/* loss.c: the divisor of the mean, the four losses, the choice between them. */
#include "common/train/loss.h"

#include <math.h>

#include "common/base/profile.h"
#include "common/nn/ops.h"

// ---- the divisor --------------------------------------------------------------------------------

// Sums *count over the processes: a blocking all-reduce. 0, or -1 with err filled.
static int sum_counts(double *count, const Tape *tape, Strategy *strategy, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
    int failed = strategy_sum(strategy, count, 1, err);
    profile_leave(tape->profile, phase);
    return failed;
}

static bool is_over_all(const Strategy *strategy) {
    return strategy && strategy->global_mean;
}

// Sets count and divisor in samples, or for text in tokens.
static void count_samples(BatchLoss *batch, const BatchInput *input, const Strategy *strategy) {
    const Batch *whole = input->batch;
    const size_t labels = dataset_label_size(whole->set);
    const size_t samples = is_over_all(strategy) ? whole->global_count : whole->count;
    batch->count = (input->end - input->begin) * labels;
    batch->divisor = (double)(samples * labels);
}

// ---- the losses ---------------------------------------------------------------------------------

static int cross_entropy(const Loss *self, BatchLoss *batch, Tape *tape, const BatchInput *input,
                         Strategy *strategy, Error *err) {
    (void)self, (void)err;
    count_samples(batch, input, strategy);
    batch->loss = op_cross_entropy(tape, batch->outputs, batch->target, batch->divisor);
    return 0;
}

static int binary_cross_entropy(const Loss *self, BatchLoss *batch, Tape *tape,
                                const BatchInput *input, Strategy *strategy, Error *err) {
    (void)err;
    const Tensor *logits = batch->outputs;
    count_samples(batch, input, strategy);
    if (!logits) return 0; // the forward failed; the tape has the error
    size_t classes = logits->shape[1];
    Tensor *weight = tape_tensor(tape, DTYPE_F32, 1, &classes);
    device_kernels(tape->device)
        ->elementwise->fill(tensor_f32(weight), (float)self->pos_weight, classes);
    batch->loss =
        op_binary_cross_entropy(tape, batch->outputs, op_one_hot(tape, batch->target, classes),
                                weight, batch->divisor * (double)classes);
    return 0;
}

static int squared_error(const Loss *self, BatchLoss *batch, Tape *tape, const BatchInput *input,
                         Strategy *strategy, Error *err) {
    (void)self, (void)err;
    count_samples(batch, input, strategy);
    batch->loss = op_squared_error(tape, batch->outputs, batch->target,
                                   batch->divisor * (double)input->batch->set->target_size);
    return 0;
}

// With micro-batches the loss is the mean of their means, because the whole batch's counted pixels
// are unknown at the first micro-batch.
static int pixel_cross_entropy(const Loss *self, BatchLoss *batch, Tape *tape,
                               const BatchInput *input, Strategy *strategy, Error *err) {
    size_t parts = input->parts;
    size_t pixels = (input->end - input->begin) * dataset_label_size(input->batch->set);
    Mining mining = {.threshold = self->threshold};
    if (self->threshold > -INFINITY) mining.least = self->least ? self->least / parts : pixels / 16;
    Tensor *sum =
        op_pixel_cross_entropy(tape, batch->outputs, batch->target, &mining, &batch->count);
    if (tape_error(tape, err) != 0) return -1;
    double counted = (double)batch->count;
    if (is_over_all(strategy) && sum_counts(&counted, tape, strategy, err) != 0) return -1;
    batch->divisor = counted * (double)parts;
    batch->loss = op_divide(tape, sum, batch->divisor);
    return 0;
}

// ---- choosing one -------------------------------------------------------------------------------

Loss loss_of_evaluation(const TrainConfig *config, const Dataset *set) {
    Loss loss = {.pos_weight = config->pos_weight, .threshold = -INFINITY};
    loss.forward = set->dense                 ? pixel_cross_entropy
                   : !dataset_has_labels(set) ? squared_error
                   : config->loss == LOSS_BCE ? binary_cross_entropy
                                              : cross_entropy;
    return loss;
}

Loss loss_of_training(const TrainConfig *config, const Dataset *set) {
    Loss loss = loss_of_evaluation(config, set);
    loss.least = config->ohem_min;
    if (config->ohem_threshold > 0) loss.threshold = config->ohem_threshold;
    // A class with a probability below p has a loss above -log p.
    if (config->ohem_probability > 0) loss.threshold = -log(config->ohem_probability);
    return loss;
}

// ---- one batch ----------------------------------------------------------------------------------

int batch_forward(BatchLoss *batch, Tape *tape, Module *module, const BatchInput *input,
                  Error *err) {
    *batch = (BatchLoss){.target = batch_input_target(input, tape)};
    Phase phase = profile_enter(tape->profile, PHASE_FORWARD);
    batch->outputs =
        op_float32(tape, module_forward(module, tape, batch_input_samples(input, tape)));
    profile_leave(tape->profile, phase);
    return tape_error(tape, err);
}

int loss_forward(const Loss *loss, BatchLoss *batch, Tape *tape, const BatchInput *input,
                 Strategy *strategy, Error *err) {
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    int failed = loss->forward(loss, batch, tape, input, strategy, err);
    profile_leave(tape->profile, phase);
    return failed ? -1 : tape_error(tape, err);
}
