/* lesson.h: what the tutorials' programs share, and what is not the lesson.
 *
 * A Lesson is one run: its options, its data and the walk through the batches. All programs take
 * the same options with the same defaults, see the same batches in the same order and write the
 * same file of weights, so that two steps of the tutorial can be compared bit for bit. What a
 * program does with a batch is not here: that is the lesson, and stands in the program.
 *
 *     Lesson lesson;
 *     lesson_options(&lesson, "tutorial_01", SUMMARY, "none");
 *     lesson_begin(&lesson, argc, argv);
 *     for (const Batch *batch; (batch = lesson_next(&lesson));) {
 *         ... compute the gradients of the batch ...
 *         optimizer_step(optimizer, lesson_lr(&lesson));
 *         lesson_report(&lesson, loss);
 *     }
 *     lesson_end(&lesson, model);
 */
#ifndef TUTORIALS_LESSON_H
#define TUTORIALS_LESSON_H

#include "common/data/loader.h"
#include "common/nn/ops.h"
#include "common/nn/optimizer.h"
#include "common/train/trainer.h"

typedef struct Lesson {
    Options options;
    TrainConfig config;
    const char *broken; // --break: which mistake the program is to make; "none"
    bool quiet;         // this process neither prints nor saves
    DataSource *data;
    Device *host; // the memory of the batches
    Sampler *sampler;
    Loader *loader;
    Schedule schedule;
    size_t steps, step; // of the run; those begun so far
    size_t samples;     // in the steps reported so far
    uint64_t begin_ns;  // of the first step
} Lesson;

// Fills the table of options: those of train_single that make sense here, and --break, one of the
// words of `breaks` ("none|mean-of-means"). A program may append options of its own.
void lesson_options(Lesson *lesson, const char *program, const char *summary, const char *breaks);
// Parses, opens the data and begins. Any error ends the program with one line.
void lesson_begin(Lesson *lesson, int argc, char **argv);
bool lesson_breaks(const Lesson *lesson, const char *name); // was --break=NAME given?
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
// Prints what came to the device from others so far, and the most memory it had in use.
void lesson_print_bytes(const Device *device);

// Some rows of a batch on the tape's device.
typedef struct Rows {
    size_t count;
    Tensor *samples; // [count, c, h, w]
    Tensor *target;  // [count] labels, or [count, target_size] numbers
} Rows;
Rows lesson_rows(Tape *tape, const Batch *batch, size_t begin, size_t end);
// The rows' losses, added up and divided by `divisor` rows: a scalar.
Tensor *lesson_loss(Tape *tape, Tensor *outputs, Tensor *target, size_t divisor);
// The class that the outputs [n, classes] name for a row: the largest one's.
size_t lesson_answer(const Tensor *outputs, size_t row);
// The optimizer that --optimizer, --momentum and --weight-decay ask for.
Optimizer *lesson_optimizer(const Lesson *lesson, Module *model);

#endif
