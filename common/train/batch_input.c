/* batch_input.c: slots of device memory, and the events that order their reuse. */
#include "common/train/batch_input.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

BatchInput *batch_input_create(Device *device, const Dataset *set, size_t capacity) {
    BatchInput *input = memory_zalloc(sizeof *input);
    *input = (BatchInput){
        .device = device,
        .set = set,
        .sample_bytes = dataset_sample_size(set) * (set->tokens ? sizeof(int64_t) : sizeof(float)),
        .target_bytes = dataset_has_labels(set) ? dataset_label_size(set) * sizeof(int64_t)
                                                : set->target_size * sizeof(float),
        .capacity = capacity,
        .slot_count = device_is_synchronous(device) ? 1 : BATCH_SLOTS};
    for (int i = 0; i < input->slot_count; i++)
        input->slots[i] =
            (BatchSlot){.samples = device_alloc(device, capacity * input->sample_bytes),
                        .target = device_alloc(device, capacity * input->target_bytes),
                        .free = device_event_create(device),
                        .sent = device_event_create(device)};
    return input;
}

void batch_input_close(BatchInput *input) {
    if (!input) return;
    for (int i = 0; i < input->slot_count; i++) {
        BatchSlot *slot = &input->slots[i];
        device_event_wait(slot->sent);
        device_event_close(slot->free);
        device_event_close(slot->sent);
        device_free(input->device, slot->samples, input->capacity * input->sample_bytes);
        device_free(input->device, slot->target, input->capacity * input->target_bytes);
    }
    free(input);
}

void batch_input_wait(BatchInput *input) {
    device_event_wait(input->slots[input->slot].sent);
}

void batch_input_send(BatchInput *input, const Batch *batch) {
    CHECK(batch->count <= input->capacity, "a batch of %zu samples, room for %zu", batch->count,
          input->capacity);
    input->batch = batch;
    batch_input_select(input, 0, 1);
    input->slot = (input->slot + 1) % input->slot_count;
    const BatchSlot *slot = &input->slots[input->slot];
    device_upload(input->device, slot->target,
                  batch->labels ? (const void *)batch->labels : batch->targets,
                  batch->count * input->target_bytes, slot->free, NULL);
    device_upload(input->device, slot->samples,
                  batch->tokens ? (const void *)batch->tokens : batch->samples,
                  batch->count * input->sample_bytes, slot->free, slot->sent);
}

void batch_input_used(BatchInput *input) {
    device_event_record(input->slots[input->slot].free);
}

void batch_input_select(BatchInput *input, size_t i, size_t parts) {
    chunk_bounds(input->batch->count, parts, i, &input->begin, &input->end);
    input->part = i;
    input->parts = parts;
}

Tensor *batch_input_samples(const BatchInput *input, Tape *tape) {
    const size_t *sample = input->set->shape;
    size_t shape[] = {input->end - input->begin, sample[0], sample[1], sample[2]};
    void *samples = (char *)input->slots[input->slot].samples + input->begin * input->sample_bytes;
    if (input->set->tokens) return tape_view(tape, DTYPE_I64, 2, shape, samples);
    return tape_view(tape, DTYPE_F32, 4, shape, samples);
}

Tensor *batch_input_target(const BatchInput *input, Tape *tape) {
    const Dataset *set = input->set;
    size_t count = input->end - input->begin;
    void *target = (char *)input->slots[input->slot].target + input->begin * input->target_bytes;
    if (set->dense)
        return tape_view(tape, DTYPE_I64, 3, (size_t[]){count, set->shape[1], set->shape[2]},
                         target);
    size_t labels = count * dataset_label_size(set);
    if (dataset_has_labels(set)) return tape_view(tape, DTYPE_I64, 1, &labels, target);
    return tape_view(tape, DTYPE_F32, 2, (size_t[]){count, set->target_size}, target);
}
