/* test_kernels_ref.c: the reference kernels themselves: small results computed by hand (for both of
 * the CPU's tables), and every gradient kernel of the reference against central differences of its
 * forward.
 *
 * The differences perturb a float input of f = sum of r y, computed in double with random r, so
 * that f's gradient with respect to y is r. A forward kernel rounds its output to float, which
 * contributes an error of about 1e-7 / step. Kernels that are linear in the input use a step of
 * 0.5, for which there is no other error; the others use 1/64, with an error of order step^2.
 */
#include "common/device/device_backend.h"
#include "tests/rigs/check.h"

#include <stdbool.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/kernels.h"

static const float LINEAR_STEP = 0.5f, CURVED_STEP = 1.0f / 64;

#define KNOWN(got, ...)                                                     \
    do {                                                                    \
        const float known_[] = {__VA_ARGS__};                               \
        for (size_t i_ = 0; i_ < sizeof known_ / sizeof *known_; i_++)      \
            check_close((double)(got)[i_], (double)known_[i_], 1e-6, #got); \
    } while (0)

static void each_table(void (*check)(const Kernels *k)) {
    check(&kernels_ref);
    check(&kernels_cpu);
}

// ---- known answers ---------------------------------------------------------------------------

static void known_matmul(const Kernels *k) {
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, -1, 2, 1, 1}; // [2,3] [3,2]
    float c[4] = {NAN, NAN, NAN, NAN}, zero[2] = {NAN, NAN}, kept[2] = {1, 2};
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, false, 2, 2, 3}, a, b, c,
                      false);
    KNOWN(c, 2, 7, 5, 16);
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, false, 2, 2, 3}, a, b, c,
                      true);
    KNOWN(c, 4, 14, 10, 32);
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){true, false, 2, 2, 3}, a, b, c,
                      false); // a as [3,2], transposed: 1 3 5 / 2 4 6
    KNOWN(c, 3, 11, 4, 14);
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, true, 2, 2, 3}, a, b, c,
                      false); // b as [2,3], transposed
    KNOWN(c, -2, 7, -2, 19);
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, false, 1, 2, 0}, a, b,
                      zero, false); // a sum of no terms
    KNOWN(zero, 0, 0);
    k->matrix->matmul((Compute){PRECISION_F32, NULL}, (MatmulShape){false, false, 1, 2, 0}, a, b,
                      kept, true);
    KNOWN(kept, 1, 2);
    float y[4], dbias[3], dx[4];
    ReluMask relu = {0};
    k->matrix->linear((Compute){PRECISION_F32, NULL}, (LinearShape){2, 2, 3, &relu, 0}, a, b,
                      (const float[]){10, -7}, y); // b as [2,3]
    KNOWN(y, 8, 0, 8, 12);
    k->matrix->linear_relu_gradient((Compute){PRECISION_F32, NULL}, (LinearShape){2, 1, 2, NULL, 0},
                                    (const float[]){1, 2}, (const float[]){5, 7}, &relu, dx);
    KNOWN(dx, 5, 0, 10, 14);
    k->matrix->linear_weight_gradient((Compute){PRECISION_F32, NULL},
                                      (LinearShape){2, 3, 0, NULL, 0}, a, NULL,
                                      &(LinearGradient){.dbias = dbias});
    KNOWN(dbias, 5, 7, 9);
    float *room = memory_zalloc(k->matrix->matmul_workspace(PRECISION_BF16, 1, 1, 2));
    k->matrix->matmul((Compute){PRECISION_BF16, room}, (MatmulShape){false, false, 1, 1, 2},
                      (const float[]){1 + 1.0f / 256, 1}, (const float[]){1, 1 + 3.0f / 256}, c,
                      false); // 1 and 1 + 4/256: ties round to even
    KNOWN(c, 2 + 1.0f / 64);
    free(room);
    room = memory_zalloc(k->matrix->matmul_workspace(PRECISION_BF16, 1, 1, 1));
    k->matrix->linear((Compute){PRECISION_BF16, room}, (LinearShape){1, 1, 1, NULL, 0},
                      (const float[]){1}, (const float[]){1.0f / 256},
                      (const float[]){1 + 1.0f / 256}, c); // bias and sum: ties
    KNOWN(c, 1);
    free(room);
}

