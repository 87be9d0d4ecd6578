/* lesson.h: what the tutorials' programs share, and what is not the lesson.
 *
 * A Lesson is one run: its options, its data and the walk through the batches. All programs take
 * the same options with the same defaults, see the same batches in the same order and write the
 * same file of weights, so that two steps of the tutorial can be compared bit for bit. What a
 * program does with a batch is not here: that is the lesson, and stands in the program.
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
 * The mistakes that a program can make on purpose (--break=NAME) are not in it either:
 * PROGRAM.breaks beside it holds the lines that each replaces, and the build makes a version of the
 * program of each (breaks.h).
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
    char program[16], summary[256]; // theirs
    TrainConfig config;
    bool quiet; // this process neither prints nor saves
    DataSource *data;
    Device *host; // the memory of the batches
    Sampler *sampler;
    Loader *loader;
    Schedule schedule;
    size_t steps, step; // of the run; those begun so far

    // Options of single steps, with the option's name: lesson_steps.c says which step has which.
    const char *broken;             // --break: as which version does the program run? "none"
    size_t shards, devices;         // a batch is cut into so many parts
    bool show, show_update, orders; // print more
    double noise;                   // standard deviation, added to the samples
    int blocked;                    // --sampler: "blocked" and not "interleaved"
    size_t bucket_bytes;            // a bucket that holds so many is full
    const char *batch_norm;         // "own" or "sync"
    size_t unit_layers;             // layers of a unit
    bool only_test;                 // no training
    const char *checkpoint;         // a file; NULL: none is written
    size_t kill_at;                 // the step in whose checkpoint the process dies
    size_t micro_batches;           // in a step
    double max_norm;                // of the gradients; 0: any
    size_t uneven;                  // steps that rank r has less, times r
    int wire;                       // the number of the word
    double scale;                   // of gradients in fp16
    double timeout_s;               // how long a rank waits for the others before it gives up
    double stop_below;              // training ends when a rank's loss is smaller
    const char *scratch;            // a folder on the node's own disk; NULL: none
} Lesson;

// Parses the options of the step of this name ("one-device"), opens the data and begins. Any error
// ends the program with one line.
void lesson_begin(Lesson *lesson, const char *step, int argc, char **argv);
// The options, before they are parsed: those of train_single that make sense here, --break, and the
// step's own.
void lesson_options(Lesson *lesson, const char *step);
// How many of the parts into which chunk_bounds cuts `rows` have any.
int lesson_parts(size_t rows, int parts);
// The batches come from this sampler from now on, which is the lesson's to close; the steps of the
// run are counted anew. Before the first lesson_next.
void lesson_use_sampler(Lesson *lesson, Sampler *sampler);

// The next batch, all rows that the sampler gives it, in host memory; NULL after the last step.
// Valid until the next call.
const Batch *lesson_next(Lesson *lesson);
// Adds normal noise of this standard deviation to the samples of the current batch: other numbers
// for each seed, step and place. Returns the first number drawn, before it is scaled.
double lesson_add_noise(const Lesson *lesson, const Batch *batch, double deviation, uint64_t seed);
// Skips the first `steps` steps of a resumed run. Before the first lesson_next.
void lesson_skip(Lesson *lesson, size_t steps);
double lesson_lr(const Lesson *lesson); // of the current step
bool lesson_is_logged(const Lesson *lesson);
// Prints a line "step=0 loss=2.3201" every --log-every steps, and at the last one.
void lesson_report(Lesson *lesson, double loss);
// Saves the weights (--save), prints the accuracy on the test set, and closes what lesson_begin
// opened. Does not close the model.
void lesson_end(Lesson *lesson, Module *model);

// Ends the program with the line "error: NAME WHAT" unless all is fine.
void lesson_need(bool fine, const char *name, const char *what);

// Opens the device "cpu:index", a memory of its own; the program closes it.
Device *lesson_device(int index);
// The network on the device, with the first weights that this rank draws.
Module *lesson_model(const Lesson *lesson, Device *device, int rank);
// The optimizer that --optimizer, --momentum and --weight-decay ask for.
Optimizer *lesson_optimizer(const Lesson *lesson, Module *model);

// Some rows of a batch on the tape's device.
typedef struct Rows {
    size_t count;
    Tensor *samples; // [count, c, h, w]
    Tensor *target;  // [count] labels, or [count, target_size] numbers
} Rows;
Rows lesson_rows(Tape *tape, const Batch *batch, size_t begin, size_t end);
// The rows' losses, added up and divided by `divisor` rows: a scalar.
Tensor *lesson_loss(Tape *tape, Tensor *outputs, Tensor *target, size_t divisor);
// The model's outputs for the rows. An error ends the program.
Tensor *lesson_forward(Module *model, Tape *tape, Tensor *samples);
// Runs backward from the loss, and returns its value. An error, also of forward, ends the program.
double lesson_backward(Tape *tape, Tensor *loss);
// The class that the outputs [n, classes] name for a row: the largest one's.
size_t lesson_answer(const Tensor *outputs, size_t row);

// An array of zeros for each tensor, as large as the tensor, for sums of gradients.
float **lesson_sums_create(const NamedTensors *tensors);
void lesson_sums_close(float **sums, const NamedTensors *tensors);
// Copies the tensors' gradients, one after another, into the buffer, or back from there.
void lesson_pack_gradients(Tensor *const *tensors, size_t count, float *buffer);
void lesson_unpack_gradients(Tensor *const *tensors, size_t count, const float *buffer);

// The gradients of all parameters become zeros.
void lesson_zero_gradients(const NamedTensors *tensors);
size_t lesson_count(const NamedTensors *tensors); // elements of all parameters
// Memory for the gradients of all parameters, to be freed with free().
float *lesson_flat_create(const NamedTensors *tensors);
// Copies all parameters' gradients or weights, one after another, into `flat` or out of it.
typedef enum Flatten { GRADIENTS_IN, WEIGHTS_IN, WEIGHTS_OUT } Flatten;
void lesson_flatten(const NamedTensors *tensors, Flatten what, float *flat);
// Backward calls ready(context, tensor, err) as soon as the gradient of one of the tensors is
// complete. Its result is 0, or -1 with err filled, which ends backward.
void lesson_hook(Tensor *const *tensors, size_t count,
                 int (*ready)(void *context, Tensor *tensor, Error *err), void *context);

// The model's layers once more, for one of several threads, with a tape and tensors of its own,
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
// The replica reads the model's weights where they lie, and has no gradients. The buffers, which
// batch norm writes in forward, are the model's own for the first replica, and copies for others.
void lesson_share_weights(Replica *replica, const NamedTensors *weights, bool first);

// ---- what a program shows ----------------------------------------------------------------------

// With --show, prints as printf in the run's first step, unless the process is quiet.
__attribute__((format(printf, 2, 3))) void lesson_show(const Lesson *lesson, const char *format,
                                                       ...);
// In the first step: a shard's rows, and what its rows' losses are divided by.
void lesson_print_shard(const Lesson *lesson, size_t shard, size_t rows, size_t divisor);
// How many rows each of the devices gets of a batch, whenever that changes.
void lesson_print_shares(const Lesson *lesson, const Batch *batch, size_t devices);
// "each step: NAME=count bytes=bytes": of totals of the whole run. Nothing from a quiet process.
void lesson_print_each_step(const Lesson *lesson, const char *name, size_t count, size_t bytes);
// What came to the device from others so far, and the most memory it had in use.
void lesson_print_bytes(const Device *device);
// The share of each phase of the steps, a # for two percent.
void lesson_print_phases(const Profile *profile);
// A confusion matrix [classes, classes], the number of its rows, and an accuracy. A quiet process
// prints nothing.
void lesson_print_counts(const Lesson *lesson, const double *counts, size_t classes,
                         double accuracy);
// What the model's first batch norm remembers of its inputs; nothing if there is none.
void lesson_print_running_mean(Module *model);

#endif
