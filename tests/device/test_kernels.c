/* test_kernels.c: a device's kernels (the CPU's by default, or those of the device given as
 * argument) against the reference: elementwise operations, lists of tensors, matrix products,
 * losses, optimizers. test_kernels_norm.c, test_kernels_windows.c and test_kernels_pixels.c test
 * further kernels, test_kernels_ref.c the reference itself.
 *
 * Sizes are 0, 1, primes, one more than a vector's width, more than a block of threads and more
 * than a card runs at once; tensors are aligned, and one float off.
 */
#include "tests/rigs/two_devices.h"

static const size_t sizes[] = {0, 1, 2, 7, 16, 17, 33, 101, 1009};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const size_t large_sizes[] = {4097, 70001, 1200007};
enum { LARGE_SIZES = sizeof large_sizes / sizeof *large_sizes };

// ---- vectors ---------------------------------------------------------------------------------

static void check_vectors(TwoDevices *two, size_t count) {
    Both a = both_normal(two, count, 1), b = both_normal(two, count, 2);
    Both filled = both_start(two, count, false), added = both_start(two, count, false);
    Both in_place = both_start(two, count, true), sums = both_start(two, count, true);
    Both mean = both_start(two, 1, false), nothing = both_start(two, 1, false);
    Both error = both_start(two, 1, false);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->elementwise->fill(filled.of[d], 2.5f, count);
        k->elementwise->scale(filled.of[d], -3, count);
        k->elementwise->add(added.of[d], a.of[d], b.of[d], count);
        k->elementwise->add(in_place.of[d], in_place.of[d], b.of[d], count);
        k->elementwise->accumulate(sums.of[d], a.of[d], count);
        k->elementwise->mean(a.of[d], 3, mean.of[d], count);
        k->elementwise->mean(a.of[d], 0, nothing.of[d], count);
        k->loss->squared_error(a.of[d], b.of[d], 3, error.of[d], count);
    }
    both_check(filled, 0, "fill, scale");
    both_check(added, 0, "add");
    both_check(in_place, 0, "add in place");
    both_check(sums, 0, "accumulate");
    both_check(mean, 2e-7, "mean");
    both_check(nothing, 0, "mean of nothing");
    both_check(error, 2e-7, "squared_error");
    two_free(two);
}

static void check_pointwise(TwoDevices *two, size_t count, bool accumulate) {
    float *values = two_normal(two, count, 1);
    if (count > 6) values[3] = 0, values[5] = INFINITY, values[6] = -INFINITY;
    Both x = both_floats(two, values, count), dy = both_normal(two, count, 2);
    Both upstream = both_floats(two, (const float[]){1.4f}, 1);
    Both relu = both_start(two, count, false), dx = both_start(two, count, accumulate);
    Both in_place = both_start(two, count, true), spread = both_start(two, count, accumulate);
    Both error = both_start(two, count, accumulate), target = both_normal(two, count, 3);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->elementwise->activation(ACTIVATION_RELU, relu.of[d], x.of[d], count, false);
        k->elementwise->activation_gradient(ACTIVATION_RELU, dx.of[d], x.of[d], dy.of[d], count,
                                            accumulate);
        k->elementwise->activation(ACTIVATION_RELU, in_place.of[d], in_place.of[d], count, false);
        k->elementwise->activation_gradient(ACTIVATION_RELU, in_place.of[d], x.of[d],
                                            in_place.of[d], count, false);
        k->loss->squared_error_gradient(dy.of[d], target.of[d], (Upstream){upstream.of[d], 2},
                                        error.of[d], accumulate, count);
        k->elementwise->spread(spread.of[d], upstream.of[d], 3, accumulate, count);
    }
    both_check(relu, 0, "relu");
    both_check(dx, 0, "relu_gradient");
    both_check(in_place, 0, "relu in place");
    both_check(error, 3e-7, "squared_error_gradient");
    both_check(spread, 2e-7, "spread");
    two_free(two);
}

