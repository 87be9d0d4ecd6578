/* own_dp_rig.c: judges one property of a DataParallel of a student's own, on a model made for it:
 * the expected result is computed here, chunk by chunk, on the first device alone.
 *
 *     tutorial_capstone_dp CHECK FILE
 *
 * A mistake prints a line "MISS " with a sentence, and ends with status 1.
 */
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/nn/layers.h"
#include "common/nn/tape.h"
#include "common/own/own_file.h"
#include "dp/own/own_dp.h"
#include "tutorials/capstones/rig.h"

enum { WIDTH = 4, MOST = 4, ROWS_MAX = 16 };

// Options of the forwards, on every device: they may meet, fail, and record their thread.
typedef struct Meeting {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    int wanted, here; // wanted 0: no meeting
    int fails;        // the device whose forward fails; -1: none
    pthread_t threads[MOST];
    int entered;
} Meeting;

static Meeting meeting = {
    .mutex = PTHREAD_MUTEX_INITIALIZER, .arrived = PTHREAD_COND_INITIALIZER, .fails = -1};

typedef struct Rig {
    Device *devices[MOST];
    int count;
    const OwnDp *file;
    void *self;
    Module *model, *twin; // the twin is never wrapped
    NamedTensors tensors, twins;
    Tape *tape, *apart;
    bool frozen, tied, unused;
} Rig;

__attribute__((noreturn, format(printf, 1, 2))) static void miss(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[800];
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    printf("MISS %s\n", sentence);
    process_end(STATUS_FAILED);
}

// ---- the model ----------------------------------------------------------------------------------

// Waits for the other replicas, at most two seconds.
static void meet(void) {
    struct timespec deadline = clock_deadline(2);
    pthread_mutex_lock(&meeting.mutex);
    if (meeting.entered < MOST) meeting.threads[meeting.entered++] = pthread_self();
    meeting.here++;
    pthread_cond_broadcast(&meeting.arrived);
    while (meeting.here < meeting.wanted)
        if (pthread_cond_clockwait(&meeting.arrived, &meeting.mutex, CLOCK_MONOTONIC, &deadline))
            break;
    pthread_mutex_unlock(&meeting.mutex);
}

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    float *seen = self->buffers[0].tensor.data;
    if (meeting.wanted) meet();
    if (meeting.fails == tape->device->index) return tape_fail(tape, "judged", "out of luck");
    for (int i = 0; i < WIDTH && tape->training; i++) seen[i] += (float)tape->device->index + 1;
    Tensor *y = module_forward(module_child(self, "a"), tape, x);
    Tensor *left = module_forward(module_child(self, "b"), tape, y);
    Tensor *right = module_forward(module_child(self, "c"), tape, y);
    return module_forward(module_child(self, "d"), tape, op_add(tape, left, right));
}

static Module *build(const Rig *rig) {
    static const char *const names[] = {"a", "b", "c", "d"};
    Module *model = module_create("Judged", forward);
    module_add_buffer(model, rig->devices[0], "seen", DTYPE_F32, 1, (size_t[]){WIDTH});
    for (int i = 0; i < 4; i++)
        module_add(model, names[i], layer_linear_relu(rig->devices[0], WIDTH, WIDTH));
    if (rig->unused) module_add(model, "never_used", layer_linear(rig->devices[0], 7, 3));
    if (rig->tied)
        module_tie_parameter(module_child(model, "c"), "weight", module_child(model, "b"),
                             "weight");
    if (rig->frozen) module_parameter(module_child(model, "a"), 0)->requires_grad = false;
    if (rig->frozen) module_parameter(module_child(model, "d"), 1)->requires_grad = false;
    return model;
}

static void fill(const NamedTensors *tensors) {
    for (size_t t = 0; t < tensors->count; t++) {
        float *values = tensors->items[t].tensor->data;
        for (size_t i = 0; i < tensor_count(tensors->items[t].tensor); i++)
            values[i] = 0.1f + 0.011f * (float)((t * 31 + i * 7) % 41);
    }
}

