/* optimizer.h: SGD, Adam and AdamW with PyTorch's formulas and defaults, and learning-rate
 * schedules.
 *
 * A parameter whose gradient is None is skipped, as in PyTorch. State is made for all parameters at
 * creation, so that a step never allocates. A step is one kernel call for all parameters.
 */
#ifndef COMMON_NN_OPTIMIZER_H
#define COMMON_NN_OPTIMIZER_H

#include <stdint.h>

#include "common/nn/module.h"

typedef enum OptimizerKind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW } OptimizerKind;
#define OPTIMIZER_WORDS "sgd|adam|adamw" // what options and checkpoints call them, in that order

typedef struct Optimizer Optimizer;

typedef struct OptimizerPart { // of a parameter's elements
    size_t first, count;
} OptimizerPart;

// Several processes hold equal weights, and each steps only a part of every parameter, for which it
// alone has the state (ZeRO-1: ddp/features/zero_optimizer.h). Made by the hook that divides the
// work.
typedef struct OptimizerSharding {
    const OptimizerPart *parts; // [parameters] this process's, in module_tensors' order
    // Called in place of optimizer_apply: updates this process's part, and all processes get all
    // new weights.
    void (*apply)(void *state);
    void *state;
    // Set by the creator: the gradients are read between backward and step.
    bool whole_gradients;
    Optimizer *optimizer; // set by optimizer_create
} OptimizerSharding;

typedef struct OptimizerConfig {
    OptimizerKind kind;
    double momentum;             // sgd
    bool nesterov;               // sgd
    double weight_decay;         // adamw: of the weight itself; the others add it to the gradient
    bool decay_matrices_only;    // adamw only: parameters of one dimension do not decay (nanoGPT)
    double beta1, beta2, eps;    // adam, adamw: PyTorch has 0.9, 0.999, 1e-8
    OptimizerSharding *sharding; // not owned; NULL: this process steps everything
} OptimizerConfig;

// A place for the numbers of a step (kernels.h). There are two on a device that works on its own,
// for steps in turn: those of step k + 1 are sent, beside the work, while step k reads its own.
typedef struct OptimizerSlot {
    float *memory;     // [count, SCALARS], device memory
    float *host;       // the same: what was sent there last, in memory that the device reads
    DeviceEvent *used; // the last work that read `memory`
    DeviceEvent *sent; // `host` may be changed
} OptimizerSlot;
enum { OPTIMIZER_SLOTS = 2 };

// Parameters that follow each other and lie on one device.
typedef struct OptimizerRun {
    Device *device;
    size_t first, count;
    OptimizerSlot slots[OPTIMIZER_SLOTS];
    int slot_count;
} OptimizerRun;

struct Optimizer {
    OptimizerConfig config;
    NamedTensors parameters;
    // Per parameter, device memory: sgd {momentum_buffer, -}, others {exp_avg, exp_avg_sq}; NULL:
    // none. Of this process's part only.
    float **state[2];
    int64_t *steps; // per parameter: updates so far (Adam's bias correction; 0: no state yet)
    OptimizerRun *runs;
    size_t run_count;
    int slot;       // which one the step takes, in every run
    float *scalars; // [parameters.count, SCALARS], host memory: this step's numbers
    void *list;     // [parameters.count] SgdTensor or AdamTensor: what a call works through
};

Optimizer *optimizer_create(Module *module, const OptimizerConfig *config);
void optimizer_close(Optimizer *optimizer);
void optimizer_step(Optimizer *optimizer, double lr);
// The parts of optimizer_step. choose_slot: the step's slot; optimizer_step takes the next one, and
// work that was captured in a graph reads the slot that was chosen at capture. begin_step sends the
// step's numbers there (counts, and factors that follow from lr). apply is the work, which is equal
// in every step and can be captured. end_step marks when the slot is free again.
void optimizer_choose_slot(Optimizer *optimizer, int slot);
void optimizer_begin_step(Optimizer *optimizer, double lr);
void optimizer_apply(Optimizer *optimizer);
void optimizer_end_step(Optimizer *optimizer);
// The work on some elements of one parameter, all of this process's part. Their gradient is given:
// [elements.count]. peer: what another process has of these elements; NULL: none.
void optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                        const float *gradient, const OptimizerPeer *peer);
// The elements of parameters[i] that this process steps.
OptimizerPart optimizer_part(const Optimizer *optimizer, size_t i);
// A step that takes parameters one after another: begin_parameters chooses the next slot and sends
// the numbers of all; step_parameter is the part about optimizer->parameters[i], which has a
// gradient; optimizer_end_step comes last.
void optimizer_begin_parameters(Optimizer *optimizer, double lr);
void optimizer_step_parameter(Optimizer *optimizer, size_t i);
// One of OPTIMIZER_WORDS.
const char *optimizer_name(const Optimizer *optimizer);
// The names of the state in checkpoints: "momentum_buffer" (sgd), "exp_avg" and "exp_avg_sq" (the
// others). NULL if there is no such state in this configuration.
const char *optimizer_state_name(const Optimizer *optimizer, int which);

// ---- schedules --------------------------------------------------------------------------------
typedef enum ScheduleKind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,      // PyTorch's StepLR
    SCHEDULE_COSINE,    // CosineAnnealingLR
    SCHEDULE_POLYNOMIAL // PolynomialLR
} ScheduleKind;
#define SCHEDULE_WORDS "constant|step|cosine|polynomial"
const char *schedule_name(ScheduleKind kind); // one of SCHEDULE_WORDS

typedef struct Schedule {
    ScheduleKind kind;
    double lr; // after warm-up
    size_t warmup_steps, total_steps;
    double warmup_start; // the first step's part of lr (LinearLR's start_factor); 0: see below
    size_t step_every;   // step: multiply by gamma every so many steps; 0: a third of total_steps
    double gamma;        // step
    double power;        // polynomial
} Schedule;

// The learning rate of step `step` (from 0). Warm-up is linear, from lr warmup_start at step 0 to
// lr at step warmup_steps (PyTorch's LinearLR); without warmup_start from lr / warmup_steps to lr
// at the last step of the warm-up. The schedule proper runs over the steps after it (SequentialLR)
// and reaches 0 (cosine, polynomial) at total_steps.
double schedule_lr(const Schedule *schedule, size_t step);

#endif
