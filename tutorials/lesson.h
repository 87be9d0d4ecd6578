/* lesson.h: the common code of the tutorials' programs.
 *
 * A Lesson is one run: its options, its data and the iteration over its batches. All programs take
 * the same options with the same defaults, use the same batches in the same order and write the
 * same file of weights, so that two steps of the tutorial can be compared bit for bit. The
 * computation on a batch is not here: it is the lesson, and each program has its own.
 *
 *     Lesson lesson;
 *     lesson_begin(&lesson, "one-device", argc, argv);
 *     for (const Batch *batch; (batch = lesson_next(&lesson));) {
 *         ... compute the gradients of the batch ...
 *         optimizer_step(optimizer, lesson_lr(&lesson));
 *         lesson_report(&lesson, loss);
 *     }
 *     lesson_end(&lesson, model);
 *
 * The mistakes that a program can make on purpose (--break=NAME) are not in the program itself:
 * PROGRAM.breaks beside it holds the lines that each mistake replaces, and the build compiles a
 * version of the program for each (breaks.h).
 */
#ifndef TUTORIALS_LESSON_H
#define TUTORIALS_LESSON_H

#include "common/base/profile.h"
#include "common/data/loader.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/train/trainer.h"

typedef struct Lesson {
    Options options;
    char program[16], summary[256]; // the options' program name and summary
    TrainConfig config;
    bool quiet; // this process neither prints nor saves
    DataSource *data;
    Device *host; // the memory of the batches
    Sampler *sampler;
    Loader *loader;
    Schedule schedule;
    size_t steps, step; // in the run; begun so far

    // Options of single steps, with the option's name: lesson_steps.c says which step has which.
    const char *broken;             // --break: the version that runs; "none"
    size_t shards, devices;         // the number of parts of a batch
    bool show, show_update, orders; // print more
    double noise;                   // standard deviation, added to the samples
    int blocked;                    // --sampler: "blocked" and not "interleaved"
    size_t bucket_bytes;            // a bucket of at least this size is full
    const char *batch_norm;         // "own" or "sync"
    size_t unit_layers;             // layers of a unit
    bool only_test;                 // no training
    const char *checkpoint;         // a file; NULL: none is written
    size_t kill_at;                 // the step in whose checkpoint the process dies
    size_t micro_batches;           // in a step
    double max_norm;                // of the gradients; 0: no clipping
    size_t uneven;                  // rank r trains r times this many steps fewer
    int wire;                       // the format's index in the option's words
    double scale;                   // of gradients in fp16
    double timeout_s;               // the deadline of a rank's waits for the others
    double stop_below;              // training ends when a rank's loss is smaller
    const char *scratch;            // a folder on the node's own disk; NULL: none
} Lesson;

// Parses the options of the step of this name ("one-device"), opens the data and begins. Any error
// ends the program with one line.
void lesson_begin(Lesson *lesson, const char *step, int argc, char **argv);
// Declares the step's options for lesson_begin to parse: shared ones of train_single, --break, and
// the step's own.
void lesson_options(Lesson *lesson, const char *step);
// Returns the number of parts with rows when chunk_bounds cuts `rows` rows into `parts` parts.
int lesson_parts(size_t rows, int parts);
// Replaces the sampler of the batches, which the lesson closes, and computes the run's number of
// steps again. To be called before the first lesson_next.
void lesson_use_sampler(Lesson *lesson, Sampler *sampler);

// Returns the sampler's next batch, in host memory, or NULL after the last step. Valid until the
// next call.
const Batch *lesson_next(Lesson *lesson);
// Adds normal noise of this standard deviation to the samples of the current batch: a function of
// seed, step and position. Returns the first number drawn, before it is scaled.
double lesson_add_noise(const Lesson *lesson, const Batch *batch, double deviation, uint64_t seed);
// Skips the first `steps` steps of a resumed run. To be called before the first lesson_next.
void lesson_skip(Lesson *lesson, size_t steps);
double lesson_lr(const Lesson *lesson); // of the current step
bool lesson_is_logged(const Lesson *lesson);
// Prints a line "step=0 loss=2.3201" every --log-every steps, and at the last one.
void lesson_report(Lesson *lesson, double loss);
// Saves the weights (--save), prints the accuracy on the test set, and closes everything
// that lesson_begin opened. Does not close the model.
void lesson_end(Lesson *lesson, Module *model);

// Ends the program with the line "error: NAME WHAT" if `fine` is false.
void lesson_need(bool fine, const char *name, const char *what);