static void test_vectors(void **state) {
    TwoDevices *two = *state;
    for (two->shift = 0; two->shift < 2; two->shift++)
        for (size_t i = 0; i < SIZES + LARGE_SIZES; i++) {
            size_t count = i < SIZES ? sizes[i] : large_sizes[i - SIZES];
            check_vectors(two, count);
            check_pointwise(two, count, i % 2);
            if (i < SIZES) check_pointwise(two, count, i % 2 == 0);
        }
    two->shift = 0;
    check_vectors(two, 4500007); // more than one element per thread of a sum's first stage
}

// relu keeps NaN at each position of a vector.
static void test_relu_of_nan(void **state) {
    TwoDevices *two = *state;
    for (size_t i = 0; i < 9; i++) {
        float *values = two_normal(two, 9, 1);
        values[i] = NAN;
        Both x = both_floats(two, values, 9), y = both_start(two, 9, true);
        for (int d = 0; d < DEVICES; d++) {
            two_kernels(two, d)->elementwise->activation(ACTIVATION_RELU, y.of[d], x.of[d], 9,
                                                         false);
            const float *found = both_read(y, d, y.bytes);
            for (size_t j = 0; j < 9; j++) assert_true(isnan(found[j]) == (j == i));
        }
        two_free(two);
    }
}

// So does a linear layer with relu: the loss of a diverged network must be NaN.
static void test_linear_relu_of_nan(void **state) {
    enum { ROWS = 8, IN = 16, OUT = 8 };
    TwoDevices *two = *state;
    float *values = two_normal(two, ROWS * IN, 1);
    values[3 * IN + 5] = NAN; // makes row 3 NaN
    Both x = both_floats(two, values, ROWS * IN), y = both_start(two, ROWS * OUT, true);
    Both w = both_floats(two, two_normal(two, OUT * IN, 1), OUT * IN);
    Both bias = both_floats(two, two_normal(two, OUT, 1), OUT);
    for (int d = 0; d < DEVICES; d++) {
        two_kernels(two, d)->matrix->linear((Compute){PRECISION_F32, NULL},
                                            (LinearShape){ROWS, OUT, IN, &(ReluMask){0}, 0},
                                            x.of[d], w.of[d], bias.of[d], y.of[d]);
        const float *found = both_read(y, d, y.bytes);
        for (size_t j = 0; j < ROWS * OUT; j++) assert_true(isnan(found[j]) == (j / OUT == 3));
    }
    two_free(two);
}

static void test_count_up(void **state) {
    TwoDevices *two = *state;
    Both counter = both_bytes(two, (const int64_t[]){((int64_t)1 << 33) - 1}, sizeof(int64_t));
    for (int d = 0; d < DEVICES; d++) two_kernels(two, d)->elementwise->count_up(counter.of[d]);
    both_check_bytes(counter, "count_up");
    two_free(two);
}

// Conversion to 16 bits agrees bit for bit: all magnitudes, ties, subnormal numbers, infinities.
static void test_halves(void **state) {
    TwoDevices *two = *state;
    enum { COUNT = 100001 };
    float *values = two_normal(two, COUNT, 1);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 3 > 0) values[i] = ldexpf(values[i], (int)(i % 300) - 150);
        if (i % 7 == 0) values[i] = rintf(ldexpf(values[i], 12)); // ties
    }
    for (two->shift = 0; two->shift < 2; two->shift++)
        for (int p = PRECISION_BF16; p <= PRECISION_F16; p++) {
            Both x = both_floats(two, values, COUNT), wide = both_start(two, COUNT, false);
            Both narrow = both_bytes(two, NULL, COUNT * sizeof(uint16_t));
            for (int d = 0; d < DEVICES; d++) {
                const Kernels *k = two_kernels(two, d);
                k->elementwise->narrow((Precision)p, narrow.of[d], x.of[d], COUNT);
                k->elementwise->widen((Precision)p, wide.of[d], narrow.of[d], COUNT);
            }
            both_check_bytes(narrow, "narrow");
            both_check(wide, 0, "widen");
        }
    two->shift = 0;
    two_free(two);
}