static void rig_open(Rig *rig, int count) {
    Error err = {0};
    rig->count = count;
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "cpu:%d", i);
        rig->devices[i] = must_get(device_open(name, &err), &err);
    }
    rig->model = build(rig);
    rig->twin = build(rig);
    rig->tensors = module_tensors(rig->model, MODULE_STATE);
    rig->twins = module_tensors(rig->twin, MODULE_STATE);
    fill(&rig->tensors);
    fill(&rig->twins);
    rig->tape = tape_create(rig->devices[0], NULL);
    rig->apart = tape_create(rig->devices[0], NULL);
    rig->self = rig->file->open(rig->model, rig->devices, count, &err);
    if (!rig->self) miss("open failed: %s", err.message[0] ? err.message : "and did not say why");
}

static void rig_close(Rig *rig) {
    rig->file->close(rig->self);
    named_tensors_free(&rig->tensors);
    named_tensors_free(&rig->twins);
    tape_close(rig->tape);
    tape_close(rig->apart);
    module_close(rig->model);
    module_close(rig->twin);
    for (int i = 0; i < rig->count; i++) {
        if (i > 0 && rig->devices[i]->bytes > 0)
            miss("After close, device %d still has %zu bytes: module_close frees a replica.", i,
                 rig->devices[i]->bytes);
        device_close(rig->devices[i]);
    }
}

// ---- a forward and a backward -------------------------------------------------------------------

static void make_batch(int step, size_t rows, float *x, float *dy) {
    for (size_t i = 0; i < rows * WIDTH; i++) {
        x[i] = 0.05f * (float)((i * 13 + (size_t)step * 5) % 17);
        dy[i] = 0.3f * (float)((i * 5 + (size_t)step) % 7) - 0.8f;
    }
}

// Forward of rows [begin, end), and with dy backward, on the twin.
static void run_twin(Rig *rig, const float *x, const float *dy, size_t begin, size_t end,
                     float *out) {
    Error err = {0};
    Tape *tape = rig->apart;
    tape_reset(tape);
    tape->recording = dy != NULL;
    tape->training = false; // the buffer stays unchanged
    const size_t shape[] = {end - begin, WIDTH};
    Tensor *input = tape_input(tape, DTYPE_F32, 2, shape, x + begin * WIDTH);
    Tensor *y = must_get(module_forward(rig->twin, tape, input), &tape->error);
    memcpy(out + begin * WIDTH, y->data, tensor_bytes(y));
    if (!dy) return;
    memcpy(tape_make_grad(tape, y), dy + begin * WIDTH, tensor_bytes(y));
    must_do(tape_backward(tape, y, &err), &err);
}

static void check_output(const Rig *rig, const Tensor *y, const float *wanted, size_t rows) {
    if (!y)
        miss("forward of %zu rows on %d devices failed: %s", rows, rig->count,
             rig->tape->error.message[0] ? rig->tape->error.message : "and did not say why");
    if (y->device != rig->devices[0]) miss("forward's output is on %s.", y->device->name);
    if (y->ndim != 2 || y->shape[0] != rows || y->shape[1] != WIDTH)
        miss("Of %zu rows on %d devices, the output's shape is %s: gather joins all chunks.", rows,
             rig->count, tensor_describe(y).text);
    for (size_t i = 0; i < rows * WIDTH; i++)
        if (((const float *)y->data)[i] != wanted[i])
            miss("Of %zu rows on %d devices, row %zu of the output is %g, expected %g: chunks of "
                 "%zu "
                 "rows go to the devices in their order, and come back in it.",
                 rows, rig->count, i / WIDTH, (double)((const float *)y->data)[i],
                 (double)wanted[i], (rows + (size_t)rig->count - 1) / (size_t)rig->count);
}

// The parts of a gradient by device, and their sum in the devices' order.
typedef struct Parts {
    float value[MOST], sum;
    int count;
} Parts;

static const char *cause_of(const Parts *parts, float found, char text[96]) {
    float reversed = 0;
    for (int d = parts->count; d-- > 0;) reversed += parts->value[d];
    if (found == 0) return "nothing has arrived there";
    for (int d = 0; d < parts->count; d++) {
        snprintf(text, 96, "device %d's alone", d);
        if (found == parts->value[d]) return text;
        snprintf(text, 96, "without device %d's", d);
        if (found == parts->sum - parts->value[d]) return text;
    }
    if (found == parts->sum / (float)parts->count) return "the mean, where the sum is wanted";
    if (found == 2 * parts->sum) return "twice the sum";
    if (found == reversed) return "added from the last device to the first";
    return "no sum of the devices' gradients; is it added in their order?";
}

