/* 02-rate-of-step.grade.c: rates that were computed by hand. */
#include "tutorials/11-seeds-and-rate/exercises/02-rate-of-step.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_11_02;

typedef struct Case {
    RatePlan plan;
    size_t step;
    double wanted; // cosines of 0, a third, a half and two thirds of pi: 1, 1/2, 0 and -1/2
} Case;

static bool near(double got, double wanted) {
    double apart = got - wanted;
    return apart > -1e-9 && apart < 1e-9;
}

static double asked(Grade *grade, const Case *c) {
    return GRADE_CALL(grade, rate_of_step, &c->plan, c->step);
}

// The rate in the first step, without a warm-up: the linear rule alone.
static void rule(Grade *grade) {
    static const Case CASES[] = {
        {{0.5, 60, 60, 1, 0, 12}, 0, 0.5},    {{0.5, 60, 60, 4, 0, 12}, 0, 0.5},
        {{0.5, 60, 240, 4, 0, 12}, 0, 2.0},   {{0.5, 100, 150, 2, 0, 12}, 0, 0.75},
        {{0.5, 100, 75, 3, 0, 12}, 0, 0.375}, {{0.1, 60, 240, 4, 0, 12}, 0, 0.4}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const RatePlan *plan = &CASES[i].plan;
        double got = asked(grade, &CASES[i]), wanted = CASES[i].wanted;
        bool right = near(got, wanted), half = plan->global_batch == 150;
        GRADE_EXPECT(grade, i > 0 || !near(got, 2 * wanted),
                     "The rate is twice as large as it should be: 1 + cos goes from 2 to 0.");
        GRADE_EXPECT(grade, right || !near(got, plan->base_lr * plan->world),
                     "The rate was multiplied by the number of ranks; it is the rows that count. "
                     "(%d ranks, %zu rows for %zu)",
                     plan->world, plan->global_batch, plan->base_batch);
        GRADE_EXPECT(grade, right || half || !near(got, plan->base_lr),
                     "The rate of one device was kept, although a step has another number of rows. "
                     "(%zu for %zu)",
                     plan->global_batch, plan->base_batch);
        GRADE_EXPECT(grade, right || !half || !near(got, plan->base_lr),
                     "Whole numbers were divided: 150 rows are one and a half times 100.");
        GRADE_EXPECT(grade, right || got < wanted - 1e-6 || got > wanted + 1e-6,
                     "The rate has the seven digits of a float: multiply and divide doubles.");
        GRADE_EXPECT(grade, right,
                     "%zu rows instead of %zu: the rate %g becomes %g in the first step, not %g.",
                     plan->global_batch, plan->base_batch, plan->base_lr, wanted, got);
    }
}

static double second(Grade *grade, const RatePlan *plan) { // the rate of the second step
    Case c = {*plan, 1, 0};
    return asked(grade, &c);
}

static void warmup(Grade *grade) {
    static const RatePlan PLANS[] = {{0.5, 60, 240, 1, 4, 10}, {0.25, 100, 200, 1, 5, 50}};
    for (int i = 0; i < 2; i++) {
        const RatePlan *plan = &PLANS[i];
        double full = plan->base_lr * (double)(plan->global_batch / plan->base_batch);
        double parts = (double)plan->warmup_steps;
        for (size_t step = 0; step < plan->warmup_steps; step++) {
            Case c = {*plan, step, full * (double)(step + 1) / parts};
            double got = asked(grade, &c), part = (double)(step + 1) / parts;
            GRADE_EXPECT(grade, step > 0 || !near(got, full),
                         "There is no warm-up: the first step has the full rate.");
            GRADE_EXPECT(grade, near(got, c.wanted) || !near(got, plan->base_lr * part),
                         "The warm-up leads to the rate of one device, and not to the full one.");
            GRADE_EXPECT(grade, step > 0 || !near(got, 0) || !near(second(grade, plan), 0),
                         "The warm-up's rate is 0: whole numbers were divided.");
            GRADE_EXPECT(grade, step > 0 || !near(got, 0),
                         "The first step has the rate 0, so it changes nothing.");
            GRADE_EXPECT(grade, near(got, c.wanted),
                         "Step %zu of a warm-up of %zu steps to the rate %g has %g, not %g.", step,
                         plan->warmup_steps, full, c.wanted, got);
        }
    }
}