// ---- lists -----------------------------------------------------------------------------------

enum { LIST_MAX = 150 }; // more than one launch on a GPU takes

// Contiguous tensors of odd sizes. Fills ends[0, tensors]; returns the number of elements.
static size_t cut_list(size_t *ends, size_t tensors) {
    ends[0] = 0;
    for (size_t i = 0; i < tensors; i++) {
        size_t count = i % 50 == 3 ? 70001 : sizes[i % SIZES];
        ends[i + 1] = ends[i] + count;
    }
    return ends[tensors];
}

static void check_slices(TwoDevices *two, size_t tensors, float broken) {
    size_t ends[LIST_MAX + 1], total = cut_list(ends, tensors);
    float *values = two_normal(two, total, 1);
    if (total > 0) values[total / 2] = broken;
    Both from = both_output(two, values, total), packed = both_start(two, total, false);
    Both to = both_start(two, total, false), flag = both_output(two, (const float[]){0}, 1);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        Slice sources[LIST_MAX], targets[LIST_MAX];
        for (size_t i = 0; i < tensors; i++) { // in reverse order
            size_t other = tensors - 1 - i, count = ends[other + 1] - ends[other];
            sources[i] = (Slice){(float *)from.of[d] + ends[other], count};
            targets[i] = (Slice){(float *)to.of[d] + ends[i], ends[i + 1] - ends[i]};
        }
        k->slices->unscale(sources, tensors, 0.25f, flag.of[d]);
        k->slices->pack(packed.of[d], sources, tensors);
        k->slices->unpack(targets, tensors, packed.of[d]);
    }
    both_check(from, 0, "unscale");
    both_check(flag, 0, "what unscale found");
    both_check(packed, 0, "pack");
    both_check(to, 0, "unpack");
    assert_true(*(const float *)both_read(flag, TESTED, sizeof(float)) == (isinf(broken) != 0));
    two_free(two);
}

static void test_slices(void **state) {
    TwoDevices *two = *state;
    check_slices(two, 0, 1);
    const size_t lengths[] = {5, 64, 65, LIST_MAX};
    for (size_t i = 0; i < 4; i++) {
        check_slices(two, lengths[i], 1);
        check_slices(two, lengths[i], -INFINITY);
    }
}

static void check_sgd(TwoDevices *two, size_t tensors, SgdConfig config) {
    size_t ends[LIST_MAX + 1], total = cut_list(ends, tensors);
    Both gradient = both_normal(two, total, 1), w = both_start(two, total, true);
    Both scalars = both_floats(two, (const float[SCALARS]){[SCALAR_LR] = 0.1f}, SCALARS);
    Both v = both_start(two, total, config.momentum == 0); // NaN: must not be read in step 1
    for (int d = 0; d < DEVICES; d++)
        for (int step = 0; step < 3; step++) {
            SgdTensor list[LIST_MAX];
            float *velocity = config.momentum == 0 ? NULL : v.of[d];
            for (size_t i = 0; i < tensors; i++)
                list[i] = (SgdTensor){.weight = (float *)w.of[d] + ends[i],
                                      .gradient = (float *)gradient.of[d] + ends[i],
                                      .velocity = velocity ? velocity + ends[i] : NULL,
                                      .scalars = scalars.of[d],
                                      .first = step == 0,
                                      .count = ends[i + 1] - ends[i]};
            two_kernels(two, d)->optimizer->sgd(&config, list, tensors, NULL);
        }
    both_check(w, 5e-7, "sgd weight");
    both_check(v, 5e-7, "sgd velocity");
    two_free(two);
}

