/* lesson.c: data, batches, reports, the file of weights, and memory. */
#include "tutorials/lesson.h"

#include <string.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/tensor_files/safetensors.h"

enum { LOADER_DEPTH = 2, EVALUATION_BATCH = 256 };

// ---- a run ------------------------------------------------------------------------------------

void lesson_begin(Lesson *lesson, const char *step, int argc, char **argv) {
    Error err = {0};
    const TrainConfig *config = &lesson->config;
    lesson_options(lesson, step);
    if (options_parse(&lesson->options, argc, argv, &err) != 0) error_exit(&err);
    lesson->data = train_open_data(config, &err);
    if (!lesson->data) error_exit(&err);
    if (lesson->data->train.dense) {
        error_set(&err, STATUS_USAGE, "--model %s: the tutorials know no labels of pixels",
                  config->model);
        error_exit(&err);
    }
    lesson->host = device_open("cpu:0", &err);
    if (!lesson->host) error_exit(&err);
    Sampler *whole = sampler_whole(lesson->data->train.count, config->global_batch,
                                   !config->no_shuffle, false, config->seed, &err);
    if (!whole) error_exit(&err);
    lesson_use_sampler(lesson, whole);
}

void lesson_use_sampler(Lesson *lesson, Sampler *sampler) {
    const TrainConfig *config = &lesson->config;
    loader_close(lesson->loader);
    sampler_close(lesson->sampler);
    lesson->sampler = sampler;
    lesson->loader = loader_create(&lesson->data->train, sampler, NULL, LOADER_DEPTH, lesson->host);
    lesson->steps = config->steps ? config->steps : config->epochs * sampler->batch_count;
    lesson->schedule = config->schedule;
    lesson->schedule.total_steps = lesson->steps;
}

const Batch *lesson_next(Lesson *lesson) {
    const size_t batches = lesson->sampler->batch_count;
    if (lesson->step == lesson->steps) return NULL;
    if (lesson->step % batches == 0) loader_start(lesson->loader, lesson->step / batches, 0);
    lesson->step++;
    return loader_next(lesson->loader);
}

double lesson_add_noise(const Lesson *lesson, const Batch *batch, double deviation, uint64_t seed) {
    const size_t count = batch->count * dataset_sample_size(batch->set);
    const uint64_t first = lesson->step * count;
    for (size_t i = 0; i < count; i++)
        batch->samples[i] += (float)deviation * rng_normal(seed, RNG_STREAM_NOISE, first + i);
    return (double)rng_normal(seed, RNG_STREAM_NOISE, first);
}

void lesson_skip(Lesson *lesson, size_t steps) {
    const size_t batches = lesson->sampler->batch_count;
    if (steps == 0) return;
    CHECK(lesson->step == 0 && steps <= lesson->steps, "%zu steps cannot be skipped", steps);
    lesson->step = steps;
    if (steps % batches != 0) loader_start(lesson->loader, steps / batches, steps % batches);
    if (!lesson->quiet) printf("resumes at step=%zu\n", steps);
}

double lesson_lr(const Lesson *lesson) {
    return schedule_lr(&lesson->schedule, lesson->step - 1);
}

bool lesson_is_logged(const Lesson *lesson) {
    return (lesson->step - 1) % lesson->config.log_every == 0 || lesson->step == lesson->steps;
}

void lesson_report(Lesson *lesson, double loss) {
    if (lesson->quiet || !lesson_is_logged(lesson)) return;
    printf("step=%zu loss=%.4f\n", lesson->step - 1, loss);
    fflush(stdout);
}