// One rank, the full rate 1: 4 steps of warm-up, and 6 of a cosine.
static void cosine(Grade *grade) {
    static const double WANTED[] = {
        1, 0.9330127018922193, 0.75, 0.5, 0.25, 0.0669872981077807, 0, 0, 0};
    const RatePlan plan = {0.5, 60, 120, 1, 4, 10};
    for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++) {
        Case c = {plan, 4 + i, WANTED[i]};
        double got = asked(grade, &c);
        GRADE_EXPECT(grade, i != 0 || !near(got, (1 + cos(0.4 * PI_OF_RATE)) / 2),
                     "The cosine was counted from step 0; it begins when the warm-up is over.");
        GRADE_EXPECT(
            grade, i != 1 || !near(got, (1 + cos(0.1 * PI_OF_RATE)) / 2),
            "The cosine reaches 0 only after total_steps: the warm-up's steps are some of them.");
        GRADE_EXPECT(grade, i != 1 || !near(got, 0.75),
                     "This is a whole cosine, which rises again; the schedule takes half of one.");
        GRADE_EXPECT(grade, i != 1 || !near(got, 5.0 / 6),
                     "The rate falls in a straight line; a cosine falls slowly at first.");
        GRADE_EXPECT(grade, i <= 6 || near(got, 0), "After total_steps the rate rises again.");
        GRADE_EXPECT(grade, near(got, c.wanted),
                     "Step %zu of 10, 4 of them a warm-up to the rate 1, has %g, not %g.", c.step,
                     c.wanted, got);
    }
}

// Several ranks step together: the rates equal one rank's.
static void ranks(Grade *grade) {
    static const int WORLDS[] = {2, 3, 5};
    for (int w = 0; w < 3; w++) {
        for (size_t step = 1; step < 14; step++) {
            const RatePlan plan = {0.5, 60, 120, WORLDS[w], 2, 14}; // 12 steps of a cosine
            double done = step < 2 ? 0 : (double)(step - 2) / 12;
            Case c = {plan, step, (1 + cos(PI_OF_RATE * done)) / 2};
            double got = asked(grade, &c), far = (double)step * WORLDS[w];
            double fast = far < 14 ? (1 + cos(PI_OF_RATE * (far - 2) / 12)) / 2 : 0;
            double slow = (1 + cos(PI_OF_RATE * ((double)step - 2) / (14 * WORLDS[w] - 2))) / 2;
            GRADE_EXPECT(grade, near(got, c.wanted) || !near(got, fast),
                         "The schedule advanced once for each rank: a step that all ranks take "
                         "together counts once. (%d ranks, step %zu)",
                         WORLDS[w], step);
            GRADE_EXPECT(grade, near(got, c.wanted) || !near(got, slow),
                         "The schedule is W times too slow: W ranks do not take W times as many "
                         "steps. (%d ranks, step %zu)",
                         WORLDS[w], step);
            GRADE_EXPECT(grade, near(got, c.wanted), "%d ranks, step %zu of 14: %g, not %g.",
                         WORLDS[w], step, c.wanted, got);
        }
    }
}

const Grader grader_11_02 = {"11-seeds-and-rate/02-rate-of-step",
                             {{"the linear rule", 3, NULL, rule},
                              {"the warm-up", 2, "the linear rule", warmup},
                              {"the cosine", 3, "the warm-up", cosine},
                              {"several ranks", 2, "the cosine", ranks}}};