static void check_adam(TwoDevices *two, size_t tensors, double weight_decay) {
    size_t ends[LIST_MAX + 1], total = cut_list(ends, tensors);
    const AdamConfig config = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = weight_decay};
    float *squares = two_normal(two, total, 3);
    for (size_t i = 0; i < total; i++) squares[i] = fabsf(squares[i]);
    Both gradient = both_normal(two, total, 1), w = both_start(two, total, true);
    Both m = both_start(two, total, true), v = both_output(two, squares, total);
    for (int step = 1; step <= 3; step++) {
        const float values[SCALARS] = {[SCALAR_KEEP] = weight_decay == 0 ? 0.995f : 1,
                                       [SCALAR_STEP_SIZE] = (float)(0.1 / (1 - pow(0.9, step))),
                                       [SCALAR_BIAS_CORRECTION] = (float)sqrt(1 - pow(0.99, step))};
        Both scalars = both_floats(two, values, SCALARS);
        for (int d = 0; d < DEVICES; d++) {
            AdamTensor list[LIST_MAX];
            for (size_t i = 0; i < tensors; i++)
                list[i] = (AdamTensor){.weight = (float *)w.of[d] + ends[i],
                                       .gradient = (float *)gradient.of[d] + ends[i],
                                       .exp_avg = (float *)m.of[d] + ends[i],
                                       .exp_avg_sq = (float *)v.of[d] + ends[i],
                                       .scalars = scalars.of[d],
                                       .count = ends[i + 1] - ends[i]};
            two_kernels(two, d)->optimizer->adam(&config, list, tensors, NULL);
        }
    }
    both_check(w, 1e-6, "adam weight");
    both_check(m, 1e-6, "adam exp_avg");
    both_check(v, 1e-6, "adam exp_avg_sq");
    two_free(two);
}

static void step_tensor(const Kernels *kernels, bool adam, AdamTensor t,
                        const OptimizerPeer *peer) {
    const AdamConfig how = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8};
    const SgdConfig sgd = {.momentum = t.count % 2 ? 0.9 : 0, .weight_decay = 0.2};
    const SgdTensor same = {t.weight, t.gradient, t.exp_avg, t.scalars, false, t.count, NULL};
    const OptimizerKernels *k = kernels->optimizer;
    if (adam)
        k->adam(&how, &t, 1, peer);
    else
        k->sgd(&sgd, &same, 1, peer);
}

// A step with a peer equals, bit for bit, a step with the scaled sum of both gradients, or with the
// own gradient if the peer has none. The updated weights are also written to the peer's copy.
static void check_peer(TwoDevices *two, size_t count, bool adam, bool adds) {
    float *one = two_normal(two, count, 1), *other = two_normal(two, count, 2);
    float *sum = two_normal(two, count, 1);
    for (size_t i = 0; i < count && adds; i++) sum[i] = (one[i] + other[i]) * 0.3f;
    const float values[SCALARS] = {0.1f, 0.99f, 0.1f, 0.5f};
    Both scalars = both_floats(two, values, SCALARS);
    Both copy = both_start(two, (count + 3) / 4 * 4, true); // padded to 16 bytes, as in buckets
    copy.bytes = count * sizeof *values;
    Both mine = both_floats(two, one, count), peers = both_floats(two, other, count);
    Both summed = both_floats(two, sum, count), w[2], m[2], v[2];
    for (size_t i = 0; i < count; i++) other[i] *= other[i];
    for (int k = 0; k < 2; k++) {
        w[k] = both_start(two, count, true), m[k] = both_start(two, count, true);
        v[k] = both_output(two, other, count);
    }
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *kernels = two_kernels(two, d);
        if (!kernels->is_addressable) continue; // cannot access another process's memory
        const OptimizerPeer peer = {adds ? peers.of[d] : NULL, 0.3f, copy.of[d]};
        ((float *)w[1].of[d])[count] = -1; // differs from the guard behind the copy
        for (int k = 0; k < 2; k++)
            step_tensor(kernels, adam,
                        (AdamTensor){w[k].of[d], k ? mine.of[d] : summed.of[d], m[k].of[d],
                                     v[k].of[d], scalars.of[d], count, NULL},
                        k ? &peer : NULL);
        const size_t bytes = count * sizeof *one;
        const float *plain = both_read(w[0], d, bytes);
        assert_memory_equal(plain, both_read(w[1], d, bytes), bytes);
        assert_memory_equal(plain, both_read(copy, d, bytes), bytes);
        assert_memory_equal(both_read(m[0], d, bytes), both_read(m[1], d, bytes), bytes);
        assert_memory_equal(both_read(v[0], d, bytes), both_read(v[1], d, bytes), bytes);
        both_check_guards(copy, d, "the peer's weights");
    }
    two_free(two);
}