// 1.0078125 is bf16's next number after 1. Its square lies between two numbers and is rounded to
// 1.015625, also before it is accumulated.
static void known_matmul_in_bf16(const Kernels *k) {
    const float next[] = {1.0078125f};
    float c[] = {0.5f}, room[8];
    CHECK(k->matrix->matmul_workspace(PRECISION_BF16, 1, 1, 1) <= sizeof room, "room");
    for (int accumulate = 1; accumulate >= 0; accumulate--) {
        k->matrix->matmul((Compute){PRECISION_BF16, room}, (MatmulShape){false, false, 1, 1, 1},
                          next, next, c, accumulate);
        KNOWN(c, accumulate ? 1.515625f : 1.015625f);
    }
}

static void known_windows(const Kernels *k) {
    const float x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}; // one 3x3 image
    Window v = {.n = 1, .c = 1, .h = 3, .w = 3, .k = 1, .kernel = 2, .stride = 1, .oh = 2, .ow = 2};
    const float weight[] = {1, 10, 100, 1000}, bias[] = {0.5f};
    float y[4], dx[9], dw[4],
        *space = memory_zalloc(k->convolution->conv2d_workspace(PRECISION_F32, &v) + 1);
    k->convolution->conv2d((Compute){PRECISION_F32, space}, &v, x, weight, bias, y);
    KNOWN(y, 5421.5f, 6532.5f, 8754.5f, 9865.5f);
    const float dy[] = {1, 0, 0, 2}; // the gradient is the weights at (0,0) and twice at (1,1)
    k->convolution->conv2d_input_gradient((Compute){PRECISION_F32, space}, &v, weight, dy, dx,
                                          false);
    KNOWN(dx, 1, 10, 0, 100, 1002, 20, 0, 200, 2000);
    k->convolution->conv2d_weight_gradient((Compute){PRECISION_F32, space}, &v, x, dy, dw, false);
    KNOWN(dw, 1 + 10, 2 + 12, 4 + 16, 5 + 18);
    free(space);
    Window pool = {.n = 1,
                   .c = 1,
                   .h = 3,
                   .w = 3,
                   .k = 1,
                   .kernel = 2,
                   .stride = 2,
                   .pad = 1,
                   .oh = 2,
                   .ow = 2};
    int32_t chosen[4];
    // Padding counts: the first window contains one pixel and three zeros.
    k->convolution->avg_pool(&pool, x, y);
    KNOWN(y, 1 / 4.0f, 5 / 4.0f, 11 / 4.0f, 28 / 4.0f);
    const float below[] = {-1, -2, -2, -4, -9, -3, -4, NAN, NAN};
    // Padding is never chosen; the first of equal pixels is; NaN is the maximum.
    k->convolution->max_pool(&pool, below, y, chosen);
    KNOWN(y, -1, -2, -4);
    assert_true(isnan(y[3]));
    const int32_t expected[] = {0, 1, 3, 7};
    assert_memory_equal(chosen, expected, sizeof chosen);
    k->convolution->max_pool_gradient(&pool, chosen, (const float[]){1, 2, 3, 4}, dx, false);
    KNOWN(dx, 1, 2, 0, 3, 0, 0, 0, 4, 0);
}

static void known_shortcut(const Kernels *k) {
    Window v = {.n = 1, .c = 1, .h = 2, .w = 3, .k = 3, .kernel = 1, .stride = 2, .oh = 1, .ow = 2};
    const float x[] = {1, 2, 3, 4, 5, 6};
    float y[6], dx[6];
    k->convolution->shortcut(&v, x, y);
    KNOWN(y, 0, 0, 1, 3, 0, 0);
    k->convolution->shortcut_gradient(&v, (const float[]){9, 9, 5, 7, 9, 9}, dx, false);
    KNOWN(dx, 5, 0, 7, 0, 0, 0);
}

