/* clip.c: see clip.h. */
#include "common/nn/clip.h"

#include "common/base/memory.h"

struct GradClip {
    const NamedTensors *parameters;
    const OptimizerSharding *sharding;
    Device *device;
    Slice *gradients; // [parameters->count], the list of a call
    int64_t *sum;     // [SQUARES_SIZE], device memory
    double *norm;     // [1], device memory
};

GradClip *grad_clip_open(const NamedTensors *parameters, const OptimizerSharding *sharding) {
    Device *device = parameters->items[0].tensor->device;
    GradClip *clip = memory_zalloc(sizeof *clip);
    *clip = (GradClip){.parameters = parameters,
                       .sharding = sharding,
                       .device = device,
                       .gradients = memory_zalloc(parameters->count * sizeof *clip->gradients),
                       .sum = device_alloc(device, SQUARES_SIZE * sizeof *clip->sum),
                       .norm = device_alloc(device, sizeof *clip->norm)};
    return clip;
}

void grad_clip_close(GradClip *clip) {
    if (!clip) return;
    device_free(clip->device, clip->sum, SQUARES_SIZE * sizeof *clip->sum);
    device_free(clip->device, clip->norm, sizeof *clip->norm);
    free(clip->gradients);
    free(clip);
}

// Appends the gradients that are divided over processes, or the others, to the list of `count`.
// Returns the new count. sharding NULL: none is divided.
static size_t list_gradients(GradClip *clip, const OptimizerSharding *sharding, bool divided,
                             size_t count) {
    for (size_t i = 0; i < clip->parameters->count; i++) {
        const Tensor *tensor = clip->parameters->items[i].tensor;
        const bool is_divided = sharding && !(sharding->undivided && sharding->undivided[i]);
        if (!tensor->has_grad || is_divided != divided) continue;
        const OptimizerPart part =
            is_divided ? sharding->parts[i] : (OptimizerPart){0, tensor_count(tensor)};
        clip->gradients[count++] = (Slice){tensor->grad + part.first, part.count};
    }
    return count;
}

void grad_clip_queue(GradClip *clip, double max_norm) {
    const SliceKernels *kernels = device_kernels(clip->device)->slices;
    const OptimizerSharding *sharding =
        clip->sharding && !clip->sharding->has_whole ? clip->sharding : NULL;
    const size_t divided = list_gradients(clip, sharding, true, 0);
    const size_t count = list_gradients(clip, sharding, false, divided);
    kernels->squares(clip->gradients, divided, false, clip->sum);
    if (sharding) sharding->add_up(sharding->state, clip->sum, SQUARES_SIZE);
    kernels->squares(clip->gradients + divided, count - divided, true, clip->sum);
    kernels->clip(clip->gradients, count, max_norm, clip->sum, clip->norm);
}

double grad_clip(GradClip *clip, double max_norm) {
    double norm;
    grad_clip_queue(clip, max_norm);
    device_copy(NULL, &norm, clip->device, clip->norm, sizeof norm);
    return norm;
}
