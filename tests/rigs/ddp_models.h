/* ddp_models.h: small models and batches for tests of DistributedDataParallel. All numbers are pure
 * functions of the model's seed, or of (rank, step, row), so that any process can simulate any
 * rank.
 */
#ifndef TESTS_RIGS_DDP_MODELS_H
#define TESTS_RIGS_DDP_MODELS_H

#include <string.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/nn/layers.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"

enum { IMAGE = 64, CLASSES = 10, ROWS_MAX = 8 };

// One Linear is used twice: its gradient is ready after the second contribution.
static Tensor *shared_forward(Module *self, Tape *tape, Tensor *x) {
    x = op_relu(tape, module_forward(module_child(self, "first"), tape, op_flatten(tape, x)));
    x = op_relu(tape, module_forward(module_child(self, "twice"), tape, x));
    x = op_relu(tape, module_forward(module_child(self, "twice"), tape, x));
    return module_forward(module_child(self, "head"), tape, x);
}

static inline Module *shared_model(Device *device, uint64_t seed) {
    Module *model = module_create("Shared", shared_forward);
    module_add(model, "twice", layer_linear(device, 16, 16)); // registration order differs from use
    module_add(model, "first", layer_linear(device, IMAGE, 16));
    module_add(model, "head", layer_linear(device, 16, CLASSES));
    module_initialize(model, seed);
    return model;
}

// Two Linears that share a weight and have their own biases.
static inline Module *tied_model(Device *device, uint64_t seed) {
    Module *model = layer_sequential("Tied");
    module_add(model, "flatten", layer_flatten());
    Module *encoder = module_add(model, "encoder", layer_linear(device, IMAGE, IMAGE));
    module_add(model, "relu", layer_relu());
    Module *decoder = module_add(model, "decoder", layer_linear(device, IMAGE, IMAGE));
    module_add(model, "head", layer_linear(device, IMAGE, CLASSES));
    module_tie_parameter(decoder, "weight", encoder, "weight");
    module_initialize(model, seed);
    return model;
}

// Two branches that run in the order given by config[0]: equal values, another ready order.
static Tensor *branches_forward(Module *self, Tape *tape, Tensor *x) {
    x = op_flatten(tape, x);
    Tensor *y[2];
    for (size_t i = 0; i < 2; i++) {
        size_t branch = (i + self->config[0]) % 2;
        y[branch] = module_forward(self->children[branch], tape, x);
    }
    return op_add(tape, y[0], y[1]);
}

static inline Module *branches_model(Device *device, uint64_t seed) {
    Module *model = module_create("Branches", branches_forward);
    module_add(model, "left", layer_linear(device, IMAGE, CLASSES));
    module_add(model, "right", layer_linear(device, IMAGE, CLASSES));
    module_initialize(model, seed);
    return model;
}

// name: "mlp", "wide" (more than 1 MiB), "convnet", "shared", "tied" or "branches"; inputs are [1,
// 8, 8].
static inline Module *test_model(const char *name, uint64_t seed, Device *device) {
    if (strcmp(name, "shared") == 0) return shared_model(device, seed);
    if (strcmp(name, "tied") == 0) return tied_model(device, seed);
    if (strcmp(name, "branches") == 0) return branches_model(device, seed);
    bool wide = strcmp(name, "wide") == 0;
    const ModelConfig config = {.name = wide ? "mlp" : name,
                                .hidden = wide ? "512,520,64" : "33,17",
                                .input = {1, 8, 8},
                                .outputs = CLASSES,
                                .seed = seed};
    Module *model = model_create(&config, device, NULL);
    CHECK(model, "there is no model %s", name);
    return model;
}

// Rows per rank differ, so that averaging and global normalisation give different gradients.
static inline size_t test_rows(int rank) {
    return 2 + (size_t)(rank * 3) % 4;
}

static inline size_t test_global_rows(int world) {
    size_t rows = 0;
    for (int r = 0; r < world; r++) rows += test_rows(r);
    return rows;
}

// Runs one rank's forward; returns the sum of losses over `divisor`, or NULL after an error of the
// tape.
static inline Tensor *test_loss(Tape *tape, Module *module, int rank, int step, size_t rows,
                                double divisor) {
    float images[ROWS_MAX * IMAGE];
    int64_t labels[ROWS_MAX];
    uint64_t batch = (uint64_t)(step * 64 + rank) * ROWS_MAX;
    for (size_t i = 0; i < rows * IMAGE; i++)
        images[i] = rng_uniform(7, RNG_STREAM_TEST, batch * IMAGE + i, -1, 1);
    for (size_t i = 0; i < rows; i++)
        labels[i] = (int64_t)(rng_u64(8, RNG_STREAM_TEST, batch + i) % CLASSES);
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){rows, 1, 8, 8}, images);
    Tensor *outputs = module_forward(module, tape, x);
    Tensor *target = tape_input(tape, DTYPE_I64, 1, &rows, labels);
    return op_cross_entropy(tape, outputs, target, divisor);
}

// Runs forward and backward; the caller has called zero_grad.
static inline int test_backward(Tape *tape, Module *module, int rank, int step, size_t rows,
                                double divisor, Error *err) {
    tape_reset(tape);
    Tensor *loss = test_loss(tape, module, rank, step, rows, divisor);
    if (tape_error(tape, err) != 0) return -1;
    return tape_backward(tape, loss, err);
}

#endif
