/* 03-running-mean.grade.c: by hand first, then against batch norm under the library's DataParallel.
 */
#include "tutorials/06-dp-costs/exercises/03-running-mean.h"

#include <math.h>

#include "common/nn/layers.h"
#include "dp/data_parallel.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_06_03;

enum { MOST_ROWS = 12, MOST_DEVICES = 5 };

static double student(Grade *grade, double running, const double *values, size_t rows,
                      size_t devices) {
    return GRADE_CALL(grade, running_mean_after, running, 0.25, values, rows, devices);
}

static void one_device(Grade *grade) {
    const double values[2] = {3.0, 5.0};
    double got = student(grade, 0.0, values, 2, 1);
    GRADE_EXPECT(grade, got != 2.0, "The mean of the rows is their sum divided by their number.");
    GRADE_EXPECT(grade, got != 3.0,
                 "The new mean counts for momentum, the old one for the rest; yours is the other "
                 "way round.");
    GRADE_EXPECT(grade, got == 1.0, "0.75 * 0 + 0.25 * 4 is 1, not %g.", got);
}

static void old_value(Grade *grade) {
    const double values[2] = {3.0, 5.0};
    double got = student(grade, 8.0, values, 2, 1);
    GRADE_EXPECT(grade, got != 1.0,
                 "The old running mean was forgotten: it keeps 1 - momentum of its value.");
    GRADE_EXPECT(grade, got == 7.0, "0.75 * 8 + 0.25 * 4 is 7, not %g.", got);
    const double tenths[3] = {0.1, 0.2, 0.4};
    got = GRADE_CALL(grade, running_mean_after, 1.1, 0.1, tenths, 3, 1);
    const double wanted = 0.9 * 1.1 + 0.1 * (0.1 + 0.2 + 0.4) / 3;
    GRADE_EXPECT(grade, fabs(got - wanted) < 1e-12 || fabs(got - wanted) > 1e-6,
                 "The mean has the seven digits of a float: add and divide doubles.");
    GRADE_EXPECT(grade, fabs(got - wanted) < 1e-12,
                 "0.1, 0.2 and 0.4 make 1.1 become %.6f, not %.6f.", wanted, got);
}

static void several_devices(Grade *grade) {
    const double values[4] = {4.0, 4.0, 12.0, 12.0};
    double got = student(grade, 0.0, values, 4, 2);
    GRADE_EXPECT(grade, got != 2.0,
                 "All rows were counted, but the other devices' updates are lost.");
    GRADE_EXPECT(grade, got != 3.0,
                 "These are the rows of the last device; the model is on the first.");
    GRADE_EXPECT(grade, got == 1.0, "Device 0 has seen 4 and 4: 0.25 * 4 is 1, not %g.", got);
}

// The running mean of a real batch norm with one channel, momentum 0.1, after one forward.
static double measure(const double *values, size_t rows, size_t devices) {
    Error err = {0};
    Device *opened[MOST_DEVICES];
    for (size_t i = 0; i < devices; i++) {
        char name[32];
        snprintf(name, sizeof name, "cpu:%zu", i);
        opened[i] = device_open(name, &err);
        CHECK(opened[i], "%s", err.message);
    }
    Module *model = layer_batch_norm(opened[0], 1);
    Module *wrapper = data_parallel(model, opened, (int)devices, &err);
    CHECK(wrapper, "no wrapper");
    Tape *tape = tape_create(opened[0], NULL);
    float input[MOST_ROWS];
    for (size_t i = 0; i < rows; i++) input[i] = (float)values[i];
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){rows, 1}, input);
    CHECK(module_forward(wrapper, tape, x), "no outputs");
    NamedTensors buffers = module_tensors(model, MODULE_BUFFERS);
    double mean = (double)tensor_f32(buffers.items[0].tensor)[0];
    named_tensors_free(&buffers);
    tape_close(tape);
    module_close(wrapper);
    for (size_t i = 0; i < devices; i++) device_close(opened[i]);
    return mean;
}

static void the_library(Grade *grade) {
    double values[MOST_ROWS];
    for (size_t i = 0; i < MOST_ROWS; i++) values[i] = 1.0 + (double)(i * i % 11);
    // With two rows or more for every device: batch norm refuses a single one.
    const size_t cases[][2] = {{12, 1}, {12, 2}, {11, 2}, {12, 3}, {11, 3}, {11, 5}, {12, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t rows = cases[i][0], devices = cases[i][1];
        double real = measure(values, rows, devices);
        double got = GRADE_CALL(grade, running_mean_after, 0.0, 0.1, values, rows, devices);
        GRADE_EXPECT(grade, fabs(got - real) < 1e-5,
                     "%zu rows on %zu devices: batch norm remembers %.4f, you say %.4f.", rows,
                     devices, real, got);
    }
}

const Grader grader_06_03 = {"06-dp-costs/03-running-mean",
                             {{"one device", 3, NULL, one_device},
                              {"a running mean that is not 0", 2, "one device", old_value},
                              {"two devices", 3, "one device", several_devices},
                              {"batch norm of the library", 2, "two devices", the_library}}};