static void test_peers(void **state) {
    TwoDevices *two = *state;
    const size_t counts[] = {0, 1, 2, 15, 16, 17, 64, 1009};
    for (size_t i = 0; i < 8; i++)
        for (int variant = 0; variant < 4; variant++)
            check_peer(two, counts[i], variant & 1, variant & 2);
}

static void test_optimizers(void **state) {
    TwoDevices *two = *state;
    const size_t lengths[] = {0, 1, 9, 65, LIST_MAX};
    for (size_t i = 0; i < 5; i++) {
        check_sgd(two, lengths[i], (SgdConfig){0});
        check_sgd(two, lengths[i], (SgdConfig){.weight_decay = 0.2});
        check_sgd(two, lengths[i], (SgdConfig){.momentum = 0.9, .weight_decay = 0.2});
        check_sgd(two, lengths[i], (SgdConfig){.momentum = 0.9, .nesterov = true});
        check_adam(two, lengths[i], 0);   // AdamW: decay scales the weight
        check_adam(two, lengths[i], 0.2); // Adam: decay adds to the gradient
    }
}

// ---- matrix product --------------------------------------------------------------------------

static void check_matmul(TwoDevices *two, Precision precision, int flags, size_t m, size_t n,
                         size_t k) {
    Both a = both_normal(two, m * k, 1), b = both_normal(two, k * n, 2);
    Both c = both_start(two, m * n, flags & 4);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *table = two_kernels(two, d);
        size_t bytes = table->matrix->matmul_workspace(precision, m, n, k);
        table->matrix->matmul((Compute){precision, two_take(two, two->of[d], NULL, bytes)},
                              (MatmulShape){flags & 1, flags & 2, m, n, k}, a.of[d], b.of[d],
                              c.of[d], flags & 4);
    }
    // A sum midway between two 16-bit numbers may be rounded to either.
    both_check(c, precision == PRECISION_F32 ? 1e-6 : 8e-3, "matmul");
    two_free(two);
}

// (Products of stored 16-bit tensors: test_kernels_halves.)
static void test_matmul(void **state) {
    const size_t lengths[] = {0, 1, 3, 17, 33};
    bool halves = two_kernels(*state, TESTED)->halves;
    for (int flags = 0; flags < 8; flags++) {
        for (int i = 0; i < 125; i++) // all sizes in all precisions, with some of the flags
            check_matmul(*state, halves ? PRECISION_F32 : (Precision)((i + flags) % 3), flags,
                         lengths[i % 5], lengths[i / 5 % 5], lengths[i / 25]);
        check_matmul(*state, PRECISION_F32, flags, 129, 67, 513);
    }
}

static void check_bias(TwoDevices *two, size_t rows, size_t columns, bool accumulate) {
    Both dy = both_normal(two, rows * columns, 1), dbias = both_start(two, columns, accumulate);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->matrix->linear_weight_gradient(
            (Compute){PRECISION_F32, NULL}, (LinearShape){rows, columns, 0, NULL, 0}, dy.of[d],
            NULL, &(LinearGradient){.dbias = dbias.of[d], .add_dbias = accumulate});
    both_check(dbias, 2e-7, "the gradient of a bias alone");
    two_free(two);
}