static void known_batch_norm(const Kernels *k) {
    const float x[] = {1, 2, 3, 4}, weight[] = {2}, bias[] = {1}; // mean 2.5, variance 1.25
    float y[4], mean[1], invstd[1], running_mean[] = {1}, running_var[] = {1};
    float inverse = 1 / sqrtf(1.25f);
    BatchNorm norm = {x,           2,    1, 2,    weight, bias, mean, invstd, running_mean,
                      running_var, 0.1f, 0, NULL, false,  NULL, NULL};
    k->norm->batch_norm(&norm, y);
    KNOWN(mean, 2.5f);
    KNOWN(invstd, inverse);
    KNOWN(y, 1 - 3 * inverse, 1 - inverse, 1 + inverse, 1 + 3 * inverse);
    KNOWN(running_mean, 0.9f + 0.25f);
    KNOWN(running_var, 0.9f + 0.1f * 5 / 3); // the unbiased variance
    norm.running_mean = mean;
    norm.running_var = (float[]){4};
    k->norm->batch_norm_eval(&norm, y);
    KNOWN(y, -0.5f, 0.5f, 1.5f, 2.5f);
}

// With an eps of three times the variance, every 1 / sqrt(variance + eps) is 1/2: an eps that is
// missing, added twice or added after the root changes the first digit.
static void known_batch_norm_with_eps(const Kernels *k) {
    const float x[] = {-1, 1, -1, 1}, weight[] = {2}, bias[] = {1};
    float dy[] = {3, 1, -2, 5}, y[4], dx[4], dw[1], db[1], mean[1], invstd[1];
    float running_mean[] = {0}, running_var[] = {1}, rows[] = {0, 0.5f, 2, 0, 0.5f, 2};
    BatchNorm norm = {x,           2,    1, 2,    weight, bias, mean, invstd, running_mean,
                      running_var, 0.1f, 3, NULL, false,  NULL, NULL};
    double count;
    k->norm->batch_norm_eval(&norm, y);
    KNOWN(y, 0, 2, 0, 2);
    k->norm->batch_norm_eval_gradient(&norm, dy, &(NormGradient){dx, dw, db, false, false, false});
    KNOWN(dx, 3, 1, -2, 5);
    KNOWN(dw, 2.5f); // half the sum of dy x
    k->norm->batch_norm_statistics(&norm);
    KNOWN(invstd, 0.5f);
    k->norm->batch_norm_merge(&norm, rows, 2, &count);
    KNOWN(invstd, 0.5f);
    KNOWN(running_var, 0.9f + 0.1f * 4 / 3); // the unbiased variance
    k->norm->batch_norm(&norm, y);
    KNOWN(invstd, 0.5f);
    KNOWN(y, 0, 2, 0, 2);
}

