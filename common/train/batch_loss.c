/* batch_loss.c: the forward pass of one batch, and its loss. */
#include <math.h>

#include "common/nn/ops.h"
#include "common/train/batch_loss.h"

LossRule loss_rule(const TrainConfig *config) {
    return (LossRule){
        .kind = config->loss, .pos_weight = config->pos_weight, .mining = {.threshold = -INFINITY}};
}

LossRule loss_rule_mining(const TrainConfig *config, const BatchInput *input) {
    LossRule rule = loss_rule(config);
    size_t labels = dataset_label_size(batch_input_batch(input)->set);
    size_t pixels = batch_input_count(input) * labels, least = config->ohem_min;
    double threshold = config->ohem_threshold;
    // A class with a probability below p has a loss above -log p.
    if (config->ohem_probability > 0) threshold = -log(config->ohem_probability);
    if (config->ohem_threshold <= 0 && config->ohem_probability <= 0) return rule;
    rule.mining.threshold = threshold;
    rule.mining.least = least ? least / batch_input_parts(input) : pixels / 16;
    return rule;
}

// Finds the divisor of a mean over `own` samples or pixels of this process. `global` is all
// processes' number, 0 if it is not known yet.
static int find_divisor(BatchLoss *result, const Tape *tape, size_t own, size_t global,
                        Strategy *strategy, Error *err) {
    double all = (double)(global ? global : result->count);
    if (strategy && !global && strategy->global_mean) {
        Phase phase = profile_enter(tape->profile, PHASE_EXPOSED);
        int failed = strategy_sum(strategy, &all, 1, err);
        profile_leave(tape->profile, phase);
        if (failed) return -1;
    }
    bool over_all = strategy && strategy->global_mean;
    result->divisor = over_all ? all : (double)own;
    return 0;
}

// How many pixels of the whole batch count is not known when its first part is through: so the loss
// is the mean over the parts of each part's mean.
static int pixel_loss(BatchLoss *result, Tape *tape, const BatchInput *input, const Mining *mining,
                      Strategy *strategy, Error *err) {
    Tensor *sum =
        op_pixel_cross_entropy(tape, result->outputs, result->target, mining, &result->count);
    if (tape_error(tape, err) != 0 ||
        find_divisor(result, tape, result->count, 0, strategy, err) != 0)
        return -1;
    result->divisor *= (double)batch_input_parts(input);
    result->loss = op_divide(tape, sum, result->divisor);
    return 0;
}

// The loss of the questions "is it this class?", one for each class: the mean over rows and
// classes.
static Tensor *answers_loss(const BatchLoss *result, Tape *tape, double pos_weight) {
    Tensor *logits = result->outputs;
    if (!logits) return NULL;
    size_t classes = logits->shape[1];
    Tensor *weight = tape_tensor(tape, DTYPE_F32, 1, &classes);
    device_kernels(tape->device)->elementwise->fill(tensor_f32(weight), (float)pos_weight, classes);
    return op_binary_cross_entropy(tape, logits, op_one_hot(tape, result->target, classes), weight,
                                   result->divisor * (double)classes);
}

static int sample_loss(BatchLoss *result, Tape *tape, const BatchInput *input, const LossRule *rule,
                       Strategy *strategy, Error *err) {
    const Batch *batch = batch_input_batch(input);
    const size_t labels = dataset_label_size(batch->set);
    result->count = batch_input_count(input) * labels;
    if (find_divisor(result, tape, batch->count * labels, batch->global_count * labels, strategy,
                     err) != 0)
        return -1;
    if (batch->labels && rule->kind == LOSS_BCE)
        result->loss = answers_loss(result, tape, rule->pos_weight);
    else if (batch->labels)
        result->loss = op_cross_entropy(tape, result->outputs, result->target, result->divisor);
    else
        result->loss = op_squared_error(tape, result->outputs, result->target,
                                        result->divisor * (double)batch->set->target_size);
    return 0;
}

int batch_forward(BatchLoss *result, Tape *tape, Module *module, const BatchInput *input,
                  Error *err) {
    *result = (BatchLoss){.target = batch_input_target(input, tape)};
    Phase phase = profile_enter(tape->profile, PHASE_FORWARD);
    result->outputs =
        op_float32(tape, module_forward(module, tape, batch_input_samples(input, tape)));
    profile_leave(tape->profile, phase);
    return tape_error(tape, err);
}

int batch_mean_loss(BatchLoss *result, Tape *tape, const BatchInput *input, const LossRule *rule,
                    Strategy *strategy, Error *err) {
    const Batch *batch = batch_input_batch(input);
    Phase phase = profile_enter(tape->profile, PHASE_LOSS);
    int failed = batch->set->dense ? pixel_loss(result, tape, input, &rule->mining, strategy, err)
                                   : sample_loss(result, tape, input, rule, strategy, err);
    profile_leave(tape->profile, phase);
    return failed ? -1 : tape_error(tape, err);
}

int batch_loss(BatchLoss *result, Tape *tape, Module *module, const BatchInput *input,
               const LossRule *rule, Strategy *strategy, Error *err) {
    if (batch_forward(result, tape, module, input, err) != 0) return -1;
    return batch_mean_loss(result, tape, input, rule, strategy, err);
}