static void test_bias(void **state) {
    for (int i = 0; i < SIZES * SIZES; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_bias(*state, sizes[i % SIZES] % 200, sizes[i / SIZES] % 200, accumulate);
    check_bias(*state, 4099, 37, false);
    check_bias(*state, 7, 1031, true); // more columns than one block sums
}

static void check_linear(TwoDevices *two, size_t rows, size_t out, size_t in, bool with_bias,
                         bool relu) {
    Both x = both_normal(two, rows * in, 1), w = both_normal(two, out * in, 2);
    Both bias = both_normal(two, out, 3), y = both_start(two, rows * out, false);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        size_t bytes = k->matrix->matmul_workspace(PRECISION_F32, rows, out, in);
        k->matrix->linear((Compute){PRECISION_F32, two_take(two, two->of[d], NULL, bytes)},
                          (LinearShape){rows, out, in, relu ? &(ReluMask){0} : NULL, 0}, x.of[d],
                          w.of[d], with_bias ? bias.of[d] : NULL, y.of[d]);
    }
    both_check(y, 1e-6, "linear");
    two_free(two);
}

static void test_linear(void **state) {
    for (int i = 0; i < SIZES * SIZES; i++)
        for (int flags = 0; flags < 4; flags++)
            check_linear(*state, sizes[i % SIZES] % 50, sizes[i / SIZES] % 50, 17, flags & 1,
                         flags & 2);
    check_linear(*state, 19, 23, 256, true, false); // up to 256, sums start from the bias;
    check_linear(*state, 19, 23, 257, true, false); // the bias is added to longer sums
}

// y = relu(x w' + b), and the gradients of w and b, through the relu, from the next layer.
static void check_linear_gradients(TwoDevices *two, size_t rows, size_t out, size_t in, int flags) {
    enum { NEXT = 5 }; // outputs of the next layer
    bool add_weight = flags & 1, add_bias = flags & 2;
    Both x = both_normal(two, rows * in, 1), w = both_normal(two, out * in, 2);
    Both bias = both_normal(two, out, 3), y = both_start(two, rows * out, false);
    Both next = both_normal(two, NEXT * out, 4), dnext = both_normal(two, rows * NEXT, 5);
    Both dy = both_start(two, rows * out, false), dw = both_start(two, out * in, add_weight);
    Both db = both_start(two, out, add_bias);
    for (int d = 0; d < DEVICES; d++) {
        const MatrixKernels *matrix = two_kernels(two, d)->matrix;
        const Compute how = {PRECISION_F32, NULL};
        ReluMask mask = {0};
        LinearShape shape = {rows, out, in, &mask, 0};
        mask.bits = two_take(two, two->of[d], NULL, matrix->relu_mask(PRECISION_F32, shape));
        matrix->linear(how, shape, x.of[d], w.of[d], bias.of[d], y.of[d]);
        assert_ptr_equal(mask.y, y.of[d]);
        matrix->linear_relu_gradient(how, (LinearShape){rows, NEXT, out, NULL, 0}, dnext.of[d],
                                     next.of[d], &mask, dy.of[d]);
        matrix->linear_weight_gradient(how, shape, dy.of[d], x.of[d],
                                       &(LinearGradient){dw.of[d], db.of[d], add_weight, add_bias});
    }
    both_check(y, 1e-6, "linear with relu");
    both_check(dy, 1e-6, "linear_relu_gradient");
    both_check(dw, 1e-6, "linear_weight_gradient");
    both_check(db, 1e-6, "the gradient of a bias with its weight");
    two_free(two);
}

