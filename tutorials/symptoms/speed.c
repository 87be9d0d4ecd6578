/* speed.c: symptoms of too little or too much work per rank. */
#include "tutorials/symptoms/symptoms.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "common/nn/layers.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/distributed_sampler.h"

// ---- slow: too little work per rank -------------------------------------------------------------

enum { WIDTH = 256 };

// Bytes that this rank moves for the gradients of one step of a layer WIDTH x WIDTH.
static double step_bytes(SymptomRank *me) {
    DdpConfig config = ddp_config_default();
    Module *wrapper = must_get(distributed_data_parallel(layer_linear(me->device, WIDTH, WIDTH),
                                                         me->group, &config, &me->err),
                               &me->err);
    Tape *tape = tape_create(me->device, NULL);
    static const float ROW[WIDTH];
    uint64_t before = pg_moved_bytes(me->group);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){1, WIDTH}, ROW);
    Tensor *loss = op_mean(tape, module_forward(wrapper, tape, x));
    must_do(tape_backward(tape, loss, &me->err), &me->err);
    must_do(ddp_finish_backward(wrapper, NULL, &me->err), &me->err);
    double bytes = (double)(pg_moved_bytes(me->group) - before);
    tape_close(tape);
    module_close(wrapper);
    return bytes;
}

// Emulated: a device that multiplies and adds 10^11 times a second, a network of 10^9 bytes a
// second. Forward and backward are 3 products of 2 WIDTH^2 operations a row.
static double slow(SymptomRank *me) {
    double rows = me->broken ? 16 : 4096;
    double one_device = rows * 3 * 2 * WIDTH * WIDTH / 1e11;
    double exchange = step_bytes(me) / 1e9;
    return one_device / (one_device / me->world + exchange);
}

// ---- threads: every rank takes all cores --------------------------------------------------------

// The cores that this process may use.
static int count_cores(void) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0, "no cores");
    return CPU_COUNT(&set);
}

static void *wait_there(void *gate) {
    sem_wait(gate);
    return NULL;
}

static int count_threads(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks && readdir(tasks)) count++;
    if (tasks) closedir(tasks);
    return count - 2; // "." and ".."
}

// Threads that the numerical libraries of all ranks start beside the ranks' own, for each core. The
// mistake: each library starts a thread per core of the machine.
static double threads(SymptomRank *me) {
    int cores = count_cores(), mine = me->broken ? cores : cores / me->world;
    pthread_t *helpers = memory_zalloc((size_t)cores * sizeof *helpers);
    sem_t gate;
    sem_init(&gate, 0, 0);
    symptom_run(me, pg_barrier());
    int before = count_threads();
    symptom_run(me, pg_barrier());
    for (int i = 0; i < mine; i++)
        CHECK(pthread_create(&helpers[i], NULL, wait_there, &gate) == 0, "thread");
    symptom_run(me, pg_barrier());
    int started = count_threads() - before;
    symptom_run(me, pg_barrier());
    for (int i = 0; i < mine; i++) sem_post(&gate);
    for (int i = 0; i < mine; i++) pthread_join(helpers[i], NULL);
    sem_destroy(&gate);
    free(helpers);
    return (double)started / cores;
}

// ---- batch-size, schedule: numbers per rank and numbers over all ranks --------------------------

enum { SAMPLES = 1500, BATCH = 60, EPOCHS = 4 };

static Sampler *sampler_of(SymptomRank *me, size_t global_batch) {
    return must_get(
        distributed_sampler(SAMPLES, global_batch, me->world, me->rank, true, false, 0, &me->err),
        &me->err);
}

// The mistake: DataParallel's batch size, now given to every rank.
static double batch_size(SymptomRank *me) {
    size_t world = (size_t)me->world;
    Sampler *sampler = sampler_of(me, me->broken ? BATCH * world : BATCH);
    double rows = symptom_sum(me, (double)sampler->start[1]);
    sampler_close(sampler);
    return rows;
}

