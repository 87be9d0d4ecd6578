/* batch_input.h: the current batch on the device.
 *
 *              slots            transfer
 *     GPU      2, alternating   asynchronous, from pinned memory: step k computes on one slot while
 *                               batch k + 1 is copied into the other
 *     CPU      1                a copy
 *
 * The slots' addresses are constant, so a captured graph of a step finds its input.
 *
 *     batch_input_wait(input);          // the loader may now overwrite the previous batch
 *     batch = loader_next(loader);
 *     batch_input_send(input, batch);
 *     ... tape operations on batch_input_samples, batch_input_target ...
 *     batch_input_used(input);          // all work on the batch is enqueued
 */
#ifndef COMMON_TRAIN_BATCH_INPUT_H
#define COMMON_TRAIN_BATCH_INPUT_H

#include "common/data/loader.h"
#include "common/nn/tensor.h"

enum { BATCH_SLOTS = 2 };

typedef struct BatchSlot {
    void *samples;     // [capacity, c, h, w] or [capacity, T], in device memory
    void *target;      // labels or numbers, in device memory
    DeviceEvent *free; // recorded after the last work on the slot
    DeviceEvent *sent; // recorded after the copy: then the host's memory may be overwritten
} BatchSlot;

typedef struct BatchInput {
    Device *device;
    const Dataset *set;
    size_t sample_bytes, target_bytes, capacity;
    BatchSlot slots[BATCH_SLOTS];
    int slot_count, slot;           // `slot` holds the last sent batch
    const Batch *batch;             // the whole batch
    size_t begin, end, part, parts; // micro-batch `part` of `parts` is samples [begin, end)
} BatchInput;

typedef struct Tape Tape; // common/nn/tape.h

// Allocates slots for batches of up to `capacity` samples of the set. Precondition: the batches are
// of a loader of the same device (pinned memory).
BatchInput *batch_input_create(Device *device, const Dataset *set, size_t capacity);
void batch_input_close(BatchInput *input); // NULL is fine

// Waits until the host memory of the last sent batch may be overwritten.
void batch_input_wait(BatchInput *input);
// Enqueues the copy of the batch to the next slot, after the work that uses the slot. The whole
// batch is selected then.
void batch_input_send(BatchInput *input, const Batch *batch);
// Marks the slot free once all work enqueued so far has completed.
void batch_input_used(BatchInput *input);

// Selects micro-batch i of `parts` of the last sent batch (PyTorch's chunk rule; it may be empty).
void batch_input_select(BatchInput *input, size_t i, size_t parts);

// Return tensors of the tape that alias the selected micro-batch in the slot.
//
//     data               samples                    target
//     images             [count, c, h, w] F32       labels [count] I64
//     pixels (dense)     [count, c, h, w] F32       labels [count, h, w] I64
//     text               tokens [count, T] I64      tokens [count * T] I64
//     regression         [count, c, h, w] F32       numbers [count, target_size] F32
Tensor *batch_input_samples(const BatchInput *input, Tape *tape);
Tensor *batch_input_target(const BatchInput *input, Tape *tape);

#endif