static void check_gradient(const Rig *rig, size_t t, float *const *parts, int used, bool has) {
    const Tensor *tensor = rig->tensors.items[t].tensor;
    const char *name = rig->tensors.items[t].name;
    if (tensor->has_grad != has)
        miss("%s has %s gradient after backward on %d devices, and should have %s.", name,
             tensor->has_grad ? "a" : "no", rig->count, has ? "one" : "none");
    for (size_t i = 0; has && i < tensor_count(tensor); i++) {
        Parts p = {.count = used};
        char text[96];
        for (int d = 0; d < used; d++) p.value[d] = parts[d][i];
        p.sum = p.value[0];
        for (int d = 1; d < used; d++) p.sum += p.value[d];
        if (tensor->grad[i] == p.sum) continue;
        miss("The gradient of %s [%zu] is %.8g on %d devices, expected %.8g: %s.", name, i,
             (double)tensor->grad[i], rig->count, (double)p.sum,
             cause_of(&p, tensor->grad[i], text));
    }
}

// Runs the wrapper, and the twin chunk by chunk, and compares output and gradients.
static void rig_step(Rig *rig, int step, size_t rows) {
    float x[ROWS_MAX * WIDTH], dy[ROWS_MAX * WIDTH], wanted[ROWS_MAX * WIDTH];
    const size_t chunk = (rows + (size_t)rig->count - 1) / (size_t)rig->count;
    const int used = (int)((rows + chunk - 1) / chunk);
    float *parts[64][MOST] = {{0}};
    bool has[64] = {false};
    Error err = {0};
    make_batch(step, rows, x, dy);
    for (int d = 0; d < used; d++) {
        size_t begin = (size_t)d * chunk, end = begin + chunk < rows ? begin + chunk : rows;
        module_zero_grad(rig->twin);
        run_twin(rig, x, dy, begin, end, wanted);
        for (size_t t = 0; t < rig->twins.count; t++) {
            const Tensor *twin = rig->twins.items[t].tensor;
            parts[t][d] = memory_zalloc(tensor_bytes(twin) + 1);
            has[t] = twin->requires_grad && twin->has_grad;
            if (has[t]) memcpy(parts[t][d], twin->grad, tensor_bytes(twin));
        }
    }
    tape_reset(rig->tape);
    module_zero_grad(rig->model);
    rig->tape->recording = rig->tape->training = true;
    const size_t shape[] = {rows, WIDTH};
    Tensor *input = tape_input(rig->tape, DTYPE_F32, 2, shape, x);
    Tensor *y = rig->file->forward(rig->self, rig->tape, input);
    check_output(rig, y, wanted, rows);
    if (!y->requires_grad)
        miss("The output requires no gradient: tape_record puts a node on the main tape, whose "
             "inputs are the model's parameters.");
    memcpy(tape_make_grad(rig->tape, y), dy, tensor_bytes(y));
    if (tape_backward(rig->tape, y, &err) != 0) miss("backward failed: %s", err.message);
    for (size_t t = 0; t < rig->tensors.count; t++) {
        check_gradient(rig, t, parts[t], used, has[t]);
        for (int d = 0; d < used; d++) free(parts[t][d]);
    }
}

// ---- the checks ---------------------------------------------------------------------------------

static void check_even(Rig *rig) {
    rig_open(rig, 2);
    for (int step = 0; step < 3; step++) rig_step(rig, step, 8);
    rig_close(rig);
}

