/* optimizer.h: SGD and AdamW with PyTorch's formulas and defaults, and learning-rate schedules.
 *
 * A parameter whose gradient is None is skipped, as in PyTorch. State is made for all parameters at
 * creation, so that a step never allocates. A step is one kernel call for all parameters.
 */
#ifndef COMMON_NN_OPTIMIZER_H
#define COMMON_NN_OPTIMIZER_H

#include <stdint.h>

#include "common/nn/module.h"

typedef enum OptimizerKind { OPTIMIZER_SGD, OPTIMIZER_ADAMW } OptimizerKind;

typedef struct OptimizerConfig {
    OptimizerKind kind;
    double momentum; // sgd
    bool nesterov;   // sgd
    double weight_decay;
    double beta1, beta2, eps; // adamw: 0.9, 0.999, 1e-8
} OptimizerConfig;

// Parameters that follow each other and lie on one device.
typedef struct OptimizerRun {
    Device *device;
    size_t first, count;
    float *scalars; // [count, SCALARS] (kernels.h), device memory
} OptimizerRun;

typedef struct Optimizer {
    OptimizerConfig config;
    NamedTensors parameters;
    // Per parameter, device memory: sgd {momentum_buffer, -}, adamw {exp_avg, exp_avg_sq}; NULL:
    // none.
    float **state[2];
    int64_t *steps; // per parameter: updates so far (AdamW's bias correction; 0: no state yet)
    OptimizerRun *runs;
    size_t run_count;
    float *scalars,
        *sent;  // [parameters.count, SCALARS], the host's: now, and as the device has them
    void *list; // [parameters.count] SgdTensor or AdamWTensor: what a call works through
} Optimizer;

Optimizer *optimizer_create(Module *module, const OptimizerConfig *config);
void optimizer_close(Optimizer *optimizer);
void optimizer_step(Optimizer *optimizer, double lr);
// Its two halves: what changes from step to step (counts, and what follows from lr) goes to the
// device; then the work, which is the same in every step and can be captured in a graph.
void optimizer_begin_step(Optimizer *optimizer, double lr);
void optimizer_apply(Optimizer *optimizer);
// The part of a step that is about one parameter, which has a gradient (optimizer->parameters[i]).
void optimizer_step_parameter(Optimizer *optimizer, size_t i, double lr);
// Names of the state in checkpoints: "momentum_buffer" (sgd), "exp_avg", "exp_avg_sq"; NULL: no
// such state in this configuration.
const char *optimizer_state_name(const Optimizer *optimizer, int which);

// ---- schedules --------------------------------------------------------------------------------
typedef struct Schedule {
    const char *name; // constant, step, cosine, polynomial
    double lr;        // after warm-up
    size_t warmup_steps, total_steps;
    size_t step_every; // step: multiply by gamma every so many steps
    double gamma;      // step: 0.1
    double power;      // polynomial: 0.9
} Schedule;

// The learning rate of step `step` (from 0). Warm-up is linear: lr (step + 1) / warmup_steps; the
// schedule proper runs over the steps after it and reaches 0 (cosine, polynomial) at total_steps.
double schedule_lr(const Schedule *schedule, size_t step);

#endif
