/* layers.c: the forward functions of the layer types, and PyTorch's initialisation. */
#include "common/nn/layers.h"

#include <math.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/ops_half.h"

// ---- linear, convolution: parameters {weight, bias} -------------------------------------------

static Tensor *bias_of(Module *layer) {
    return layer->parameter_count > 1 ? module_parameter(layer, 1) : NULL;
}

static Tensor *linear_forward(Module *self, Tape *tape, Tensor *x) {
    return op_linear(tape, x, module_parameter(self, 0), bias_of(self));
}

Tensor *layer_linear_add(Module *layer, Tape *tape, Tensor *x, Tensor **sum) {
    const bool own = layer->forward == linear_forward;
    if (own && tape_product_dtype(tape) == DTYPE_F32) {
        *sum = op_linear_add(tape, x, module_parameter(layer, 0), bias_of(layer), *sum);
        return NULL;
    }
    Tensor *y = module_forward(layer, tape, x);
    if (y && tensor_is_half(y)) return y;
    *sum = op_add(tape, *sum, y);
    return NULL;
}

static Tensor *linear_relu_forward(Module *self, Tape *tape, Tensor *x) {
    return op_linear_relu(tape, x, module_parameter(self, 0), module_parameter(self, 1));
}

Module *layer_linear_without_bias(Device *device, size_t in, size_t out) {
    Module *module = module_create("Linear", linear_forward);
    module_add_parameter(module, device, "weight", 2, (size_t[]){out, in});
    return module;
}

Module *layer_linear(Device *device, size_t in, size_t out) {
    Module *module = layer_linear_without_bias(device, in, out);
    module_add_parameter(module, device, "bias", 1, (size_t[]){out});
    return module;
}

Module *layer_linear_relu(Device *device, size_t in, size_t out) {
    Module *module = layer_linear(device, in, out);
    module->forward = linear_relu_forward;
    return module;
}

enum { CONV_STRIDE, CONV_PAD };

static Tensor *conv2d_forward(Module *self, Tape *tape, Tensor *x) {
    return op_conv2d(tape, x, module_parameter(self, 0), bias_of(self), self->config[CONV_STRIDE],
                     self->config[CONV_PAD]);
}

Module *layer_conv2d(Device *device, size_t in, size_t out, size_t kernel, size_t stride,
                     size_t pad, bool bias) {
    CHECK(kernel > 0 && stride > 0, "layer_conv2d: kernel %zu, stride %zu", kernel, stride);
    Module *module = module_create("Conv2d", conv2d_forward);
    module->config[CONV_STRIDE] = stride;
    module->config[CONV_PAD] = pad;
    module_add_parameter(module, device, "weight", 4, (size_t[]){out, in, kernel, kernel});
    if (bias) module_add_parameter(module, device, "bias", 1, (size_t[]){out});
    return module;
}

// ---- batch norm: parameters {weight, bias}, buffers {running_mean, running_var, ---------------
// num_batches_tracked} ------

enum { RUNNING_MEAN, RUNNING_VAR, BATCHES_TRACKED }; // buffers

BatchNormState layer_batch_norm_state(Module *module) {
    return (BatchNormState){.weight = module_parameter(module, 0),
                            .bias = module_parameter(module, 1),
                            .running_mean = &module->buffers[RUNNING_MEAN].tensor,
                            .running_var = &module->buffers[RUNNING_VAR].tensor,
                            .num_batches_tracked = &module->buffers[BATCHES_TRACKED].tensor,
                            .momentum = 0.1f,
                            .eps = 1e-5f};
}

static Tensor *batch_norm_forward(Module *self, Tape *tape, Tensor *x) {
    const BatchNormState state = layer_batch_norm_state(self);
    return op_batch_norm(tape, x, &state);
}

Tensor *layer_batch_norm_relu(Module *layer, Tape *tape, Tensor *x, Tensor *residual) {
    const BatchNormState state = layer_batch_norm_state(layer);
    if (layer->forward == batch_norm_forward) return op_batch_norm_relu(tape, x, &state, residual);
    Tensor *y = module_forward(layer, tape, x);
    return op_relu(tape, residual ? op_add(tape, y, residual) : y);
}

Module *layer_batch_norm(Device *device, size_t channels) {
    Module *module = module_create("BatchNorm", batch_norm_forward);
    size_t shape[] = {channels};
    module_add_parameter(module, device, "weight", 1, shape);
    module_add_parameter(module, device, "bias", 1, shape);
    module_add_buffer(module, device, "running_mean", DTYPE_F32, 1, shape);
    module_add_buffer(module, device, "running_var", DTYPE_F32, 1, shape);
    module_add_buffer(module, device, "num_batches_tracked", DTYPE_I64, 0, NULL);
    module_fill_constants(module);
    return module;
}

// ---- layer norm: parameters {weight, bias} ------------------------------------------------------

static Tensor *layer_norm_forward(Module *self, Tape *tape, Tensor *x) {
    return op_layer_norm(tape, x, module_parameter(self, 0), module_parameter(self, 1));
}

Tensor *layer_norm_add(Module *layer, Tape *tape, Tensor **sum, Tensor *branch) {
    if (layer->forward == layer_norm_forward)
        return op_add_layer_norm(tape, sum, branch, module_parameter(layer, 0),
                                 module_parameter(layer, 1));
    if (branch) *sum = op_add(tape, *sum, branch);
    return module_forward(layer, tape, *sum);
}

Module *layer_norm(Device *device, size_t channels) {
    Module *module = module_create("LayerNorm", layer_norm_forward);
    module_add_parameter(module, device, "weight", 1, &channels);
    module_add_parameter(module, device, "bias", 1, &channels);
    module_fill_constants(module);
    return module;
}