static void check_uneven(Rig *rig) {
    const struct {
        int devices;
        size_t rows;
    } cases[] = {{3, 9}, {3, 8}, {4, 13}, {3, 7}, {1, 5}, {4, 5}, {3, 2}, {4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_open(rig, cases[i].devices);
        rig_step(rig, 0, cases[i].rows);
        rig_step(rig, 1, cases[i].rows);
        rig_close(rig);
    }
    rig_open(rig, 3); // the last batch of an epoch is smaller
    rig_step(rig, 0, 12);
    rig_step(rig, 1, 2);
    rig_step(rig, 2, 12);
    rig_close(rig);
}

static void check_frozen(Rig *rig) {
    rig->frozen = true;
    check_even(rig);
}

static void check_tied(Rig *rig) {
    rig->tied = true;
    check_even(rig);
}

static void check_unused(Rig *rig) {
    rig->unused = true;
    check_even(rig);
}

// New weights reach every device in the next forward.
static void check_update(Rig *rig) {
    rig_open(rig, 3);
    for (int step = 0; step < 3; step++) {
        rig_step(rig, step, 9);
        for (size_t t = 0; t < rig->tensors.count; t++)
            for (size_t i = 0; i < tensor_count(rig->tensors.items[t].tensor); i++) {
                ((float *)rig->tensors.items[t].tensor->data)[i] *= 0.75f;
                ((float *)rig->twins.items[t].tensor->data)[i] *= 0.75f;
            }
    }
    rig_close(rig);
}

// Without zero_grad the second backward adds to the first's gradients.
static void check_accumulation(Rig *rig) {
    float x[8 * WIDTH], dy[8 * WIDTH];
    float *first[64];
    Error err = {0};
    rig_open(rig, 2);
    rig_step(rig, 0, 8);
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        first[t] = memory_zalloc(tensor_bytes(tensor));
        if (tensor->has_grad) memcpy(first[t], tensor->grad, tensor_bytes(tensor));
    }
    make_batch(0, 8, x, dy);
    tape_reset(rig->tape);
    rig->tape->recording = rig->tape->training = true;
    Tensor *input = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){8, WIDTH}, x);
    Tensor *y = must_get(rig->file->forward(rig->self, rig->tape, input), &rig->tape->error);
    memcpy(tape_make_grad(rig->tape, y), dy, tensor_bytes(y));
    must_do(tape_backward(rig->tape, y, &err), &err);
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        for (size_t i = 0; tensor->has_grad && i < tensor_count(tensor); i++)
            if (tensor->grad[i] != 2 * first[t][i])
                miss("After a second, equal backward without zero_grad, the gradient of %s is %g, "
                     "expected twice %g: where tape_grad says `accumulate`, add to what is there.",
                     rig->tensors.items[t].name, (double)tensor->grad[i], (double)first[t][i]);
        free(first[t]);
    }
    rig_close(rig);
}

static void check_buffers(Rig *rig) {
    rig_open(rig, 3);
    const float *seen = rig->model->buffers[0].tensor.data;
    const float begin = seen[0];
    for (int step = 1; step <= 3; step++) {
        rig_step(rig, step, 9);
        if (seen[0] != begin + (float)step)
            miss("After %d forwards the buffer `seen` is %g, expected %g: device 0's forward "
                 "changes "
                 "the model's own buffers, and what the other devices' change is lost.",
                 step, (double)seen[0], (double)(begin + (float)step));
    }
    rig_close(rig);
}

static void check_evaluation(Rig *rig) {
    float x[9 * WIDTH], dy[9 * WIDTH], wanted[9 * WIDTH];
    rig_open(rig, 3);
    rig_step(rig, 0, 9);
    make_batch(1, 9, x, dy);
    for (size_t begin = 0; begin < 9; begin += 3) run_twin(rig, x, NULL, begin, begin + 3, wanted);
    tape_reset(rig->tape);
    rig->tape->recording = rig->tape->training = false;
    Tensor *input = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){9, WIDTH}, x);
    Tensor *y = rig->file->forward(rig->self, rig->tape, input);
    check_output(rig, y, wanted, 9);
    if (rig->tape->count > 0 || y->requires_grad)
        miss("In an evaluation the tape does not record, and forward has recorded %zu nodes.",
             rig->tape->count);
    rig_step(rig, 2, 9);
    rig_close(rig);
}

static double copied(const Rig *rig) {
    double bytes = 0;
    for (int d = 0; d < rig->count; d++) bytes += (double)rig->devices[d]->copied_bytes;
    return bytes;
}

