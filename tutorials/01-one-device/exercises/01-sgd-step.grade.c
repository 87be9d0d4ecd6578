/* 01-sgd-step.grade.c: small numbers that can be checked by hand, then many against the formulas.
 *
 * All numbers of the small cases are sums of powers of two, so every right way to compute them
 * gives the same bits.
 */
#include "tutorials/01-one-device/exercises/01-sgd-step.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_01_01;

typedef struct Step {
    float *weights, *buffers, *gradients;
    size_t count, room; // the argument, and the number allocated
} Step;

static void run_step(Grade *grade, Step step, const SgdSettings *sgd, bool first) {
    GRADE_RUN(grade, sgd_step, step.weights, step.buffers, step.gradients, step.count, sgd, first);
    grade_out(grade, step.weights, step.room * sizeof(float));
    grade_out(grade, step.buffers, step.room * sizeof(float));
    grade_out(grade, step.gradients, step.room * sizeof(float));
}

// Runs a step of two equal weights; returns the first. *buffer: its momentum, updated.
static float step_once(Grade *grade, float weight, float gradient, float *buffer, SgdSettings sgd,
                       bool first) {
    float gradients[3] = {gradient, gradient, 77}, *weights = grade_fenced(grade, sizeof gradients);
    weights[0] = weights[1] = weight, weights[2] = 77;
    float buffers[3] = {*buffer, *buffer, 77}; // the last of each must not change
    run_step(grade, (Step){weights, buffers, gradients, 2, 3}, &sgd, first);
    GRADE_EXPECT(grade, weights[2] == 77 && buffers[2] == 77,
                 "Something was written behind the last weight: the loop must end at count - 1.");
    GRADE_EXPECT(grade, gradients[0] == gradient,
                 "The gradients were changed; only the weights and the buffer are yours to write.");
    *buffer = buffers[0];
    return weights[0];
}

static void plain(Grade *grade) {
    float buffer = 0.0f;
    float weight = step_once(grade, 2.0f, 2.0f, &buffer, (SgdSettings){.lr = 0.25f}, true);
    GRADE_EXPECT(grade, weight != 2.0f, "The weight did not change at all: 2 - 0.25 * 2 is 1.5.");
    GRADE_EXPECT(grade, weight < 2.0f,
                 "The weights went uphill: a step goes against the gradient, w = w - lr * m.");
    GRADE_EXPECT(grade, weight == 1.5f, "2 - 0.25 * 2 is 1.5, but the weight became %g.",
                 (double)weight);
}

// No weights, and the number of a small model's weights.
static void many_weights(Grade *grade) {
    enum { MANY = 100003 };
    static float weights[MANY], buffers[MANY], gradients[MANY];
    const SgdSettings sgd = {.lr = 0.5f};
    for (int i = 0; i < MANY; i++) gradients[i] = (float)(i + 1);
    run_step(grade, (Step){weights, buffers, gradients, 0, MANY}, &sgd, true);
    GRADE_EXPECT(grade, weights[0] == 0.0f && buffers[0] == 0.0f,
                 "The count was 0, and a weight or a buffer was written nevertheless.");
    run_step(grade, (Step){weights, buffers, gradients, MANY, MANY}, &sgd, true);
    for (int i = 0; i < MANY; i++)
        GRADE_EXPECT(grade, weights[i] == -0.5f * (float)(i + 1),
                     "Of %d weights, number %d is %g, and should be %g.", MANY, i,
                     (double)weights[i], -0.5 * (i + 1));
}

static void every_weight(Grade *grade) {
    enum { COUNT = 7 };
    float weights[COUNT + 1], buffers[COUNT + 1], gradients[COUNT + 1];
    for (int i = 0; i <= COUNT; i++) weights[i] = buffers[i] = 0.0f;
    for (int i = 0; i <= COUNT; i++) gradients[i] = (float)(i + 1);
    run_step(grade, (Step){weights, buffers, gradients, COUNT, COUNT + 1},
             &(SgdSettings){.lr = 0.5f}, true);
    GRADE_EXPECT(grade, weights[COUNT - 1] != 0.0f,
                 "The last weight was left as it was: the loop must reach count - 1.");
    GRADE_EXPECT(grade, weights[COUNT] == 0.0f && buffers[COUNT] == 0.0f,
                 "Something was written behind the last weight: the loop must end at count - 1.");
    for (int i = 0; i < COUNT; i++)
        GRADE_EXPECT(grade, weights[i] == -0.5f * (float)(i + 1) && gradients[i] == (float)(i + 1),
                     "Weight %d became %g with gradient %d, rate 0.5, from 0: it should be %g.", i,
                     (double)weights[i], i + 1, -0.5 * (i + 1));
    many_weights(grade);
}

static void first_momentum(Grade *grade) {
    float buffer = NAN;
    SgdSettings sgd = {.lr = 0.25f, .momentum = 0.5f};
    float weight = step_once(grade, 2.0f, 2.0f, &buffer, sgd, true);
    GRADE_EXPECT(grade, !isnan(weight) && !isnan(buffer),
                 "In the first step the buffer's contents mean nothing, yet they reached the "
                 "weights.");
    GRADE_EXPECT(grade, weight == 1.5f, "In the first step m = g: 2 - 0.25 * 2 is 1.5, not %g.",
                 (double)weight);
    GRADE_EXPECT(grade, buffer != 0.5f,
                 "The learning rate must not be in the momentum buffer: then a changed rate would "
                 "act late.");
    GRADE_EXPECT(grade, buffer == 2.0f, "After the first step the buffer holds g = 2, not %g.",
                 (double)buffer);
}

