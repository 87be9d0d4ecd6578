/* synthetic.h: data made by a random teacher, so that the best possible loss is known.
 *
 * Regression, "synthetic:10:5": x is normal, the target is a two-layer ReLU network of x plus
 * normal noise of standard deviation TEACHER_NOISE. No model has an expected squared error below
 * the noise's own variance; the `toy` model has the teacher's very shape and can reach it.
 *
 * Classification, "synthetic:3x32x32:10": x is normal, a linear map of it gives logits, and the
 * label is drawn from their softmax. No model has an expected cross-entropy below the mean entropy
 * of these distributions. (A model that learns its training labels by heart gets below both, on
 * them only.)
 */
#ifndef COMMON_DATA_SYNTHETIC_H
#define COMMON_DATA_SYNTHETIC_H

#include "common/data/dataset.h"

typedef struct Teacher {
    size_t inputs, hidden, outputs; // hidden 0: a linear map
    float *first;                   // [hidden, inputs], or [outputs, inputs]
    float *second;                  // [outputs, hidden], or NULL
} Teacher;

enum { TEACHER_HIDDEN = 10 };            // units of a regression's teacher, as in `toy`
static const double TEACHER_NOISE = 0.1; // standard deviation of a regression's noise

// Makes a teacher whose weights are a pure function of the arguments.
Teacher teacher_create(uint64_t seed, size_t inputs, size_t hidden, size_t outputs);
void teacher_close(Teacher *teacher);
void teacher_apply(const Teacher *teacher, const float *x, double *out); // [inputs] -> [outputs]

// What "synthetic[:IN->OUT[@COUNT]]" asks for.
typedef struct SyntheticSpec {
    size_t shape[3], inputs, outputs, count; // inputs: the product of the shape
    bool classes;                            // CxHxW->CLASSES; otherwise a regression
} SyntheticSpec;

// Reads such a name and checks its sizes. Returns 0, or -1 with err filled.
int synthetic_parse(const char *name, SyntheticSpec *spec, Error *err);

// Fills train, test and loss_floor from "synthetic[:IN->OUT[@COUNT]]". The test set has COUNT / 4
// samples, at least one. Returns 0, or -1 with err filled and nothing allocated.
int synthetic_open(const char *name, uint64_t seed, DataSource *source, Error *err);

#endif