// The mistake: the schedule is as long as one device's training, and each rank has four times the
// batch of before.
static double schedule(SymptomRank *me) {
    Sampler *sampler = sampler_of(me, BATCH * (size_t)me->world);
    size_t steps = EPOCHS * sampler->batch_count;
    size_t planned = me->broken ? EPOCHS * SAMPLES / BATCH : steps;
    Schedule cosine = {.kind = SCHEDULE_COSINE, .lr = 1.0, .total_steps = planned};
    sampler_close(sampler);
    return schedule_lr(&cosine, steps);
}

// ---- accuracy: fewer steps with the same learning rate ------------------------------------------

static int count_correct(Module *model, Tape *tape, const Dataset *set) {
    int correct = 0;
    float sample[64];
    tape->recording = false;
    for (size_t i = 0; i < set->count; i++) {
        dataset_sample(set, i, NULL, 0, sample);
        const float *y = tensor_f32(
            module_forward(model, tape, tape_input(tape, DTYPE_F32, 2, (size_t[]){1, 64}, sample)));
        int best = 0;
        for (int c = 1; c < 10; c++) best = y[c] > y[best] ? c : best;
        correct += best == set->labels[i];
        tape_reset(tape);
    }
    return correct;
}

static void train(SymptomRank *me, Module *wrapper, Tape *tape, Loader *loader) {
    Optimizer *optimizer =
        optimizer_create(wrapper, &(OptimizerConfig){.kind = OPTIMIZER_SGD, .momentum = 0.9});
    for (size_t epoch = 0; epoch < 2; epoch++) {
        loader_start(loader, epoch, 0);
        for (const Batch *batch; (batch = loader_next(loader)); tape_reset(tape)) {
            module_zero_grad(wrapper);
            size_t shape[] = {batch->count, 64};
            Tensor *x = tape_input(tape, DTYPE_F32, 2, shape, batch->samples);
            Tensor *labels = tape_input(tape, DTYPE_I64, 1, &batch->count, batch->labels);
            Tensor *loss = op_cross_entropy(tape, module_forward(wrapper, tape, x), labels,
                                            (double)batch->count);
            must_do(tape_backward(tape, loss, &me->err), &me->err);
            must_do(ddp_finish_backward(wrapper, NULL, &me->err), &me->err);
            optimizer_step(optimizer, 0.01);
        }
    }
    optimizer_close(optimizer);
}

// The mistake: every rank has the whole batch of one device.
static double accuracy(SymptomRank *me) {
    DataSource *data = must_get(dataset_open("digits", 0, &me->err), &me->err);
    Sampler *sampler = sampler_of(me, me->broken ? BATCH * (size_t)me->world : BATCH);
    Loader *loader = loader_create(&data->train, sampler, NULL, 0, me->device);
    Tape *tape = tape_create(me->device, NULL);
    Module *model = layer_linear(me->device, 64, 10);
    module_initialize(model, 0);
    DdpConfig config = ddp_config_default();
    Module *wrapper =
        must_get(distributed_data_parallel(model, me->group, &config, &me->err), &me->err);
    train(me, wrapper, tape, loader);
    double correct = count_correct(model, tape, &data->test);
    tape_close(tape);
    module_close(wrapper);
    loader_close(loader);
    sampler_close(sampler);
    dataset_close(data);
    return correct;
}

const Symptom SYMPTOMS_OF_SPEED[] = {
    {"slow", "speed-up of four ranks over one device (emulated)", 2, 4, 4, slow, 0},
    {"threads", "threads of two ranks' libraries per core of this machine", 0, 1, 2, threads, 0},
    {"batch-size", "rows in a step of four ranks, 60 wanted", BATCH, BATCH, 4, batch_size, 0},
    {"schedule", "share of the learning rate left at the end", 0, 0.001, 4, schedule, 0},
    {"accuracy", "digits recognised after two epochs, of 297", 255, 297, 4, accuracy, 0},
    {0}};
