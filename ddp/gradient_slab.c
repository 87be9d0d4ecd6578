/* gradient_slab.c: lays gradients out in buckets, and moves them when the buckets change. */
#include "ddp/gradient_slab.h"

#include "common/base/memory.h"

static Tensor *tensor_of(const GradientSlab *slab, size_t parameter) {
    return slab->parameters.items[parameter].tensor;
}

static size_t slice_floats(const Tensor *tensor) {
    return memory_whole_lines(tensor_bytes(tensor)) / sizeof(float);
}

// Whether the parameter's gradient is in its slice; otherwise a feature keeps it elsewhere.
static bool is_here(const GradientSlab *slab, size_t parameter) {
    return tensor_of(slab, parameter)->grad == slab->slices[parameter].data;
}

// ---- laying out -----------------------------------------------------------------------------

// Assigns gradient i of the plan the slice at `next`. `before` is a copy of the slab, the source of
// defined gradients; NULL if no gradient is defined.
static void lay_gradient(GradientSlab *slab, size_t i, size_t bucket, float *next,
                         const float *before) {
    size_t parameter = slab->plan.order[i];
    Tensor *tensor = tensor_of(slab, parameter);
    device_kernels(tensor->device)->elementwise->fill(next, 0.0f, slice_floats(tensor));
    if (is_here(slab, parameter)) {
        if (tensor->has_grad)
            device_copy(tensor->device, next, tensor_of(slab, 0)->device,
                        before + (tensor->grad - slab->memory), tensor_bytes(tensor));
        tensor->grad = next;
    }
    slab->slices[parameter] = (BucketSlice){.bucket = bucket, .data = next};
    slab->members[i] = tensor;
}

static void lay_out_buckets(GradientSlab *slab, const float *before) {
    const BucketPlan *plan = &slab->plan;
    free(slab->buckets);
    slab->buckets = memory_zalloc(plan->bucket_count * sizeof *slab->buckets);
    float *next = slab->memory;
    for (size_t b = 0; b < plan->bucket_count; b++) {
        float *begin = next;
        for (size_t i = plan->start[b]; i < plan->start[b + 1]; i++) {
            lay_gradient(slab, i, b, next, before);
            next += slice_floats(slab->members[i]);
        }
        slab->buckets[b] = (GradBucket){.index = b,
                                        .is_last = b + 1 == plan->bucket_count,
                                        .device = slab->members[plan->start[b]]->device,
                                        .buffer = begin,
                                        .count = (size_t)(next - begin),
                                        .parameters = slab->members + plan->start[b],
                                        .parameter_count = plan->start[b + 1] - plan->start[b],
                                        .op = slab->op};
    }
}

void gradient_slab_lay_out(GradientSlab *slab, BucketPlan plan) {
    size_t bytes = slab->floats * sizeof(float);
    float *before = NULL; // after zero_grad no gradient is defined
    buckets_free(&slab->plan);
    slab->plan = plan;
    for (size_t i = 0; i < slab->parameters.count; i++) {
        const Tensor *tensor = tensor_of(slab, i);
        Device *device = tensor_of(slab, 0)->device;
        if (!tensor->has_grad || !is_here(slab, i)) continue;
        if (!before) before = device_alloc(device, bytes);
        device_copy(device, before + (tensor->grad - slab->memory), tensor->device, tensor->grad,
                    tensor_bytes(tensor));
    }
    lay_out_buckets(slab, before);
    if (before) device_free(tensor_of(slab, 0)->device, before, bytes);
}

// ---- opening and closing --------------------------------------------------------------------

// The bucket key of a parameter's device: the index of its first parameter.
static int device_key(const GradientSlab *slab, size_t parameter) {
    size_t first = 0;
    while (tensor_of(slab, first)->device != tensor_of(slab, parameter)->device) first++;
    return (int)first;
}

int gradient_slab_open(GradientSlab *slab, NamedTensors parameters, ProcessGroup *group,
                       ReduceOp op, Error *err) {
    *slab = (GradientSlab){.parameters = parameters, .op = op};
    slab->sizes = memory_zalloc(parameters.count * sizeof *slab->sizes);
    slab->slices = memory_zalloc(parameters.count * sizeof *slab->slices);
    slab->members = memory_zalloc(parameters.count * sizeof *slab->members);
    for (size_t i = 0; i < parameters.count; i++) {
        const Tensor *tensor = tensor_of(slab, i);
        slab->sizes[i] = (BucketTensor){tensor_bytes(tensor), device_key(slab, i)};
        device_count(tensor->device, slice_floats(tensor) * sizeof(float));
        slab->floats += slice_floats(tensor);
    }
    slab->memory = pg_shared_alloc(group, slab->floats * sizeof(float), err);
    return slab->memory ? 0 : -1;
}

void gradient_slab_close(GradientSlab *slab) {
    for (size_t i = 0; i < slab->parameters.count; i++) {
        Tensor *tensor = tensor_of(slab, i);
        device_uncount(tensor->device, slice_floats(tensor) * sizeof(float));
        if (is_here(slab, i)) tensor->grad = NULL;
        tensor->has_grad = false;
    }
    buckets_free(&slab->plan);
    named_tensors_free(&slab->parameters);
    free(slab->buckets);
    free(slab->members);
    free(slab->slices);
    free(slab->sizes);
}
