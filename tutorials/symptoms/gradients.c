/* gradients.c: symptoms of a wrong average: of the wrong tensors, too early, or over the wrong
 * count.
 *
 * The model is y = w x with w = 1, the loss y^2 over a divisor, so that the gradient of rows
 * x1, x2, ... is 2 (x1^2 + x2^2 + ...) / divisor.
 */
#include "tutorials/symptoms/symptoms.h"

#include <math.h>

#include "common/nn/clip.h"
#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/sync_batch_norm.h"

typedef struct Toy {
    SymptomRank *me;
    Module *wrapper, *model;
    Tensor *weight; // [1, 1]
    Tape *tape;
} Toy;

static Toy toy_open(SymptomRank *me, bool global_normalization) {
    Toy toy = {.me = me, .tape = tape_create(me->device, NULL)};
    toy.model = layer_linear(me->device, 1, 1);
    toy.weight = module_parameter(toy.model, 0);
    tensor_f32(toy.weight)[0] = 1.0f;
    tensor_f32(module_parameter(toy.model, 1))[0] = 0.0f;
    module_parameter(toy.model, 1)->requires_grad = false; // the bias
    DdpConfig config = ddp_config_default();
    config.global_normalization = global_normalization;
    toy.wrapper =
        must_get(distributed_data_parallel(toy.model, me->group, &config, &me->err), &me->err);
    return toy;
}

static void toy_close(Toy *toy) {
    tape_close(toy->tape);
    module_close(toy->wrapper);
}

// One forward of `module`, and its backward.
static void backward(Toy *toy, Module *module, const float *rows, size_t count, double divisor) {
    Error *err = &toy->me->err;
    size_t shape[] = {count, 1};
    static const float ZEROS[8];
    Tensor *x = tape_input(toy->tape, DTYPE_F32, 2, shape, rows);
    Tensor *zero = tape_input(toy->tape, DTYPE_F32, 2, shape, ZEROS);
    Tensor *loss = op_squared_error(toy->tape, module_forward(module, toy->tape, x), zero, divisor);
    must_do(tape_backward(toy->tape, loss, err), err);
    if (module == toy->wrapper) must_do(ddp_finish_backward(module, NULL, err), err);
    tape_reset(toy->tape);
}

// The largest of all ranks' numbers less the smallest.
static double spread(SymptomRank *me, double number) {
    double largest = number, smallest = number;
    symptom_run(me, pg_all_reduce(&largest, 1, PG_F64, PG_MAX));
    symptom_run(me, pg_all_reduce(&smallest, 1, PG_F64, PG_MIN));
    return largest - smallest;
}

// Three micro-batches. The mistake: no_sync around all but the first, instead of all but the last.
static double accumulation(SymptomRank *me) {
    Toy toy = toy_open(me, false);
    for (int micro = 0; micro < 3; micro++) {
        float row = (float)(me->rank + micro + 1);
        bool syncs = me->broken ? micro == 0 : micro == 2;
        bool before = syncs ? false : ddp_no_sync_begin(toy.wrapper);
        backward(&toy, toy.wrapper, &row, 1, 3.0);
        if (!syncs) ddp_no_sync_end(toy.wrapper, before);
    }
    double difference = spread(me, (double)toy.weight->grad[0]);
    toy_close(&toy);
    return difference;
}

// Rank 0 has one row, rank 1 three. All rows are 1, but rank 0's is 2: 2 (4 + 1 + 1 + 1) / 4.
static double mean_of_means(SymptomRank *me) {
    Toy toy = toy_open(me, !me->broken);
    size_t count = me->rank == 0 ? 1 : 3;
    const float rows[] = {me->rank == 0 ? 2.0f : 1.0f, 1.0f, 1.0f};
    backward(&toy, toy.wrapper, rows, count, me->broken ? (double)count : 4.0);
    double gradient = (double)toy.weight->grad[0];
    toy_close(&toy);
    return gradient;
}

// The mistake: forward calls the model, not its wrapper.
static double bypass(SymptomRank *me) {
    Toy toy = toy_open(me, false);
    float row = (float)(me->rank + 1);
    backward(&toy, me->broken ? toy.model : toy.wrapper, &row, 1, 1.0);
    double difference = spread(me, (double)toy.weight->grad[0]);
    toy_close(&toy);
    return difference;
}

// Two ranks have the gradients 6 and -2 and clip to a length of 1: their mean, 2, becomes 1. The
// mistake: each rank clips its own gradient first, and the mean of 1 and -1 is 0.
static double clip(SymptomRank *me) {
    Module *model = layer_linear(me->device, 1, 1);
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    GradClip *clipper = grad_clip_open(&parameters, NULL);
    Tensor *weight = module_parameter(model, 0);
    weight->grad[0] = me->rank == 0 ? 6.0f : -2.0f;
    weight->has_grad = true;
    if (me->broken) grad_clip(clipper, 1.0);
    symptom_run(me, pg_all_reduce(weight->grad, 1, PG_F32, PG_AVG));
    if (!me->broken) grad_clip(clipper, 1.0);
    double gradient = (double)weight->grad[0];
    grad_clip_close(clipper);
    named_tensors_free(&parameters);
    module_close(model);
    return gradient;
}

// Rank 0's rows have the mean 0, rank 1's the mean 10. The running mean moves by a tenth: to 0.5.
static double batch_norm(SymptomRank *me) {
    Module *layer = layer_batch_norm(me->device, 1);
    if (!me->broken) must_get(sync_batch_norm_convert(layer, me->group, &me->err), &me->err);
    Tape *tape = tape_create(me->device, NULL);
    tape->recording = false;
    const float rows[] = {me->rank == 0 ? -1.0f : 9.0f, me->rank == 0 ? 1.0f : 11.0f};
    module_forward(layer, tape, tape_input(tape, DTYPE_F32, 2, (size_t[]){2, 1}, rows));
    must_do(tape_error(tape, &me->err), &me->err);
    double mean = (double)tensor_f32(layer_batch_norm_state(layer).running_mean)[0];
    tape_close(tape);
    module_close(layer);
    return mean;
}

const Symptom SYMPTOMS_OF_GRADIENTS[] = {
    {"accumulation", "difference between the ranks' gradients", 0, 0, 2, accumulation, 0},
    {"mean-of-means", "the gradient of four rows, 3.5 by hand", 3.5, 3.5, 2, mean_of_means, 0},
    {"bypass", "difference between the ranks' gradients", 0, 0, 2, bypass, 0},
    {"clip", "the clipped gradient", 0.999, 1, 2, clip, 0},
    {"batch-norm", "the running mean, 0.5 by hand", 0.499, 0.501, 2, batch_norm, 0},
    {0}};