static void test_linear_gradients(void **state) {
    const size_t lengths[] = {0, 1, 3, 17, 128, 130};
    for (int i = 0; i < 216; i++)
        check_linear_gradients(*state, lengths[i % 6], lengths[i / 6 % 6], lengths[i / 36], i % 4);
}

// ---- losses ----------------------------------------------------------------------------------

static void check_cross_entropy(TwoDevices *two, size_t n, size_t classes, bool accumulate) {
    float *values = two_normal(two, n * classes, 1);
    for (size_t i = 0; i < n * classes; i++) values[i] *= 20; // some probabilities underflow
    for (size_t i = 0; i < n; i += 2) // overflows unless the maximum is subtracted
        values[i * classes + classes - 1 - i / 2 % classes] += 200;
    int64_t *labels = two_take(two, NULL, NULL, n * sizeof *labels);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, i, (uint64_t)classes);
    Both logits = both_floats(two, values, n * classes);
    Both target = both_bytes(two, labels, n * sizeof *labels);
    Both upstream = both_floats(two, (const float[]){0.6f}, 1);
    Both p = both_start(two, n * classes, false), dx = both_start(two, n * classes, accumulate);
    Both loss = both_start(two, 1, false), correct = both_bytes(two, NULL, sizeof(int64_t));
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->loss->cross_entropy((Labels){target.of[d], n, classes}, logits.of[d], 2, p.of[d],
                               loss.of[d]);
        k->loss->cross_entropy_gradient((Labels){target.of[d], n, classes}, p.of[d],
                                        (Upstream){upstream.of[d], 2}, dx.of[d], accumulate);
        k->loss->count_correct((Labels){target.of[d], n, classes}, logits.of[d], correct.of[d]);
    }
    both_check(p, 1e-6, "cross_entropy probabilities");
    both_check(dx, 1e-6, "cross_entropy_gradient");
    both_check(loss, 1e-6, "cross_entropy");
    both_check_bytes(correct, "count_correct");
    two_free(two);
}

static void test_cross_entropy(void **state) {
    for (int i = 0; i < SIZES * SIZES; i++)
        check_cross_entropy(*state, sizes[i % SIZES] % 200, sizes[i / SIZES] % 200 + 1, i % 2);
    for (size_t classes = 1023; classes < 1026; classes++)
        check_cross_entropy(*state, 3, classes, classes % 2);
    check_cross_entropy(*state, 20011, 10, false);
    check_cross_entropy(*state, 1031, 1500, true);
}

static void check_answers(TwoDevices *two, size_t n, size_t classes, bool weighted) {
    float *values = two_normal(two, n * classes, 1), *wanted = two_normal(two, n * classes, 2);
    float *weights = two_normal(two, classes, 3);
    int64_t *labels = two_take(two, NULL, NULL, n * sizeof *labels);
    for (size_t i = 0; i < n; i++)
        labels[i] = (int64_t)rng_below(2, RNG_STREAM_TEST, i, (uint64_t)classes + 1); // or invalid
    for (size_t i = 0; i < n * classes; i++) {
        values[i] *= 20;
        wanted[i] = wanted[i] < 0 ? 0 : fminf(wanted[i], 1);
    }
    for (size_t j = 0; j < classes; j++) weights[j] = fabsf(weights[j]);
    Both logits = both_floats(two, values, n * classes),
         target = both_floats(two, wanted, n * classes);
    Both weight = both_floats(two, weights, classes),
         upstream = both_floats(two, (const float[]){0.6f}, 1);
    Both given = both_bytes(two, labels, n * sizeof *labels),
         hot = both_start(two, n * classes, false);
    Both loss = both_start(two, 1, false), dx = both_start(two, n * classes, n % 2);
    for (int d = 0; d < DEVICES; d++) {
        const Answers answers = {logits.of[d], target.of[d], weighted ? weight.of[d] : NULL, n,
                                 classes};
        const Kernels *k = two_kernels(two, d);
        k->loss->binary_cross_entropy(&answers, 2, loss.of[d]);
        k->loss->binary_cross_entropy_gradient(&answers, (Upstream){upstream.of[d], 2}, dx.of[d],
                                               n % 2);
        k->loss->one_hot(given.of[d], hot.of[d], n, classes);
    }
    both_check(loss, 1e-6, "binary_cross_entropy");
    both_check(dx, 1e-6, "binary_cross_entropy_gradient");
    both_check_bytes(hot, "one_hot");
    two_free(two);
}