static void later_momentum(Grade *grade) {
    float buffer = 8.0f;
    SgdSettings sgd = {.lr = 0.25f, .momentum = 0.5f};
    float weight = step_once(grade, 2.0f, 2.0f, &buffer, sgd, false);
    GRADE_EXPECT(grade, buffer != 8.0f,
                 "The buffer was left as it was: each step makes a new m of it, momentum * m + g.");
    GRADE_EXPECT(grade, buffer != 5.0f,
                 "The gradient enters the momentum whole: m = momentum * m + g, not "
                 "(1 - momentum) * g.");
    GRADE_EXPECT(grade, buffer == 6.0f && weight == 0.5f,
                 "With m = 8 and g = 2, the new m is 0.5 * 8 + 2 = 6 and the weight 2 - 0.25 * 6 = "
                 "0.5; yours are %g and %g.",
                 (double)buffer, (double)weight);
}

static void decay(Grade *grade) {
    float buffer = 0.0f;
    SgdSettings sgd = {.lr = 0.25f, .weight_decay = 0.5f};
    float weight = step_once(grade, 2.0f, 2.0f, &buffer, sgd, true);
    GRADE_EXPECT(grade, weight != 1.5f, "Weight decay had no effect on the weight.");
    GRADE_EXPECT(grade, buffer != 2.0f,
                 "Weight decay belongs into the gradient, before the momentum: g = g + "
                 "weight_decay * w.");
    GRADE_EXPECT(grade, buffer == 3.0f && weight == 1.25f,
                 "g = 2 + 0.5 * 2 = 3, so m = 3 and w = 2 - 0.25 * 3 = 1.25; yours are %g and %g.",
                 (double)buffer, (double)weight);
}

// Three weights with different gradients and buffers.
static void each_its_own(Grade *grade) {
    enum { COUNT = 3 };
    const SgdSettings sgd = {.lr = 0.25f, .momentum = 0.5f, .weight_decay = 0.5f};
    float gradients[COUNT] = {2.0f, 4.0f, 8.0f};
    float weights[COUNT] = {16.0f, 32.0f, 64.0f}, buffers[COUNT] = {NAN, NAN, NAN};
    run_step(grade, (Step){weights, buffers, gradients, COUNT, COUNT}, &sgd, true);
    for (int i = 0; i < COUNT; i++) { // g = 10, 20, 40
        GRADE_EXPECT(grade, !isnan(buffers[i]),
                     "In the first step the old contents of buffer %d were used, or it was not "
                     "written: first_step holds for every weight.",
                     i);
        GRADE_EXPECT(grade, buffers[i] == (float)(10 << i),
                     "Weight %d depends on another weight: each has its own weight decay and its "
                     "own buffer. (m is %g, and should be %d)",
                     i, (double)buffers[i], 10 << i);
    }
    run_step(grade, (Step){weights, buffers, gradients, COUNT, COUNT}, &sgd, false);
    for (int i = 0; i < COUNT; i++) { // w = 13.5, 27, 54 before, g = 8.75, 17.5, 35
        const float wanted = 13.75f * (float)(1 << i);
        GRADE_EXPECT(grade, buffers[i] == wanted,
                     "In the second step weight %d has the buffer %g, and its own formula gives "
                     "%g.",
                     i, (double)buffers[i], (double)wanted);
    }
}

static void ten_steps(Grade *grade) {
    SgdSettings sgd = {.lr = 0.08f, .momentum = 0.9f, .weight_decay = 0.01f};
    float weight = 0.7f, buffer = NAN, w = 0.7f, m = 0.0f;
    for (int step = 0; step < 10; step++) {
        float gradient = sinf((float)step) + w;
        weight = step_once(grade, weight, gradient, &buffer, sgd, step == 0);
        float g = gradient + sgd.weight_decay * w;
        m = (step == 0 ? 0.0f : sgd.momentum * m) + g;
        w -= sgd.lr * m;
        GRADE_EXPECT(grade, fabsf(weight - w) <= 1e-6f,
                     "After step %d of a longer run the weight is %.7g, but the formulas give "
                     "%.7g.",
                     step, (double)weight, (double)w);
    }
}

const Grader grader_01_01 = {
    "01-one-device/01-sgd-step",
    {{"a step without momentum and decay", 2, NULL, plain},
     {"every weight, and nothing behind the last", 1, "a step without momentum and decay",
      every_weight},
     {"the first step with momentum", 2, "a step without momentum and decay", first_momentum},
     {"a later step with momentum", 2, "the first step with momentum", later_momentum},
     {"weight decay", 1, "a step without momentum and decay", decay},
     {"each weight with its own numbers", 1, "weight decay", each_its_own},
     {"ten steps with everything", 1, "weight decay", ten_steps}}};
