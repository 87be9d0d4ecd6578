/* gradient_as_bucket_view.c: see gradient_as_bucket_view.h.
 *
 * Every parameter has gradient memory of its own, at one address for the wrapper's lifetime. When
 * all gradients of a bucket are ready they are copied into it; after its reduction they are copied
 * back. Invariant: between the two copies, and only then, tensor->grad points into the bucket,
 * where communication hooks expect it.
 *
 * Cost, as in PyTorch: a second copy of all gradients in memory, and two passes over them. The
 * values have the same bits.
 */
#include "ddp/features/gradient_as_bucket_view.h"

#include "common/base/memory.h"
#include "ddp/features/features.h"
#include "ddp/reducer.h"

typedef struct BucketCopies {
    Reducer *reducer;
    float **own; // [parameters] the module's memory
} BucketCopies;

// The parameters of a bucket are order[first] to order[end - 1] of the plan.
static void move_gradients(const BucketCopies *copies, const GradBucket *bucket, bool in) {
    const BucketPlan *plan = &copies->reducer->slab.plan;
    for (size_t i = plan->start[bucket->index]; i < plan->start[bucket->index + 1]; i++) {
        size_t parameter = plan->order[i];
        Tensor *tensor = copies->reducer->slab.parameters.items[parameter].tensor;
        float *to = in ? copies->reducer->slab.slices[parameter].data : copies->own[parameter];
        device_copy(tensor->device, to, tensor->device, tensor->grad, tensor_bytes(tensor));
        tensor->grad = to;
    }
}

static void copy_in(void *state, const GradBucket *bucket) {
    move_gradients(state, bucket, true);
}

static void copy_back(void *state, const GradBucket *bucket) {
    move_gradients(state, bucket, false);
}

// A bucket that was filled but never reduced, after an error, leaves gradients that point into it.
static void close_copies(void *state) {
    BucketCopies *copies = state;
    const NamedTensors *parameters = &copies->reducer->slab.parameters;
    for (size_t i = 0; i < parameters->count; i++)
        parameters->items[i].tensor->grad = copies->own[i];
    free(copies->own);
    free(copies);
}

void ddp_keep_gradients_beside_buckets(Module *wrapper) {
    Reducer *reducer = ddp_reducer(wrapper);
    const NamedTensors *parameters = &reducer->slab.parameters;
    BucketCopies *copies = memory_zalloc(sizeof *copies);
    copies->reducer = reducer;
    copies->own = memory_zalloc(parameters->count * sizeof *copies->own);
    for (size_t i = 0; i < parameters->count; i++) parameters->items[i].tensor->grad = NULL;
    module_own_grads(ddp_module(wrapper));
    for (size_t i = 0; i < parameters->count; i++)
        copies->own[i] = parameters->items[i].tensor->grad;
    reducer_add_iteration(reducer, (DdpIteration){.name = "gradient_as_bucket_view=False",
                                                  .state = copies,
                                                  .bucket_full = copy_in,
                                                  .bucket_reduced = copy_back,
                                                  .close = close_copies,
                                                  .graph_safe = true});
}

// ---- the command line -----------------------------------------------------------------------

const DdpFeature gradient_as_bucket_view_feature = {
    .graph_safe = true,
    .flag = "no-gradient-as-bucket-view",
    .help = "keep gradients beside the buckets and copy them in and out (PyTorch's default)",
    .add_to = ddp_keep_gradients_beside_buckets};