// ---- layers without tensors -------------------------------------------------------------------

static Tensor *activation_forward(Module *self, Tape *tape, Tensor *x) {
    return op_activation(tape, (Activation)self->config[0], x);
}

Module *layer_activation(Activation f) {
    Module *module = module_create(activation_names[f].module, activation_forward);
    module->config[0] = f;
    return module;
}

Module *layer_relu(void) {
    return layer_activation(ACTIVATION_RELU);
}

Tensor *layer_linear_gelu(Module *layer, Module *gelu, Tape *tape, Tensor *x) {
    if (layer->forward == linear_forward && gelu->forward == activation_forward &&
        gelu->config[0] == ACTIVATION_GELU && bias_of(layer))
        return op_linear_gelu(tape, x, module_parameter(layer, 0), bias_of(layer));
    return module_forward(gelu, tape, module_forward(layer, tape, x));
}

// Returns whether child i is a batch norm and the next child a relu. The two are then one
// operation, which passes over memory once and computes the same bits.
static bool is_norm_and_relu(const Module *self, int i) {
    if (i + 1 >= self->child_count || self->children[i]->forward != batch_norm_forward)
        return false;
    const Module *next = self->children[i + 1];
    return next->forward == activation_forward && next->config[0] == ACTIVATION_RELU;
}

static Tensor *sequential_forward(Module *self, Tape *tape, Tensor *x) {
    for (int i = 0; i < self->child_count; i++) {
        Module *child = self->children[i];
        const bool both = is_norm_and_relu(self, i);
        x = both ? layer_batch_norm_relu(child, tape, x, NULL) : module_forward(child, tape, x);
        if (both) i++;
    }
    return x;
}

Module *layer_sequential(const char *type) {
    return module_create(type, sequential_forward);
}

static Tensor *flatten_forward(Module *self, Tape *tape, Tensor *x) {
    (void)self;
    return op_flatten(tape, x);
}

Module *layer_flatten(void) {
    return module_create("Flatten", flatten_forward);
}

enum { POOL_KERNEL, POOL_STRIDE, POOL_PAD };

static Tensor *max_pool_forward(Module *self, Tape *tape, Tensor *x) {
    const size_t *config = self->config;
    return op_max_pool(tape, x, config[POOL_KERNEL], config[POOL_STRIDE], config[POOL_PAD]);
}

static Tensor *avg_pool_forward(Module *self, Tape *tape, Tensor *x) {
    const size_t *config = self->config;
    return op_avg_pool(tape, x, config[POOL_KERNEL], config[POOL_STRIDE], config[POOL_PAD]);
}

static Module *pool(const char *type, Tensor *(*forward)(Module *, Tape *, Tensor *), size_t kernel,
                    size_t stride, size_t pad) {
    CHECK(kernel > 0 && stride > 0, "%s: kernel %zu, stride %zu", type, kernel, stride);
    Module *module = module_create(type, forward);
    module->config[POOL_KERNEL] = kernel;
    module->config[POOL_STRIDE] = stride;
    module->config[POOL_PAD] = pad;
    return module;
}

Module *layer_max_pool(size_t kernel, size_t stride, size_t pad) {
    return pool("MaxPool2d", max_pool_forward, kernel, stride, pad);
}

Module *layer_avg_pool(size_t kernel, size_t stride, size_t pad) {
    return pool("AvgPool2d", avg_pool_forward, kernel, stride, pad);
}

// ---- initialisation ---------------------------------------------------------------------------

static void fill_uniform(Tensor *tensor, uint64_t seed, uint64_t stream, float bound) {
    size_t count = tensor_count(tensor), first = tensor_first(tensor);
    if (device_is_dry(tensor->device)) return;
    float *host = memory_zalloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[i] = rng_uniform(seed, stream, first + i, -bound, bound);
    tensor_from_host(tensor, host);
    free(host);
}

static void initialize(Module *module, uint64_t seed, uint64_t *next) {
    bool has_fan = strcmp(module->type, "Linear") == 0 || strcmp(module->type, "Conv2d") == 0;
    for (int i = 0; i < module->parameter_count; i++) {
        uint64_t stream = RNG_STREAM_PARAMETER + (*next)++;
        if (!has_fan || module->parameters[i].tied) continue; // the owner's walk fills that
        // [out, in] or [out, in, kernel, kernel]
        const Tensor weight = tensor_whole(module_parameter(module, 0));
        size_t fan_in = tensor_count(&weight) / weight.shape[0];
        fill_uniform(module_parameter(module, i), seed, stream, 1.0f / sqrtf((float)fan_in));
    }
    for (int i = 0; i < module->child_count; i++) initialize(module->children[i], seed, next);
}

static void fill(const Tensor *tensor, float value) {
    device_kernels(tensor->device)
        ->elementwise->fill(tensor->data, value, tensor_bytes(tensor) / sizeof(float));
}

void module_fill_constants(Module *module) {
    const bool batch = strstr(module->type, "BatchNorm") != NULL;
    const bool norm = batch || strcmp(module->type, "LayerNorm") == 0;
    for (int i = 0; i < module->parameter_count; i++)
        if (!module->parameters[i].tied) fill(module_parameter(module, i), norm && i == 0 ? 1 : 0);
    for (int i = 0; i < module->buffer_count; i++)
        fill(&module->buffers[i].tensor, batch && i == RUNNING_VAR ? 1 : 0);
    for (int i = 0; i < module->child_count; i++) module_fill_constants(module->children[i]);
}

void module_initialize(Module *module, uint64_t seed) {
    uint64_t next = 0;
    initialize(module, seed, &next);
}