// A batch [4, 1, 2] divided over three ranks, the second of which is empty, must give one device's
// results.
static void known_batch_norm_over_ranks(const Kernels *k) {
    const float x[] = {1, 2, 3, 5, 8, 13, 21, 34};
    float dy[] = {1, -2, 3, 0, 2, 1, -1, 4};
    const float weight[] = {2}, bias[] = {1};
    const size_t from[] = {0, 1, 1, 4}; // rank r has rows [from[r], from[r + 1])
    float y[8], mean[1], invstd[1], running_mean[] = {1}, running_var[] = {1}, dx[8], dw[1], db[1];
    BatchNorm norm = {x,           4,    1,     2,    weight, bias, mean, invstd, running_mean,
                      running_var, 0.1f, 1e-5f, NULL, false,  NULL, NULL};
    k->norm->batch_norm(&norm, y);
    k->norm->batch_norm_gradient(&norm, dy, &(NormGradient){dx, dw, db, false, false, false});

    float rows[9], m[1], s[1], r_mean[] = {1}, r_var[] = {1}, sums[2] = {0}, w[1] = {0}, b[1] = {0};
    for (int r = 0; r < 3; r++) {
        float *row = rows + 3 * r;
        norm.x = x + 2 * from[r], norm.n = from[r + 1] - from[r];
        norm.mean = row, norm.invstd = row + 1;
        k->norm->batch_norm_statistics(&norm);
        row[2] = (float)(2 * norm.n);
    }
    KNOWN(&rows[3], 0, 0, 0);
    double count;
    norm.mean = m, norm.invstd = s, norm.running_mean = r_mean, norm.running_var = r_var;
    k->norm->batch_norm_merge(&norm, rows, 3, &count);
    assert_true(count == 8);
    KNOWN(m, mean[0]);
    KNOWN(s, invstd[0]);
    KNOWN(r_mean, running_mean[0]);
    check_close((double)r_var[0], (double)running_var[0], 1e-5, "running_var");
    for (int r = 0; r < 3; r++) {
        float own[2];
        norm.x = x + 2 * from[r], norm.n = from[r + 1] - from[r];
        k->norm->batch_norm_gradient_sums(&norm, dy + 2 * from[r], own,
                                          &(NormGradient){NULL, w, b, false, true, true});
        for (int i = 0; i < 2; i++) sums[i] += own[i];
    }
    KNOWN(w, dw[0]);
    KNOWN(b, db[0]);
    for (int r = 0; r < 3; r++) {
        size_t at = 2 * from[r], n = from[r + 1] - from[r];
        float got[8], slope[8];
        norm.x = x + at, norm.n = n;
        k->norm->batch_norm_apply(&norm, got);
        k->norm->batch_norm_gradient_apply(&norm, dy + at, sums, &count,
                                           &(NormGradient){.dx = slope});
        for (size_t i = 0; i < 2 * n; i++) {
            check_close((double)got[i], (double)y[at + i], 1e-6, "y");
            check_close((double)slope[i], (double)dx[at + i], 1e-6, "dx");
        }
    }
}

static void known_losses(const Kernels *k) {
    const float logits[] = {0, logf(3), 1000, 1000 + logf(3)}; // the second row would overflow
    const int64_t target[] = {0, 1};
    float p[4], dx[4], loss;
    k->loss->cross_entropy((Labels){target, 2, 2}, logits, 4, p, &loss);
    KNOWN(p, 0.25f, 0.75f);
    check_close((double)p[3], 0.75, 1e-4, "p of large logits"); // 1000 + ln 3 is rounded
    check_close((double)loss, (log(4) - log(0.75)) / 4, 1e-4, "loss");
    k->loss->cross_entropy_gradient((Labels){target, 1, 2}, p, (Upstream){(const float[]){6}, 3},
                                    dx, false);
    KNOWN(dx, -1.5f, 1.5f);
    k->loss->squared_error(logits, logits + 2, 10, &loss, 1);
    KNOWN(&loss, 1e5f);
    k->loss->squared_error(logits, logits + 2, 0, &loss, 0); // empty batch
    KNOWN(&loss, 0);
    k->loss->cross_entropy((Labels){(const int64_t[]){0, 2}, 2, 2}, logits, 2, p,
                           &loss); // no valid class
    assert_true(isnan(loss));
    // log 4 for a negative at logit log 3; 2 log 4/3 for a positive there with weight 2.
    float yes_no[] = {0, 1}, heavy[] = {1, 2}, threes[] = {logf(3), logf(3)};
    const Answers answers = {threes, yes_no, heavy, 1, 2};
    k->loss->binary_cross_entropy(&answers, 2, &loss);
    check_close((double)loss, (log(4) + 2 * log(4.0 / 3)) / 2, 1e-6, "yes and no");
    k->loss->binary_cross_entropy_gradient(&answers, (Upstream){(const float[]){4}, 2}, dx, false);
    KNOWN(dx, 1.5f, -1);
    const float far[] = {-1000, 1000, 1000, -1000},
                ones[] = {0, 1, 0, 1}; // must not overflow at either end
    k->loss->binary_cross_entropy(&(Answers){far, ones, NULL, 2, 2}, 4, &loss);
    KNOWN(&loss, 500);
    k->loss->one_hot((const int64_t[]){1, 2}, p, 2, 2);
    assert_true(p[0] == 0 && p[1] == 1 && isnan(p[2]) && isnan(p[3]));
    int64_t correct;
    const float rows[] = {1, 2, 2, 3, 2, 1, NAN, 2, 1, 2, 1, NAN};
    k->loss->count_correct((Labels){(const int64_t[]){1, 0, 1, 0}, 4, 3}, rows, &correct);
    assert_int_equal(correct, 2);
    k->loss->count_correct((Labels){(const int64_t[]){2, 0, 0, 2}, 4, 3}, rows, &correct);
    assert_int_equal(correct, 1);
    k->loss->count_correct((Labels){(const int64_t[]){1, -1, 3, 1 << 30}, 4, 3}, rows,
                           &correct); // without classes
    assert_int_equal(correct, 1);
}

