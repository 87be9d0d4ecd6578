/* optimizer.h: SGD, Adam and AdamW with PyTorch's formulas and defaults, and learning-rate
 * schedules.
 *
 * A parameter whose gradient is None is skipped, as in PyTorch. The state of all parameters is
 * allocated at creation, so a step never allocates. A step is one kernel call per device.
 */
#ifndef COMMON_NN_OPTIMIZER_H
#define COMMON_NN_OPTIMIZER_H

#include <stdint.h>

#include "common/nn/module.h"

typedef enum OptimizerKind { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW } OptimizerKind;
#define OPTIMIZER_WORDS "sgd|adam|adamw" // their names in options and checkpoints, in that order

typedef struct Optimizer Optimizer;

typedef struct OptimizerPart { // a range of a parameter's elements
    size_t first, count;
} OptimizerPart;

// Processes with equal weights divide the step: each updates a part of every parameter and stores
// the state of that part only (ZeRO-1: ddp/features/zero_optimizer.h). Filled by the hook that
// divides the work.
typedef struct OptimizerSharding {
    const OptimizerPart *parts; // [parameters] this process's, in module_tensors' order
    // Called in place of optimizer_apply: updates this process's part and distributes all new
    // weights to all processes.
    void (*apply)(void *state);
    // Adds values[count], device memory, over the processes, in place (clip.h). An error is kept,
    // as apply's.
    void (*add_up)(void *state, int64_t *values, size_t count);
    void *state;
    // [parameters] not divided: each process updates the whole parameter with its own gradient.
    // NULL: all are divided.
    const bool *undivided;
    // Set by the creator: which gradients are read between backward and step, all (dumps, fp16) or
    // this process's parts (clipping).
    bool whole_gradients, own_gradients;
    bool has_whole;       // after backward this process has all gradients, not only its parts
    Optimizer *optimizer; // set by optimizer_create
} OptimizerSharding;

typedef struct OptimizerConfig {
    OptimizerKind kind;
    double momentum;             // sgd
    bool nesterov;               // sgd
    double weight_decay;         // adamw: of the weight itself; the others add it to the gradient
    bool decay_matrices_only;    // adamw only: parameters of one dimension do not decay (nanoGPT)
    double beta1, beta2, eps;    // adam, adamw: PyTorch has 0.9, 0.999, 1e-8
    OptimizerSharding *sharding; // not owned; NULL: this process updates all elements
    // For a model that runs under autocast: the step also keeps a copy of each linear layer's
    // parameters in this 16-bit type, so forward does not convert them. Other code that writes
    // such a parameter calls tensor_changed. PRECISION_F32: no copies.
    Precision half_copies;
} OptimizerConfig;

// The scalars of a step (kernels.h) on the device. An asynchronous device has two slots, used in
// alternate steps: the scalars of step k + 1 are uploaded while step k reads its own.
typedef struct OptimizerSlot {
    float *memory;     // [count, SCALARS], device memory
    float *host;       // [count, SCALARS], pinned host memory: the last upload
    DeviceEvent *used; // completes with the last kernel that read `memory`
    DeviceEvent *sent; // completes with the upload: `host` may be changed
} OptimizerSlot;
enum { OPTIMIZER_SLOTS = 2 };

// Consecutive parameters on one device.
typedef struct OptimizerRun {
    Device *device;
    size_t first, count;
    OptimizerSlot slots[OPTIMIZER_SLOTS];
    int slot_count;
} OptimizerRun;

struct Optimizer {
    OptimizerConfig config;
    NamedTensors parameters;
    // Per parameter, device memory, of this process's part: sgd {momentum_buffer, NULL}, others
    // {exp_avg, exp_avg_sq}.
    float **state[2];
    size_t *counts; // per parameter: its elements
    int64_t *steps; // per parameter: number of updates (Adam's bias correction; 0: no state yet)
    OptimizerRun *runs;
    size_t run_count;
    int slot;         // of the current step, in every run
    HalfCopy *halves; // [parameters.count]; NULL: none
    float *scalars;   // [parameters.count, SCALARS], host memory: of the current step
    void *list;       // [parameters.count] SgdTensor or AdamTensor: a kernel call's argument
};

// The module must outlive the optimizer. Values that PyTorch refuses are failed CHECKs with its
// words.
Optimizer *optimizer_create(Module *module, const OptimizerConfig *config);
void optimizer_close(Optimizer *optimizer);
// Updates the parameters that have a gradient. Precondition: a wrapper's backward is finished
// (ddp_finish_backward, fsdp_finish_backward); otherwise a failed CHECK.
void optimizer_step(Optimizer *optimizer, double lr);
// The parts of optimizer_step:
//
//   choose_slot   the step's slot. optimizer_step alternates; kernels captured in a graph read the
//                 slot that was chosen at capture.
//   begin_step    computes the scalars (from update counts and lr) and uploads them to the slot;
//                 rounds outdated copies in 16 bits again
//   apply         launches the kernels, equal in every step: can be captured in a graph
//   end_step      marks the slot as free once these kernels have completed
void optimizer_choose_slot(Optimizer *optimizer, int slot);
void optimizer_begin_step(Optimizer *optimizer, double lr);
void optimizer_apply(Optimizer *optimizer);
void optimizer_end_step(Optimizer *optimizer);
// Like optimizer_apply, for a range of elements of parameter i, within this process's part.
// gradient: [elements.count]. peer: the same elements in another process's memory; NULL: no such
// copy.
void optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                        const float *gradient, const OptimizerPeer *peer);
// The elements of parameters[i] that this process updates.
OptimizerPart optimizer_part(const Optimizer *optimizer, size_t i);
// A step by single parameters: begin_parameters chooses the next slot and uploads all scalars;
// step_parameter updates optimizer->parameters[i] (precondition: it has a gradient); then
// optimizer_end_step.
void optimizer_begin_parameters(Optimizer *optimizer, double lr);
void optimizer_step_parameter(Optimizer *optimizer, size_t i);
// One of OPTIMIZER_WORDS.
const char *optimizer_name(const Optimizer *optimizer);
// The name of state `which` in checkpoints: "momentum_buffer" (sgd), "exp_avg" or "exp_avg_sq" (the
// others). NULL if this configuration has no such state.
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
    double warmup_start; // factor of lr at step 0 (LinearLR's start_factor); 0: see below
    size_t step_every;   // step: steps between multiplications by gamma; 0: total_steps / 3
    double gamma;        // step
    double power;        // polynomial
} Schedule;

// Returns the learning rate of step `step` (from 0). Warm-up is linear, from lr warmup_start at
// step 0 to lr at step warmup_steps (PyTorch's LinearLR); without warmup_start from
// lr / warmup_steps to lr at the last step of the warm-up. The schedule runs over the steps after
// it (SequentialLR), and cosine and polynomial reach 0 at total_steps.
double schedule_lr(const Schedule *schedule, size_t step);

#endif