// Prints the accuracy on the whole test set; nothing for regression.
static void print_accuracy(const Lesson *lesson, Module *model) {
    const Dataset *set = &lesson->data->test;
    if (!set->labels || set->count == 0) return;
    Sampler *sampler = sampler_evaluation(set->count, EVALUATION_BATCH, 1, 0);
    Loader *loader = loader_create(set, sampler, NULL, 0, lesson->host);
    Tape *tape = tape_create(lesson->host, NULL);
    tape->recording = tape->training = false;
    size_t correct = 0;
    loader_start(loader, 0, 0);
    for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
        Rows rows = lesson_rows(tape, batch, 0, batch->count);
        Tensor *outputs = lesson_forward(model, tape, rows.samples);
        for (size_t row = 0; row < batch->count; row++)
            correct += lesson_answer(outputs, row) == (size_t)batch->labels[row];
    }
    printf("test_accuracy=%.4f\n", (double)correct / (double)set->count);
    tape_close(tape);
    loader_close(loader);
    sampler_close(sampler);
}

void lesson_end(Lesson *lesson, Module *model) {
    Error err = {0};
    const TrainConfig *config = &lesson->config;
    if (!lesson->quiet) {
        if (config->save && safetensors_save_module(config->save, model, NULL, 0, &err) != 0)
            error_exit(&err);
        if (!config->no_eval) print_accuracy(lesson, model);
    }
    loader_close(lesson->loader);
    sampler_close(lesson->sampler);
    device_close(lesson->host);
    dataset_close(lesson->data);
}

void lesson_need(bool fine, const char *name, const char *what) {
    Error err = {0};
    if (fine) return;
    error_set(&err, STATUS_FAILED, "%s %s", name, what);
    error_exit(&err);
}

Device *lesson_device(int index) {
    Error err = {0};
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", index);
    Device *device = device_open(name, &err);
    if (!device) error_exit(&err);
    return device;
}

// ---- tensors ----------------------------------------------------------------------------------

int lesson_parts(size_t rows, int parts) {
    size_t longest, begin;
    chunk_bounds(rows, (size_t)parts, 0, &begin, &longest);
    return longest ? (int)((rows + longest - 1) / longest) : 0;
}

Rows lesson_rows(Tape *tape, const Batch *batch, size_t begin, size_t end) {
    const Dataset *set = batch->set;
    size_t count = end - begin;
    Rows rows = {.count = count};
    rows.samples = tape_input(tape, DTYPE_F32, 4,
                              (size_t[]){count, set->shape[0], set->shape[1], set->shape[2]},
                              batch->samples + begin * dataset_sample_size(set));
    rows.target = batch->labels
                      ? tape_input(tape, DTYPE_I64, 1, &count, batch->labels + begin)
                      : tape_input(tape, DTYPE_F32, 2, (size_t[]){count, set->target_size},
                                   batch->targets + begin * set->target_size);
    return rows;
}

Tensor *lesson_loss(Tape *tape, Tensor *outputs, Tensor *target, size_t divisor) {
    if (!outputs) return NULL;
    if (target->dtype == DTYPE_I64) return op_cross_entropy(tape, outputs, target, (double)divisor);
    return op_squared_error(tape, outputs, target, (double)(divisor * target->shape[1]));
}

Tensor *lesson_forward(Module *model, Tape *tape, Tensor *samples) {
    Error err = {0};
    Tensor *outputs = module_forward(model, tape, samples);
    if (tape_error(tape, &err) != 0) error_exit(&err);
    return outputs;
}

double lesson_backward(Tape *tape, Tensor *loss) {
    Error err = {0};
    if (tape_error(tape, &err) != 0) error_exit(&err);
    if (tape_backward(tape, loss, &err) != 0) error_exit(&err);
    return (double)tensor_item(loss);
}

size_t lesson_answer(const Tensor *outputs, size_t row) {
    size_t classes = outputs->shape[1], best = 0;
    const float *output = tensor_f32(outputs) + row * classes;
    for (size_t c = 1; c < classes; c++)
        if (output[c] > output[best]) best = c;
    return best;
}

Module *lesson_model(const Lesson *lesson, Device *device, int rank) {
    Error err = {0};
    Module *model = train_create_model(&lesson->config, lesson->data, device, rank, &err);
    if (!model) error_exit(&err);
    return model;
}

