/* batch_input.h: the current batch on the device.
 *
 * On a GPU a batch is sent beside the computation, from memory that the device reads by itself,
 * into one of two places in turn: step k computes on one while batch k + 1 fills the other. The
 * places stay where they are, so that a captured graph of a step finds its input. On a CPU there is
 * one place, and sending is a copy.
 *
 *     batch_input_wait(input);          // the loader may change the batch before
 *     batch = loader_next(loader);
 *     batch_input_send(input, batch);
 *     ... tape operations on batch_input_samples, batch_input_target ...
 *     batch_input_used(input);          // that was all that uses it
 */
#ifndef COMMON_TRAIN_BATCH_INPUT_H
#define COMMON_TRAIN_BATCH_INPUT_H

#include "common/data/loader.h"
#include "common/nn/tensor.h"

enum { BATCH_PLACES = 2 };

typedef struct BatchInput BatchInput;
typedef struct Tape Tape; // common/nn/tape.h

// Takes memory for batches of up to `capacity` samples of the set. The batches come from a loader
// that was made for the same device.
BatchInput *batch_input_create(Device *device, const Dataset *set, size_t capacity);
void batch_input_close(BatchInput *input);         // NULL is fine
size_t batch_input_bytes(const BatchInput *input); // how much device memory it has taken

// Waits until the memory of the last batch that was sent may be changed.
void batch_input_wait(BatchInput *input);
// Asks for the batch to be sent to the device, once the step that used its place has been computed.
void batch_input_send(BatchInput *input, const Batch *batch);
// Notes that all that uses the current batch has been asked for.
void batch_input_used(BatchInput *input);

// Chooses part i of `parts` of the batch that was sent last (PyTorch's chunk rule); the functions
// below are about this part. A part may be empty. After batch_input_send the whole batch is the
// only part.
void batch_input_select(BatchInput *input, size_t i, size_t parts);
size_t batch_input_count(const BatchInput *input); // how many samples the part has
size_t batch_input_part(const BatchInput *input);  // its number, i
size_t batch_input_parts(const BatchInput *input); // of how many parts it is one

const Batch *batch_input_batch(const BatchInput *input); // the whole batch that was sent last
int batch_input_place(const BatchInput *input);          // the place that holds it, from 0
// Makes the chosen part into tensors of the tape. Samples are [count, c, h, w], or tokens [count,
// T] (I64). The target is labels: [count], [count, h, w] for pixels, [count * T] for text (all
// I64); or it is numbers, [count, target_size].
Tensor *batch_input_samples(const BatchInput *input, Tape *tape);
Tensor *batch_input_target(const BatchInput *input, Tape *tape);

#endif
