/* clip.c: see clip.h. */
#include "common/nn/clip.h"

#include "common/base/memory.h"

struct GradClip {
    const NamedTensors *parameters;
    Device *device;
    Slice *gradients; // [parameters->count], the list of a call
    float *squares;   // [parameters->count], device memory
    double *norm;     // [1], device memory
};

GradClip *grad_clip_open(const NamedTensors *parameters) {
    Device *device = parameters->items[0].tensor->device;
    GradClip *clip = memory_zalloc(sizeof *clip);
    *clip = (GradClip){.parameters = parameters,
                       .device = device,
                       .gradients = memory_zalloc(parameters->count * sizeof *clip->gradients),
                       .squares = device_alloc(device, parameters->count * sizeof *clip->squares),
                       .norm = device_alloc(device, sizeof *clip->norm)};
    return clip;
}

void grad_clip_close(GradClip *clip) {
    if (!clip) return;
    device_free(clip->device, clip->squares, clip->parameters->count * sizeof *clip->squares);
    device_free(clip->device, clip->norm, sizeof *clip->norm);
    free(clip->gradients);
    free(clip);
}

void grad_clip_queue(GradClip *clip, double max_norm) {
    size_t count = 0;
    for (size_t i = 0; i < clip->parameters->count; i++) {
        const Tensor *tensor = clip->parameters->items[i].tensor;
        if (tensor->has_grad)
            clip->gradients[count++] = (Slice){tensor->grad, tensor_count(tensor)};
    }
    device_kernels(clip->device)
        ->slices->clip(clip->gradients, count, max_norm, clip->squares, clip->norm);
}

double grad_clip(GradClip *clip, double max_norm) {
    double norm;
    grad_clip_queue(clip, max_norm);
    device_copy(NULL, &norm, clip->device, clip->norm, sizeof norm);
    return norm;
}
