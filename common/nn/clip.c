/* clip.c: see clip.h. */
#include "common/nn/clip.h"

#include <math.h>

#include "common/base/memory.h"

struct GradClip {
    const NamedTensors *parameters;
    Device *device;
    float *zeros; // [largest], device memory: a length is a distance from 0
    size_t largest;
    float *squares; // [parameters->count], device memory
    float *host;    // the same, to be read
};

GradClip *grad_clip_open(const NamedTensors *parameters) {
    GradClip *clip = memory_zalloc(sizeof *clip);
    *clip = (GradClip){.parameters = parameters,
                       .device = parameters->items[0].tensor->device,
                       .host = memory_zalloc(parameters->count * sizeof *clip->host)};
    for (size_t i = 0; i < parameters->count; i++) {
        size_t count = tensor_count(parameters->items[i].tensor);
        if (count > clip->largest) clip->largest = count;
    }
    clip->zeros = device_alloc(clip->device, clip->largest * sizeof *clip->zeros);
    clip->squares = device_alloc(clip->device, parameters->count * sizeof *clip->squares);
    device_kernels(clip->device)->elementwise->fill(clip->zeros, 0.0f, clip->largest);
    return clip;
}

void grad_clip_close(GradClip *clip) {
    if (!clip) return;
    device_free(clip->device, clip->zeros, clip->largest * sizeof *clip->zeros);
    device_free(clip->device, clip->squares, clip->parameters->count * sizeof *clip->squares);
    free(clip->host);
    free(clip);
}

static double total_norm(GradClip *clip) {
    const NamedTensors *parameters = clip->parameters;
    const Kernels *kernels = device_kernels(clip->device);
    double sum = 0;
    kernels->elementwise->fill(clip->squares, 0.0f, parameters->count); // None has no length
    for (size_t i = 0; i < parameters->count; i++) {
        const Tensor *tensor = parameters->items[i].tensor;
        if (!tensor->has_grad) continue;
        kernels->loss->squared_error(tensor->grad, clip->zeros, 1, clip->squares + i,
                                     tensor_count(tensor));
    }
    device_copy(NULL, clip->host, clip->device, clip->squares,
                parameters->count * sizeof *clip->squares);
    for (size_t i = 0; i < parameters->count; i++) sum += (double)clip->host[i];
    return sqrt(sum);
}

double grad_clip(GradClip *clip, double max_norm) {
    double norm = total_norm(clip), factor = max_norm / (norm + 1e-6);
    if (factor >= 1) return norm;
    for (size_t i = 0; i < clip->parameters->count; i++) {
        const Tensor *tensor = clip->parameters->items[i].tensor;
        if (tensor->has_grad)
            device_kernels(clip->device)
                ->elementwise->scale(tensor->grad, (float)factor, tensor_count(tensor));
    }
    return norm;
}