static void known_optimizers(const Kernels *k) {
    SgdConfig sgd = {.momentum = 0.5, .weight_decay = 0.1};
    float w[] = {1}, v[] = {NAN}, g[] = {2}, scalars[SCALARS] = {[SCALAR_LR] = 0.1f};
    SgdTensor tensor = {w, g, v, scalars, .first = true, .count = 1};
    k->optimizer->sgd(&sgd, &tensor, 1, NULL); // with `first` the velocity is not read
    KNOWN(v, 2.1f);
    KNOWN(w, 0.79f);
    tensor.first = false;
    k->optimizer->sgd(&sgd, &tensor, 1, NULL);
    KNOWN(v, 0.5f * 2.1f + 2.079f);
    KNOWN(w, 0.79f - 0.3129f);
    sgd.nesterov = tensor.first = true;
    w[0] = 1;
    k->optimizer->sgd(&sgd, &tensor, 1, NULL);
    KNOWN(w, 1 - 0.1f * (2.1f + 0.5f * 2.1f));
    AdamConfig adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 0.5};
    float m[] = {0}, s[] = {0}; // step 1: m / (1 - beta1) = g, sqrt(s / (1 - beta2)) = |g|
    w[0] = 1, scalars[SCALAR_KEEP] = 1 - 0.1f * 0.1f, scalars[SCALAR_STEP_SIZE] = 0.1f / 0.1f;
    scalars[SCALAR_BIAS_CORRECTION] = sqrtf(0.001f);
    k->optimizer->adam(&adam, &(AdamTensor){w, g, m, s, scalars, 1, NULL}, 1, NULL);
    KNOWN(w, 0.99f - 0.1f * 2 / (2 + 0.5f));
    KNOWN(m, 0.2f);
    KNOWN(s, 0.004f);
    adam.weight_decay = 0.5; // Adam adds it to the gradient: 2 + 0.5
    w[0] = 1, m[0] = s[0] = 0, scalars[SCALAR_KEEP] = 1;
    k->optimizer->adam(&adam, &(AdamTensor){w, g, m, s, scalars, 1, NULL}, 1, NULL);
    KNOWN(w, 1 - 0.1f * 2.5f / (2.5f + 0.5f));
    KNOWN(m, 0.25f);
}

static void test_known(void **state) {
    (void)state;
    each_table(known_matmul);
    each_table(known_matmul_in_bf16);
    each_table(known_windows);
    each_table(known_shortcut);
    each_table(known_batch_norm);
    each_table(known_batch_norm_with_eps);
    each_table(known_batch_norm_over_ranks);
    each_table(known_losses);
    each_table(known_optimizers);
}

// ---- central differences ---------------------------------------------------------------------

