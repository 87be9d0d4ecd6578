/* state.c: symptoms of wrong weights, in files and in memory. */
#include "tutorials/symptoms/symptoms.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nn/layers.h"
#include "common/tensor_files/safetensors.h"
#include "dp/data_parallel.h"

// ---- map-location, device-0: everything lies on the first device --------------------------------

// Four processes read the same checkpoint of a layer of 1 MiB. The mistake: each reads it to the
// device from which it was saved.
static double map_location(SymptomRank *me) {
    if (me->rank > 0) return 0;
    Device *devices[4];
    Module *loaded[4];
    for (int i = 0; i < 4; i++) devices[i] = lesson_device(i);
    for (int i = 0; i < 4; i++) loaded[i] = layer_linear(devices[me->broken ? 0 : i], 512, 512);
    double full = (double)devices[0]->bytes / (double)(devices[0]->bytes + devices[1]->bytes);
    for (int i = 0; i < 4; i++) module_close(loaded[i]);
    for (int i = 0; i < 4; i++) device_close(devices[i]);
    return full;
}

static Tensor *with_loss(Module *self, Tape *tape, Tensor *x) {
    return op_mean(tape, module_forward(self->children[0], tape, x));
}

// DataParallel on two devices, 5,000 outputs a row. The mistake: the loss is computed from
// gathered outputs. The cure: the wrapped module computes it, one number on each device.
static double device_0(SymptomRank *me) {
    enum { ROWS = 8, OUTPUTS = 5000 };
    static const float ROW[ROWS];
    if (me->rank > 0) return 0;
    Device *devices[] = {lesson_device(0), lesson_device(1)};
    Module *model = layer_linear(devices[0], 1, OUTPUTS);
    if (!me->broken) {
        Module *inner = model;
        model = module_create("WithLoss", with_loss);
        module_add(model, "model", inner);
    }
    Module *wrapper = must_get(data_parallel(model, devices, 2, &me->err), &me->err);
    Tape *tape = tape_create(devices[0], NULL);
    uint64_t before = devices[0]->copied_bytes;
    module_forward(wrapper, tape, tape_input(tape, DTYPE_F32, 2, (size_t[]){ROWS, 1}, ROW));
    must_do(tape_error(tape, &me->err), &me->err);
    double bytes = (double)(devices[0]->copied_bytes - before);
    tape_close(tape);
    module_close(wrapper);
    device_close(devices[0]);
    device_close(devices[1]);
    return bytes;
}

// ---- prefix, sharded-names, resume: the file's contents ----------------------------------------

static void scratch_path(char path[64]) {
    snprintf(path, 64, "/tmp/tutorial_symptoms.XXXXXX");
    int file = mkstemp(path);
    CHECK(file >= 0, "no file in /tmp");
    close(file);
}

// Whether a layer can be loaded from a file in which each name begins with this prefix.
static double load_with(SymptomRank *me, const char *before) {
    char path[64];
    scratch_path(path);
    Module *model = layer_linear(me->device, 4, 2);
    NamedTensors tensors = module_tensors(model, MODULE_STATE);
    SafeEntry entries[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        const Tensor *tensor = tensors.items[i].tensor;
        snprintf(entries[i].name, sizeof entries[i].name, "%s%s", before, tensors.items[i].name);
        entries[i].ndim = tensor->ndim;
        memcpy(entries[i].shape, tensor->shape, sizeof entries[i].shape);
        entries[i].data = tensor->data;
        entries[i].bytes = tensor_bytes(tensor);
    }
    Error err = {0};
    must_do(safetensors_write(path, &(SafeTensors){.entries = entries, .count = 2}, &err), &err);
    int loaded = safetensors_load_module(path, model, &me->err) == 0;
    unlink(path);
    named_tensors_free(&tensors);
    module_close(model);
    return loaded;
}

// The mistake: the wrapper's names are saved, "module.weight". (In this library wrappers add no
// prefix; in PyTorch they do.)
static double prefix(SymptomRank *me) {
    return load_with(me, me->broken ? "module." : "");
}

// The mistake: FSDP1's named_parameters were saved, and not its state_dict.
static double sharded_names(SymptomRank *me) {
    return load_with(me, me->broken ? "_fsdp_wrapped_module." : "");
}

static void train(Module *model, Optimizer *optimizer, int steps) {
    Tensor *weight = module_parameter(model, 0);
    for (int step = 0; step < steps; step++) { // the gradient of w^2 / 2
        weight->grad[0] = tensor_f32(weight)[0];
        weight->has_grad = true;
        optimizer_step(optimizer, 0.125);
    }
}

// Four steps, against two, a new process, and two more. The mistake: the weights were saved, and
// the optimizer's momentum was not.
static double resume(SymptomRank *me) {
    Module *model = layer_linear(me->device, 1, 1), *again = layer_linear(me->device, 1, 1);
    const OptimizerConfig config = {.kind = OPTIMIZER_SGD, .momentum = 0.5};
    float *weight = tensor_f32(module_parameter(model, 0));
    float *resumed = tensor_f32(module_parameter(again, 0));
    *weight = 1.0f;
    Optimizer *first = optimizer_create(model, &config), *second = optimizer_create(again, &config);
    train(model, first, 2);
    *resumed = *weight;
    if (!me->broken) {
        *second->state[0][0] = *first->state[0][0];
        second->steps[0] = first->steps[0];
    }
    train(model, first, 2);
    train(again, second, 2);
    double difference = (double)(*weight - *resumed);
    optimizer_close(first);
    optimizer_close(second);
    module_close(model);
    module_close(again);
    return difference;
}

const Symptom SYMPTOMS_OF_STATE[] = {
    {"map-location", "the first device's share of the first two devices' memory", 0.5, 0.5, 1,
     map_location, 0},
    {"device-0", "bytes that device 0 receives in a forward of DataParallel", 0, 100, 1, device_0,
     0},
    {"prefix", "readable checkpoints, of 1", 1, 1, 1, prefix, 0},
    {"sharded-names", "readable checkpoints, of 1", 1, 1, 1, sharded_names, 0},
    {"resume", "difference between four steps' weight and two resumed for two", 0, 0, 1, resume, 0},
    {0}};
