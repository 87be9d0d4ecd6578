/* 02-cross-entropy.grade.c: losses that are known in closed form. */
#include "tutorials/01-one-device/exercises/02-cross-entropy.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_01_02;

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-6 * (1 + fabs(b)); // a NaN is near nothing
}

static void equal_logits(Grade *grade) {
    const float logits[2] = {0.5f, 0.5f};
    const int64_t label = 1;
    double loss = GRADE_CALL(grade, cross_entropy, logits, &label, 1, 2, 1.0);
    GRADE_EXPECT(grade, !is_near(loss, -log(2.0)),
                 "The logarithm of a probability is not above 0, and the loss is minus that.");
    GRADE_EXPECT(grade, !is_near(loss, 0.5),
                 "This is the probability of the label; the loss is minus its logarithm.");
    GRADE_EXPECT(grade, is_near(loss, log(2.0)),
                 "The loss of two equal logits is the natural logarithm of 2: 0.693147, not %g.",
                 loss);
}

static void label_counts(Grade *grade) {
    const float logits[3] = {0.0f, 1.0f, 3.0f};
    double sum = exp(0.0) + exp(1.0) + exp(3.0);
    for (int64_t label = 0; label < 3; label++) {
        double loss = GRADE_CALL(grade, cross_entropy, logits, &label, 1, 3, 1.0);
        double wanted = log(sum) - (double)logits[label];
        GRADE_EXPECT(grade, is_near(loss, wanted),
                     "Logits 0, 1, 3 and label %d have the loss %.6f, not %.6f.", (int)label,
                     wanted, loss);
    }
}

// As many classes as a language model may have: the losses are log(classes).
static void many_classes(Grade *grade) {
    enum { ROWS = 3, CLASSES = 100000 };
    static const float logits[ROWS * CLASSES];
    const int64_t labels[ROWS] = {0, CLASSES - 1, 10};
    double loss = GRADE_CALL(grade, cross_entropy, logits, labels, ROWS, CLASSES, ROWS);
    GRADE_EXPECT(grade, is_near(loss, log(CLASSES)),
                 "%d equal logits have the loss %.6f, not %.6f.", CLASSES, log(CLASSES), loss);
}

static void several_rows(Grade *grade) {
    const float logits[6] = {2.0f, 2.0f, 3.0f, 5.0f, 7.0f, 4.0f};
    const int64_t labels[3] = {1, 0, 1};
    double a = log(2.0), b = log(1 + exp(2.0)), c = log(1 + exp(3.0));
    const double first_label = (a + log(1 + exp(-2.0)) + c) / 3; // 1 for all rows
    double loss = GRADE_CALL(grade, cross_entropy, logits, labels, 3, 2, 3.0);
    GRADE_EXPECT(grade, !is_near(loss, a),
                 "Every row has logits of its own, which begin at logits + row * classes.");
    GRADE_EXPECT(grade, !is_near(loss, first_label),
                 "Every row has a label of its own, labels[row], and not that of the first row.");
    const double first_logits = (a + b + 1.0 + c + 2.0) / 3; // 2 for all: logits[labels[row]]
    GRADE_EXPECT(grade, !is_near(loss, first_logits),
                 "The label's logit was that of row 0 for every row: it is at logits + row * "
                 "classes + labels[row].");
    GRADE_EXPECT(grade, !is_near(loss, a + b + c),
                 "The losses of the rows were added up, but not divided.");
    GRADE_EXPECT(grade, is_near(loss, (a + b + c) / 3),
                 "Three rows with the losses %.4f, %.4f and %.4f have the mean %.4f, not %.4f.", a,
                 b, c, (a + b + c) / 3, loss);
    many_classes(grade);
}

static void part_of_a_batch(Grade *grade) {
    const float logits[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int64_t labels[2] = {0, 1};
    double loss = GRADE_CALL(grade, cross_entropy, logits, labels, 2, 2, 8.0);
    GRADE_EXPECT(grade, !is_near(loss, log(2.0)),
                 "The sum was divided by the rows given and not by the divisor: 2 rows of a batch "
                 "of 8 contribute 2/8 of their mean.");
    GRADE_EXPECT(grade, is_near(loss, log(2.0) / 4),
                 "2 rows of loss 0.6931 in a batch of 8 contribute 0.1733, not %.4f.", loss);
    double none = GRADE_CALL(grade, cross_entropy, logits, labels, 0, 2, 8.0);
    GRADE_EXPECT(grade, none == 0.0, "Without rows the loss is 0, not %g.", none);
    none = GRADE_CALL(grade, cross_entropy, NULL, NULL, 0, 2, 0.0);
    GRADE_EXPECT(grade, none == 0.0,
                 "Without rows the loss is 0, also if no rank has any: 0 / 0 is NaN. (divisor 0: "
                 "%g)",
                 none);
}

static void large_logits(Grade *grade) {
    const float logits[4] = {1000.0f, 999.0f, -1000.0f, -1001.0f};
    const int64_t labels[2] = {1, 1};
    double loss = GRADE_CALL(grade, cross_entropy, logits, labels, 2, 2, 2.0);
    GRADE_EXPECT(grade, isfinite(loss),
                 "exp overflowed, or was 0 for a whole row: subtract the row's largest logit "
                 "first, which changes nothing else.");
    // Logits of 1000 have four digits behind the point in floats.
    GRADE_EXPECT(grade, fabs(loss - log(1 + exp(1.0))) < 1e-3,
                 "Logits 1000 and 999 with label 1 have the loss 1.3133, as 1 and 0 have; not %g.",
                 loss);
    const float sure[2] = {1000.0f, 0.0f};
    double wrong = GRADE_CALL(grade, cross_entropy, sure, labels, 1, 2, 1.0);
    GRADE_EXPECT(grade, isfinite(wrong),
                 "The label's probability was 0, and its logarithm infinite: take the logarithm of "
                 "the sum only, and subtract the label's logit. (logits 1000 and 0, label 1)");
    GRADE_EXPECT(grade, fabs(wrong - 1000.0) < 1e-3,
                 "Logits 1000 and 0 with label 1 have the loss 1000, not %g.", wrong);
}

const Grader grader_01_02 = {
    "01-one-device/02-cross-entropy",
    {{"two equal logits", 2, NULL, equal_logits},
     {"the label's logit counts", 2, "two equal logits", label_counts},
     {"the mean of several rows", 2, "the label's logit counts", several_rows},
     {"rows of a larger batch", 2, "the mean of several rows", part_of_a_batch},
     {"large logits", 2, "the label's logit counts", large_logits}}};