// The tensors of an operation; each test uses some of them.
typedef struct Case {
    Window v;
    size_t n, c, inner; // batch norm
    float *x, *weight, *bias, *y;
    float *r; // gradient of the objective with respect to y
    size_t outputs;
    bool eval;
    float running_mean[3], running_var[3];
    int64_t target[4];
} Case;

typedef double (*Objective)(Case *s);

static float *normal(size_t count, uint64_t which) {
    float *x = memory_zalloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = rng_normal(which, RNG_STREAM_TEST, i);
    return x;
}

static Case case_make(size_t inputs, size_t weights, size_t biases, size_t outputs) {
    return (Case){.x = normal(inputs, 1),
                  .weight = normal(weights, 2),
                  .bias = normal(biases, 3),
                  .y = normal(outputs, 4),
                  .r = normal(outputs, 5),
                  .outputs = outputs};
}

static void case_free(Case *s) {
    float *all[] = {s->x, s->weight, s->bias, s->y, s->r};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static double weighted(const Case *s) {
    double sum = 0;
    for (size_t i = 0; i < s->outputs; i++) sum += (double)s->r[i] * (double)s->y[i];
    return sum;
}

// Compares gradient[count], a kernel's gradient of `input` (a tensor of the case), with
// differences.
static void check_differences(Case *s, Objective objective, float *input, const float *gradient,
                              size_t count, float step, const char *what) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        float kept = input[i];
        input[i] = kept + step;
        double width = (double)input[i], above = objective(s);
        input[i] = kept - step;
        width -= (double)input[i];
        double slope = (above - objective(s)) / width;
        input[i] = kept;
        check_close((double)gradient[i], slope, step < 0.1f ? 1e-3 : 1e-5, what);
        largest = fmax(largest, fabs(slope));
    }
    assert_true(largest > 1e-2); // zeros would pass for any constant
}

static double conv2d_objective(Case *s) {
    kernels_ref.convolution->conv2d((Compute){PRECISION_F32, NULL}, &s->v, s->x, s->weight, s->bias,
                                    s->y);
    return weighted(s);
}

static void test_conv2d_gradients(void **state) {
    (void)state;
    Window windows[] = {{.n = 2,
                         .c = 2,
                         .h = 5,
                         .w = 4,
                         .k = 3,
                         .kernel = 3,
                         .stride = 1,
                         .pad = 1,
                         .oh = 5,
                         .ow = 4},
                        {.n = 1,
                         .c = 2,
                         .h = 6,
                         .w = 7,
                         .k = 2,
                         .kernel = 3,
                         .stride = 2,
                         .pad = 2,
                         .oh = 4,
                         .ow = 5}};
    for (size_t i = 0; i < 2; i++) {
        Window v = windows[i];
        size_t inputs = v.n * v.c * v.h * v.w, weights = v.k * v.c * 9;
        Case s = case_make(inputs, weights, v.k, v.n * v.k * v.oh * v.ow);
        s.v = v;
        float *dx = normal(inputs, 6), *dw = normal(weights, 6), *db = normal(v.k, 6);
        kernels_ref.convolution->conv2d_input_gradient((Compute){PRECISION_F32, NULL}, &v, s.weight,
                                                       s.r, dx, false);
        kernels_ref.convolution->conv2d_weight_gradient((Compute){PRECISION_F32, NULL}, &v, s.x,
                                                        s.r, dw, false);
        kernels_ref.convolution->conv2d_bias_gradient(&v, s.r, db, false);
        check_differences(&s, conv2d_objective, s.x, dx, inputs, LINEAR_STEP, "conv2d x");
        check_differences(&s, conv2d_objective, s.weight, dw, weights, LINEAR_STEP,
                          "conv2d weight");
        check_differences(&s, conv2d_objective, s.bias, db, v.k, LINEAR_STEP, "conv2d bias");
        free(dx);
        free(dw);
        free(db);
        case_free(&s);
    }
}

static double max_pool_objective(Case *s) {
    int32_t chosen[64];
    kernels_ref.convolution->max_pool(&s->v, s->x, s->y, chosen);
    return weighted(s);
}