// Prints the bytes that a step of 9 rows copies between devices, divided by the minimum: state to
// each other device and gradients back; rows of the input, the output, and its gradient.
static void tell_traffic(Rig *rig) {
    const double rows = 9 * WIDTH * sizeof(float), others = rig->count - 1;
    double state = 0, gradients = 0;
    for (size_t t = 0; t < rig->tensors.count; t++) {
        const Tensor *tensor = rig->tensors.items[t].tensor;
        state += (double)tensor_bytes(tensor);
        if (tensor->requires_grad) gradients += (double)tensor_bytes(tensor);
    }
    double before = copied(rig);
    rig_step(rig, 1, 9);
    const double least = (state + gradients) * others + 3 * rows * others / rig->count;
    printf("SPEED %.2f\n", (copied(rig) - before) / least);
}

static void check_parallel(Rig *rig) {
    float x[9 * WIDTH], dy[9 * WIDTH];
    rig_open(rig, 3);
    make_batch(0, 9, x, dy);
    rig->tape->recording = rig->tape->training = true;
    Tensor *input = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){9, WIDTH}, x);
    meeting.wanted = 3;
    uint64_t begin_ns = clock_ns();
    must_get(rig->file->forward(rig->self, rig->tape, input), &rig->tape->error);
    if (meeting.here != 3) miss("%d replicas ran for 3 devices with rows.", meeting.here);
    if (clock_ns() - begin_ns > 1800000000u)
        miss("The replicas run one after the other: each waited two seconds for the others. Submit "
             "to all devices first, then wait for each.");
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < i; j++)
            if (pthread_equal(meeting.threads[i], meeting.threads[j]))
                miss(
                    "Two replicas ran on one thread: device_submit runs each on its device's own.");
    meeting.wanted = 0;
    tell_traffic(rig);
    rig_close(rig);
}

static void check_errors(Rig *rig) {
    float x[9 * WIDTH], dy[9 * WIDTH];
    for (int device = 0; device < 3; device++) {
        rig_open(rig, 3);
        make_batch(0, 9, x, dy);
        rig->tape->recording = rig->tape->training = true;
        Tensor *input = tape_input(rig->tape, DTYPE_F32, 2, (size_t[]){9, WIDTH}, x);
        meeting.fails = device;
        Tensor *y = rig->file->forward(rig->self, rig->tape, input);
        meeting.fails = -1;
        if (y) miss("The replica on device %d failed, and forward returned an output.", device);
        if (!strstr(rig->tape->error.message, "out of luck"))
            miss("The replica on device %d failed with \"judged: out of luck\", and the main tape "
                 "says \"%s\": copy a fork's error to it.",
                 device, rig->tape->error.message);
        rig_step(rig, 1, 9);
        rig_close(rig);
    }
}

// After the first step, no step may allocate memory.
static void check_memory(Rig *rig) {
    size_t bytes[MOST] = {0};
    rig_open(rig, 3);
    for (int step = 0; step < 6; step++) {
        rig_step(rig, step, 12);
        for (int d = 0; d < 3; d++) {
            if (step > 2 && rig->devices[d]->bytes > bytes[d])
                miss("In step %d, device %d has %zu bytes more than in the step before: memory of "
                     "one forward comes from tape_memory and tape_alloc.",
                     step, d, rig->devices[d]->bytes - bytes[d]);
            bytes[d] = rig->devices[d]->bytes;
        }
    }
    rig_close(rig);
}

static const struct {
    const char *name;
    void (*run)(Rig *rig);
} CHECKS[] = {
    {"even", check_even},
    {"uneven", check_uneven},
    {"frozen", check_frozen},
    {"tied", check_tied},
    {"unused", check_unused},
    {"update", check_update},
    {"accumulation", check_accumulation},
    {"buffers", check_buffers},
    {"evaluation", check_evaluation},
    {"parallel", check_parallel},
    {"errors", check_errors},
    {"memory", check_memory},
};

int main(int argc, char **argv) {
    Error err = {0};
    char *word = rig_take_word();
    if (argc != 3) {
        fprintf(stderr, "usage: tutorial_capstone_dp CHECK FILE\n");
        return STATUS_USAGE;
    }
    Rig rig = {.file = own_file_load(argv[2], "own_dp", OWN_DP_VERSION, sizeof(OwnDp), &err)};
    if (!rig.file) miss("%s", err.message);
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (strcmp(CHECKS[i].name, argv[1]) != 0) continue;
        CHECKS[i].run(&rig);
        rig_end(word, 0);
        return STATUS_OK;
    }
    fprintf(stderr, "there is no check %s\n", argv[1]);
    return STATUS_USAGE;
}
