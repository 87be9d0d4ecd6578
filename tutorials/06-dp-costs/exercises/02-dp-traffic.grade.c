/* 02-dp-traffic.grade.c: the prediction against one step of the library's DataParallel, whose
 * devices count the bytes that they receive.
 */
#include "tutorials/06-dp-costs/exercises/02-dp-traffic.h"

#include "common/data/sampler.h"
#include "common/nn/models.h"
#include "common/nn/ops.h"
#include "dp/data_parallel.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_06_02;

enum { INPUT = 12, OUTPUT = 5, MOST = 8 };

// One step of a small network; fills the job, too.
static DpTraffic measure(size_t rows, size_t devices, DpJob *job) {
    Error err = {0};
    Device *opened[MOST];
    DpTraffic measured = {0};
    for (size_t i = 0; i < devices; i++) {
        char name[32];
        snprintf(name, sizeof name, "cpu:%zu", i);
        opened[i] = device_open(name, &err);
    }
    ModelConfig config = {.name = "mlp", .hidden = "7", .input = {1, 1, INPUT}, .outputs = OUTPUT};
    Module *model = model_create(&config, opened[0], &err);
    CHECK(model, "no model");
    Module *wrapper = data_parallel(model, opened, (int)devices, &err);
    Tape *tape = tape_create(opened[0], NULL);
    float input[64 * INPUT] = {0};
    int64_t labels[64] = {0};
    Tensor *x = tape_input(tape, DTYPE_F32, 4, (size_t[]){rows, 1, 1, INPUT}, input);
    Tensor *target = tape_input(tape, DTYPE_I64, 1, &rows, labels);
    Tensor *outputs = module_forward(wrapper, tape, x);
    int failed = tape_backward(tape, op_cross_entropy(tape, outputs, target, (double)rows), &err);
    CHECK(!failed, "no gradients");
    for (size_t i = 0; i < devices; i++)
        *(i == 0 ? &measured.to_first : &measured.to_others) += opened[i]->copied_bytes;
    *job = (DpJob){.weights = INPUT * 7 + 7 + 7 * OUTPUT + OUTPUT,
                   .input_row = INPUT,
                   .output_row = OUTPUT,
                   .rows = rows,
                   .devices = devices};
    return measured;
}

static void one_device(Grade *grade) {
    DpJob job;
    DpTraffic real = measure(8, 1, &job), got = GRADE_CALL(grade, dp_traffic, &job);
    GRADE_EXPECT(grade, real.to_first == 0 && got.to_first == 0 && got.to_others == 0,
                 "The first device was counted as a receiver, though it already holds its rows and "
                 "weights.");
}

static void two_devices(Grade *grade) {
    DpJob job;
    DpTraffic real = measure(8, 2, &job), got = GRADE_CALL(grade, dp_traffic, &job);
    GRADE_EXPECT(grade, 4 * got.to_others != real.to_others,
                 "These are numbers and not bytes: a float has four.");
    GRADE_EXPECT(grade, got.to_others != real.to_others - 4 * 4 * OUTPUT,
                 "The gradient of the outputs is missing: backward sends each device that of its "
                 "rows.");
    GRADE_EXPECT(grade, got.to_others == real.to_others,
                 "Device 1 of 2 received %zu bytes, and your prediction is %zu.", real.to_others,
                 got.to_others);
    GRADE_EXPECT(grade, got.to_first != real.to_first - 4 * 4 * OUTPUT,
                 "The first device also receives the outputs, which are gathered there.");
    GRADE_EXPECT(grade, got.to_first == real.to_first,
                 "Device 0 of 2 received %zu bytes, and your prediction is %zu.", real.to_first,
                 got.to_first);
}

// A language model, by hand: chunks of 3, 3 and 2 rows.
static void large_model(Grade *grade) {
    const DpJob job = {1500000000, 1000, 2000, 8, 3}, none = {1500000000, 1000, 2000, 0, 3};
    const size_t first = 4 * (2 * job.weights + 5 * 2000ul), others = first + 4 * 5 * 1000ul;
    DpTraffic got = GRADE_CALL(grade, dp_traffic, &job);
    GRADE_EXPECT(grade, got.to_first == first && got.to_others == others,
                 "A small model is right, and one of 1500 million weights is not: an int ends at "
                 "2^31. (%zu and %zu bytes; you predict %zu and %zu)",
                 first, others, got.to_first, got.to_others);
    got = GRADE_CALL(grade, dp_traffic, &none);
    GRADE_EXPECT(grade, got.to_first == 0 && got.to_others == 0,
                 "Without rows no device receives anything; you predict %zu and %zu bytes.",
                 got.to_first, got.to_others);
}

static void several_devices(Grade *grade) {
    for (size_t devices = 3; devices <= 5; devices += 2) {
        DpJob job;
        DpTraffic real = measure(17, devices, &job), got = GRADE_CALL(grade, dp_traffic, &job);
        GRADE_EXPECT(grade, got.to_first != real.to_first - 4 * job.weights * (devices - 2),
                     "The gradients come from every other device, and not once in all.");
        GRADE_EXPECT(grade, got.to_first == real.to_first && got.to_others == real.to_others,
                     "%zu devices: device 0 received %zu bytes and the others %zu; you predict %zu "
                     "and %zu.",
                     devices, real.to_first, real.to_others, got.to_first, got.to_others);
    }
}

static void idle_devices(Grade *grade) {
    DpJob job;
    DpTraffic real = measure(9, 8, &job), got = GRADE_CALL(grade, dp_traffic, &job);
    GRADE_EXPECT(grade, got.to_others <= real.to_others,
                 "Devices without rows were counted: nothing is replicated to them. (9 rows on 8 "
                 "devices: 5 are busy)");
    GRADE_EXPECT(grade, got.to_first == real.to_first && got.to_others == real.to_others,
                 "9 rows on 8 devices: device 0 received %zu bytes and the others %zu; you predict "
                 "%zu and %zu.",
                 real.to_first, real.to_others, got.to_first, got.to_others);
    large_model(grade);
}

const Grader grader_06_02 = {"06-dp-costs/02-dp-traffic",
                             {{"one device", 1, NULL, one_device},
                              {"two devices", 4, "one device", two_devices},
                              {"three and five devices", 3, "two devices", several_devices},
                              {"devices without rows", 2, "three and five devices", idle_devices}}};