static double avg_pool_objective(Case *s) {
    kernels_ref.convolution->avg_pool(&s->v, s->x, s->y);
    return weighted(s);
}

static double shortcut_objective(Case *s) {
    kernels_ref.convolution->shortcut(&s->v, s->x, s->y);
    return weighted(s);
}

static void test_pool_gradients(void **state) {
    (void)state;
    Window v = {.n = 1,
                .c = 2,
                .h = 5,
                .w = 6,
                .k = 2,
                .kernel = 3,
                .stride = 2,
                .pad = 1,
                .oh = 3,
                .ow = 3};
    Case s = case_make(60, 0, 0, 18);
    s.v = v;
    // Values differ by more than a step, so that a perturbation does not change the maximum.
    for (size_t i = 0; i < 60; i++) s.x[i] = (float)(i * 37 % 60) / 8;
    float dx[60];
    int32_t chosen[18];
    kernels_ref.convolution->max_pool(&v, s.x, s.y, chosen);
    kernels_ref.convolution->max_pool_gradient(&v, chosen, s.r, dx, false);
    check_differences(&s, max_pool_objective, s.x, dx, 60, CURVED_STEP, "max_pool");
    kernels_ref.convolution->avg_pool_gradient(&v, s.r, dx, false);
    check_differences(&s, avg_pool_objective, s.x, dx, 60, LINEAR_STEP, "avg_pool");
    s.v = (Window){
        .n = 1, .c = 2, .h = 5, .w = 6, .k = 3, .kernel = 1, .stride = 3, .oh = 2, .ow = 2};
    s.outputs = 12;
    kernels_ref.convolution->shortcut_gradient(&s.v, s.r, dx, false);
    check_differences(&s, shortcut_objective, s.x, dx, 60, LINEAR_STEP, "shortcut");
    case_free(&s);
}

static double norm_objective(Case *s) {
    float mean[3], invstd[3], running_mean[3] = {0}, running_var[3] = {0};
    BatchNorm norm = {s->x,         s->n,        s->c, s->inner, s->weight, s->bias, mean, invstd,
                      running_mean, running_var, 0.1f, 1e-5f,    NULL,      false,   NULL, NULL};
    if (s->eval) norm.running_mean = s->running_mean, norm.running_var = s->running_var;
    if (s->eval)
        kernels_ref.norm->batch_norm_eval(&norm, s->y);
    else
        kernels_ref.norm->batch_norm(&norm, s->y);
    return weighted(s);
}

static void test_norm_gradients(void **state) {
    (void)state;
    for (int eval = 0; eval < 2; eval++) {
        Case s = case_make(60, 3, 3, 60);
        s.n = 4, s.c = 3, s.inner = 5, s.eval = eval;
        float mean[3], invstd[3], dx[60], dw[3], db[3];
        for (size_t i = 0; i < 3; i++) s.running_var[i] = 0.5f + (float)i;
        BatchNorm norm = {s.x, 4,  3,    5,     s.weight, s.bias, mean, invstd,
                          dw,  db, 0.1f, 1e-5f, NULL,     false,  NULL, NULL};
        const NormGradient to = {dx, dw, db, false, false, false};
        kernels_ref.norm->batch_norm(&norm, s.y);
        norm.running_mean = s.running_mean, norm.running_var = s.running_var;
        if (eval)
            kernels_ref.norm->batch_norm_eval_gradient(&norm, s.r, &to);
        else
            kernels_ref.norm->batch_norm_gradient(&norm, s.r, &to);
        check_differences(&s, norm_objective, s.x, dx, 60, CURVED_STEP, "batch_norm x");
        check_differences(&s, norm_objective, s.weight, dw, 3, LINEAR_STEP, "batch_norm weight");
        check_differences(&s, norm_objective, s.bias, db, 3, LINEAR_STEP, "batch_norm bias");
        case_free(&s);
    }
}