static void test_answers(void **state) {
    for (int i = 0; i < SIZES * SIZES; i += 2)
        check_answers(*state, sizes[i % SIZES] % 200, sizes[i / SIZES] % 200 + 1, i % 3);
    check_answers(*state, 2011, 10, true);
}

// Invalid labels, NaN among the logits, equal logits, and an empty batch.
static void test_odd_losses(void **state) {
    TwoDevices *two = *state;
    enum { ROWS = 8, CLASSES = 3 };
    const float logits[ROWS][CLASSES] = {{1, 2, 3},   {2, 2, 1},   {2, 2, 1},        {NAN, 1, 0},
                                         {1, 0, NAN}, {1, NAN, 2}, {INFINITY, 1, 1}, {5, 4, 3}};
    const int64_t labels[ROWS] = {2, 0, 1, 0, 0, 1, 0, 0}; // rows 0, 1, 6 and 7 are hits
    const int64_t no_class[2][2] = {{2, 3}, {-1, 0}};
    Both x = both_floats(two, logits[0], ROWS * CLASSES);
    Both target = both_bytes(two, labels, sizeof labels), p = both_start(two, 6, false);
    Both correct = both_bytes(two, NULL, sizeof(int64_t)), loss = both_start(two, 1, false);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        k->loss->count_correct((Labels){target.of[d], ROWS, CLASSES}, x.of[d], correct.of[d]);
        assert_int_equal(*(int64_t *)both_read(correct, d, sizeof(int64_t)), 4);
        for (int i = 0; i < 2; i++) {
            Both wrong = both_bytes(two, no_class[i], sizeof no_class[i]);
            k->loss->cross_entropy((Labels){wrong.of[d], 2, CLASSES}, x.of[d], 1, p.of[d],
                                   loss.of[d]);
            assert_true(isnan(*(float *)both_read(loss, d, sizeof(float))));
        }
        k->loss->cross_entropy((Labels){target.of[d], 2, CLASSES}, x.of[d], 0, p.of[d], loss.of[d]);
        assert_true(*(float *)both_read(loss, d, sizeof(float)) == 0);
        k->loss->cross_entropy((Labels){target.of[d], 0, CLASSES}, x.of[d], 5, p.of[d], loss.of[d]);
        assert_true(*(float *)both_read(loss, d, sizeof(float)) == 0);
    }
    both_check(p, 1e-6, "probabilities");
    two_free(two);
}

int main(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_vectors, &two),
        cmocka_unit_test_prestate(test_relu_of_nan, &two),
        cmocka_unit_test_prestate(test_linear_relu_of_nan, &two),
        cmocka_unit_test_prestate(test_count_up, &two),
        cmocka_unit_test_prestate(test_halves, &two),
        cmocka_unit_test_prestate(test_slices, &two),
        cmocka_unit_test_prestate(test_optimizers, &two),
        cmocka_unit_test_prestate(test_peers, &two),
        cmocka_unit_test_prestate(test_matmul, &two),
        cmocka_unit_test_prestate(test_bias, &two),
        cmocka_unit_test_prestate(test_linear, &two),
        cmocka_unit_test_prestate(test_linear_gradients, &two),
        cmocka_unit_test_prestate(test_cross_entropy, &two),
        cmocka_unit_test_prestate(test_answers, &two),
        cmocka_unit_test_prestate(test_odd_losses, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