// Opens the device "cpu:index", which has its own memory; the program closes it.
Device *lesson_device(int index);
// The network on the device, with this rank's random initial weights.
Module *lesson_model(const Lesson *lesson, Device *device, int rank);
// The optimizer of --optimizer, --momentum and --weight-decay.
Optimizer *lesson_optimizer(const Lesson *lesson, Module *model);

// Some rows of a batch on the tape's device.
typedef struct Rows {
    size_t count;
    Tensor *samples; // [count, c, h, w]
    Tensor *target;  // [count] labels, or [count, target_size] numbers
} Rows;
Rows lesson_rows(Tape *tape, const Batch *batch, size_t begin, size_t end);
// The sum of the rows' losses divided by `divisor` (a number of rows): a scalar.
Tensor *lesson_loss(Tape *tape, Tensor *outputs, Tensor *target, size_t divisor);
// The model's outputs for the rows. An error ends the program.
Tensor *lesson_forward(Module *model, Tape *tape, Tensor *samples);
// Runs backward from the loss, and returns its value. An error, also of forward, ends the program.
double lesson_backward(Tape *tape, Tensor *loss);
// The predicted class of a row: the index of the largest of its outputs [n, classes].
size_t lesson_answer(const Tensor *outputs, size_t row);

// An array of zeros for each tensor, as large as the tensor, for sums of gradients.
float **lesson_sums_create(const NamedTensors *tensors);
void lesson_sums_close(float **sums, const NamedTensors *tensors);
// Copies the tensors' gradients, one after another, into the buffer, or back from the buffer.
void lesson_pack_gradients(Tensor *const *tensors, size_t count, float *buffer);
void lesson_unpack_gradients(Tensor *const *tensors, size_t count, const float *buffer);

// Sets the gradients of all parameters to 0.
void lesson_zero_gradients(const NamedTensors *tensors);
size_t lesson_count(const NamedTensors *tensors); // elements of all parameters
// Allocates memory for the gradients of all parameters; the caller frees it with free().
float *lesson_flat_create(const NamedTensors *tensors);
// Copies all parameters' gradients or weights, one after another, into or from `flat`.
typedef enum Flatten { GRADIENTS_IN, WEIGHTS_IN, WEIGHTS_OUT } Flatten;
void lesson_flatten(const NamedTensors *tensors, Flatten what, float *flat);
// Registers a hook: backward calls ready(context, tensor, err) when the gradient of one of the
// tensors is complete. ready returns 0, or -1 with err filled, which ends backward.
void lesson_hook(Tensor *const *tensors, size_t count,
                 int (*ready)(void *context, Tensor *tensor, Error *err), void *context);

// A copy of the model's layers for one of several threads, with a tape and tensors of its own,
// which have neither weights nor gradients yet.
typedef struct Replica {
    Device *device;
    Tape *tape;
    Module *module;
    NamedTensors tensors; // in the model's order
} Replica;
void lesson_replica_open(Replica *replica, const Module *model,
                         Device *device); // takes over the device
void lesson_replica_close(Replica *replica);
// Makes the replica's weights aliases of the model's, and its gradients NULL. The buffers,
// which batch norm writes in forward, are the model's for the first replica, copies for the others.
void lesson_share_weights(Replica *replica, const NamedTensors *weights, bool first);

// ---- output ------------------------------------------------------------------------------------

// With --show, prints as printf in the run's first step, unless the process is quiet.
__attribute__((format(printf, 2, 3))) void lesson_show(const Lesson *lesson, const char *format,
                                                       ...);
// In the first step, prints a shard's number of rows and the divisor of its losses.
void lesson_print_shard(const Lesson *lesson, size_t shard, size_t rows, size_t divisor);
// Prints each device's number of rows of a batch, whenever it changes.
void lesson_print_shares(const Lesson *lesson, const Batch *batch, size_t devices);
// Prints "each step: NAME=count bytes=bytes", from totals of the whole run, unless the process is
// quiet.
void lesson_print_each_step(const Lesson *lesson, const char *name, size_t count, size_t bytes);
// Prints the bytes that the device has received from others, and its peak of allocated memory.
void lesson_print_bytes(const Device *device);
// Prints each phase's share of the steps' time, a # for two percent.
void lesson_print_phases(const Profile *profile);
// Prints a confusion matrix [classes, classes], the number of its rows, and an accuracy, unless the
// process is quiet.
void lesson_print_counts(const Lesson *lesson, const double *counts, size_t classes,
                         double accuracy);
// Prints the running mean of the model's first batch norm, if it has one.
void lesson_print_running_mean(Module *model);

#endif