static double relu_objective(Case *s) {
    kernels_ref.elementwise->activation(ACTIVATION_RELU, s->y, s->x, s->outputs, false);
    return weighted(s);
}

static double cross_entropy_objective(Case *s) {
    float loss;
    kernels_ref.loss->cross_entropy((Labels){s->target, 4, 5}, s->x, 2, s->y, &loss);
    return 0.7 * (double)loss;
}

static Answers case_answers(Case *s) {
    return (Answers){s->x, s->r, s->bias, 4, 5};
}

static double binary_cross_entropy_objective(Case *s) {
    const Answers answers = case_answers(s);
    float loss;
    kernels_ref.loss->binary_cross_entropy(&answers, 2, &loss);
    return 0.7 * (double)loss;
}

static double squared_error_objective(Case *s) {
    float loss;
    kernels_ref.loss->squared_error(s->x, s->r, 2, &loss, s->outputs);
    return 0.7 * (double)loss;
}

static void test_loss_gradients(void **state) {
    (void)state;
    Case s = case_make(20, 0, 5, 20);
    for (size_t i = 0; i < 4; i++) s.target[i] = (int64_t)(i * 3 % 5);
    for (size_t i = 0; i < 20; i++) // not at relu's kink
        if (fabsf(s.x[i]) < 2 * CURVED_STEP) s.x[i] = 1;
    float dx[20], loss;
    const float upstream = 0.7f;
    kernels_ref.elementwise->activation(ACTIVATION_RELU, s.y, s.x, 20, false);
    kernels_ref.elementwise->activation_gradient(ACTIVATION_RELU, dx, s.y, s.r, 20, false);
    check_differences(&s, relu_objective, s.x, dx, 20, CURVED_STEP, "relu");
    kernels_ref.loss->cross_entropy((Labels){s.target, 4, 5}, s.x, 2, s.y, &loss);
    kernels_ref.loss->cross_entropy_gradient((Labels){s.target, 4, 5}, s.y,
                                             (Upstream){&upstream, 2}, dx, false);
    check_differences(&s, cross_entropy_objective, s.x, dx, 20, CURVED_STEP, "cross_entropy");
    for (size_t i = 0; i < 20; i++) s.r[i] = (float)(i % 3) / 2; // answers: no, perhaps, yes
    for (size_t i = 0; i < 5; i++) s.bias[i] = 0.5f * (float)(i + 1);
    const Answers answers = case_answers(&s);
    kernels_ref.loss->binary_cross_entropy_gradient(&answers, (Upstream){&upstream, 2}, dx, false);
    check_differences(&s, binary_cross_entropy_objective, s.x, dx, 20, CURVED_STEP, "yes or no");
    kernels_ref.loss->squared_error_gradient(s.x, s.r, (Upstream){&upstream, 2}, dx, false, 20);
    check_differences(&s, squared_error_objective, s.x, dx, 20, CURVED_STEP, "squared_error");
    case_free(&s);
}

static double bias_objective(Case *s) {
    kernels_ref.matrix->linear((Compute){PRECISION_F32, NULL}, (LinearShape){4, 3, 3, NULL, 0},
                               s->x, s->weight, s->bias, s->y);
    return weighted(s);
}

static void test_bias_gradient(void **state) {
    (void)state;
    Case s = case_make(12, 9, 3, 12);
    float db[3];
    kernels_ref.matrix->linear_weight_gradient((Compute){PRECISION_F32, NULL},
                                               (LinearShape){4, 3, 3, NULL, 0}, s.r, s.x,
                                               &(LinearGradient){.dbias = db});
    check_differences(&s, bias_objective, s.bias, db, 3, LINEAR_STEP, "bias");
    case_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),          cmocka_unit_test(test_conv2d_gradients),
        cmocka_unit_test(test_pool_gradients), cmocka_unit_test(test_norm_gradients),
        cmocka_unit_test(test_loss_gradients), cmocka_unit_test(test_bias_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