Optimizer *lesson_optimizer(const Lesson *lesson, Module *model) {
    const TrainConfig *config = &lesson->config;
    OptimizerConfig wanted = {.kind = config->optimizer,
                              .momentum = config->momentum,
                              .nesterov = config->nesterov,
                              .weight_decay = config->weight_decay,
                              .beta1 = config->betas[0],
                              .beta2 = config->betas[1],
                              .eps = config->eps};
    return optimizer_create(model, &wanted);
}

// ---- gradients ----------------------------------------------------------------------------------

float **lesson_sums_create(const NamedTensors *tensors) {
    float **sums = memory_zalloc(tensors->count * sizeof *sums);
    for (size_t k = 0; k < tensors->count; k++)
        sums[k] = memory_zalloc(tensor_bytes(tensors->items[k].tensor));
    return sums;
}

void lesson_sums_close(float **sums, const NamedTensors *tensors) {
    for (size_t k = 0; k < tensors->count; k++) free(sums[k]);
    free(sums);
}

void lesson_pack_gradients(Tensor *const *tensors, size_t count, float *buffer) {
    for (size_t i = 0; i < count; buffer += tensor_count(tensors[i++]))
        memcpy(buffer, tensors[i]->grad, tensor_bytes(tensors[i]));
}

void lesson_unpack_gradients(Tensor *const *tensors, size_t count, const float *buffer) {
    for (size_t i = 0; i < count; buffer += tensor_count(tensors[i++]))
        memcpy(tensors[i]->grad, buffer, tensor_bytes(tensors[i]));
}

void lesson_zero_gradients(const NamedTensors *tensors) {
    for (size_t k = 0; k < tensors->count; k++) {
        Tensor *tensor = tensors->items[k].tensor;
        if (!tensor->requires_grad) continue; // a buffer
        memset(tensor->grad, 0, tensor_bytes(tensor));
        tensor->has_grad = true;
    }
}

size_t lesson_count(const NamedTensors *tensors) {
    size_t count = 0;
    for (size_t k = 0; k < tensors->count; k++)
        if (tensors->items[k].tensor->requires_grad)
            count += tensor_count(tensors->items[k].tensor);
    return count;
}

float *lesson_flat_create(const NamedTensors *tensors) {
    return memory_zalloc(lesson_count(tensors) * sizeof(float));
}

void lesson_flatten(const NamedTensors *tensors, Flatten what, float *flat) {
    for (size_t k = 0; k < tensors->count; k++) {
        Tensor *tensor = tensors->items[k].tensor;
        if (!tensor->requires_grad) continue; // a buffer
        if (what == WEIGHTS_OUT)
            memcpy(tensor->data, flat, tensor_bytes(tensor));
        else
            memcpy(flat, what == GRADIENTS_IN ? tensor->grad : tensor->data, tensor_bytes(tensor));
        flat += tensor_count(tensor);
    }
}

void lesson_hook(Tensor *const *tensors, size_t count,
                 int (*ready)(void *context, Tensor *tensor, Error *err), void *context) {
    for (size_t i = 0; i < count; i++) {
        tensors[i]->on_ready = ready;
        tensors[i]->on_ready_context = context;
    }
}

// ---- replicas -----------------------------------------------------------------------------------

void lesson_replica_open(Replica *replica, const Module *model, Device *device) {
    replica->device = device;
    replica->tape = tape_create(device, NULL);
    replica->module = module_replica(model, device);
    replica->tensors = module_tensors(replica->module, MODULE_STATE);
}

void lesson_replica_close(Replica *replica) {
    named_tensors_free(&replica->tensors);
    module_close(replica->module);
    tape_close(replica->tape);
    device_close(replica->device);
}

void lesson_share_weights(Replica *replica, const NamedTensors *weights, bool first) {
    for (size_t k = 0; k < weights->count; k++) {
        Tensor *mine = replica->tensors.items[k].tensor;
        const Tensor *shared = weights->items[k].tensor;
        mine->data = shared->data;
        mine->grad = NULL; // the tape takes memory for it
        mine->has_grad = false;
        if (mine->requires_grad || first) continue;
        mine->data = tape_memory(replica->tape, tensor_bytes(shared)); // a buffer
        memcpy(mine->data, shared->data, tensor_bytes(shared));
    }
}
