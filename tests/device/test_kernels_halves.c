/* test_kernels_halves.c: a device's kernels for 16-bit tensors against the reference. The device is
 * the argument; "cpu" has none and is skipped.
 */
#include "tests/rigs/half_tensors.h"

// ---- elements ---------------------------------------------------------------------------------

static void check_turns(TwoDevices *two, Precision p, ImageSizes of, bool accumulate) {
    size_t count = of.n * of.c * of.inner;
    Both x = both_normal(two, count, 1), half = half_start(two, p, count, accumulate);
    Both wide = both_start(two, count, accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        k->narrow(p, of, x.of[d], half.of[d], accumulate);
        k->widen(p, of, half.of[d], wide.of[d], accumulate);
    }
    half_check(half, p, 0, "narrow");
    both_check(wide, 0, "widen");
    two_free(two);
}

static void turns(void **state) {
    const ImageSizes shapes[] = {{1, 1, 1},    {2, 3, 1025}, {3, 4, 513}, {5, 5, 9},   {2, 16, 128},
                                 {1, 16, 129}, {3, 17, 63},  {2, 32, 64}, {1, 33, 65}, {4, 64, 64},
                                 {16, 3, 9},   {0, 2, 3},    {7, 65, 1},  {5, 1, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_turns(*state, type_of(*state, i % 2), shapes[i], accumulate);
}

static void check_elements(TwoDevices *two, Precision p, size_t count) {
    float *values = two_normal(two, count, 1);
    for (size_t i = 0; i < count; i++) values[i] = i % 5 == 0 ? 0 : values[i];
    Both x = half_floats(two, p, values, count), dy = half_normal(two, p, count, 2);
    Both sum = half_start(two, p, count, false), relu = half_start(two, p, count, false);
    Both dx = half_start(two, p, count, false), more = half_start(two, p, count, true);
    Both gelu = half_start(two, p, count, false), dgelu = half_start(two, p, count, false);
    Both added = half_start(two, p, count, true), wide = both_start(two, count, true);
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        const HalfActivation relu_of = {p, ACTIVATION_RELU}, gelu_of = {p, ACTIVATION_GELU};
        k->add(p, sum.of[d], x.of[d], dy.of[d], count);
        k->activation(relu_of, relu.of[d], x.of[d], count);
        k->activation_gradient(relu_of, dx.of[d], relu.of[d], dy.of[d], count, false);
        k->activation_gradient(relu_of, more.of[d], relu.of[d], dy.of[d], count, true);
        k->activation(gelu_of, gelu.of[d], x.of[d], count);
        k->activation_gradient(gelu_of, dgelu.of[d], x.of[d], dy.of[d], count, false);
        k->activation_gradient(gelu_of, added.of[d], x.of[d], dy.of[d], count, true);
        k->add_to(p, wide.of[d], wide.of[d], x.of[d], count);
        k->activation_gradient(relu_of, dy.of[d], relu.of[d], dy.of[d], count, false);
    }
    half_check(sum, p, 0, "add");
    half_check(relu, p, 0, "relu");
    half_check(gelu, p, 1, "gelu");
    half_check(dgelu, p, 1, "gelu_gradient");
    half_check(added, p, 1, "gelu_gradient, added");
    both_check(wide, 0, "add_to");
    half_check(dx, p, 0, "relu_gradient");
    half_check(more, p, 0, "relu_gradient, added");
    half_check(dy, p, 0, "relu_gradient, in place");
    two_free(two);
}

static void elements(void **state) {
    const size_t counts[] = {0, 1, 7, 8, 1021, 70000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int p = type_of(*state, false); p <= PRECISION_F16; p++)
            check_elements(*state, (Precision)p, counts[i]);
}

// ---- layer norm -------------------------------------------------------------------------------

enum { WITH_BRANCH = 1, ADD = 2, WANT_DX = 4, WANT_DW = 8, WANT_DB = 16, FLAGS = 32 };

static void check_layer_norm(TwoDevices *two, Precision p, size_t rows, size_t channels,
                             int flags) {
    const bool branched = flags & WITH_BRANCH, add = flags & ADD;
    const bool want[] = {flags & WANT_DX, flags & WANT_DW, flags & WANT_DB};
    const size_t count = rows * channels;
    float *values = two_normal(two, count, 1);
    for (size_t i = 0; i < count; i++) values[i] = 3 + 2 * values[i];
    Both x = both_floats(two, values, count), branch = half_normal(two, p, count, 2);
    Both sum = both_start(two, count, !branched), y = half_start(two, p, count, false);
    Both weight = both_normal(two, channels, 3), bias = both_normal(two, channels, 4);
    Both mean = both_start(two, rows, false), invstd = both_start(two, rows, false);
    Both dy = half_normal(two, p, count, 5), dx = both_start(two, count, add || !want[0]);
    Both dw = both_start(two, channels, add || !want[1]);
    Both db = both_start(two, channels, add || !want[2]);
    Both dbranch = half_start(two, p, count, !(want[0] && branched));
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        LayerNorm norm = {x.of[d],    rows,       channels,     weight.of[d],
                          bias.of[d], mean.of[d], invstd.of[d], 1e-5f};
        k->layer_norm(p, &norm, branched ? branch.of[d] : NULL, sum.of[d], y.of[d]);
        if (branched) norm.x = sum.of[d];
        const NormGradient to = {want[0] ? dx.of[d] : NULL,
                                 want[1] ? dw.of[d] : NULL,
                                 want[2] ? db.of[d] : NULL,
                                 add,
                                 add,
                                 add};
        k->layer_norm_gradient(p, &norm, dy.of[d], &to, want[0] && branched ? dbranch.of[d] : NULL);
    }
    both_check(sum, 0, "layer_norm sum");
    both_check(mean, 1e-6, "layer_norm mean");
    both_check(invstd, 1e-6, "layer_norm invstd");
    half_check(y, p, 1, "layer_norm");
    both_check(dx, 3e-6, "layer_norm dx");
    both_check(dw, 1e-6, "layer_norm dweight");
    both_check(db, 1e-6, "layer_norm dbias");
    half_check(dbranch, p, 1, "layer_norm dbranch");
    two_free(two);
}

// Also more columns than threads of a block (1600, 1025), more rows than one group of blocks takes
// (301), and more than all blocks take at once (2100).
static void layer_norms(void **state) {
    const size_t cases[][2] = {{0, 5},    {3, 3},    {7, 17},   {33, 64},  {5, 129},
                               {67, 768}, {301, 35}, {9, 1600}, {2, 1025}, {2100, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int flags = 0; flags < FLAGS; flags++)
            check_layer_norm(*state, type_of(*state, flags % 3), cases[i][0], cases[i][1], flags);
}

// ---- linear -----------------------------------------------------------------------------------

typedef struct Layer {
    LinearShape shape;
    Precision precision;
    bool with_bias, relu, accumulate;
    Both x, narrow, bias, y, dy, dweight, dbias, dx; // narrow: weight and bias
    ReluMask mask[DEVICES];                          // of y
    void *workspace[DEVICES];
} Layer;

static void layer_open(TwoDevices *two, Layer *l) {
    const LinearShape s = l->shape;
    Precision p = l->precision;
    l->x = half_normal(two, p, s.rows * s.in, 1);
    Both weight = both_normal(two, s.out * s.in, 2);
    l->narrow = half_start(two, p, linear_narrow_count(s), true);
    l->bias = both_normal(two, s.out, 3);
    l->dy = half_normal(two, p, s.rows * s.out, 4);
    l->y = half_start(two, p, s.rows * s.out, false);
    l->dx = half_start(two, p, s.rows * s.in, l->accumulate);
    l->dweight = both_start(two, s.out * s.in, l->accumulate);
    l->dbias = both_start(two, s.out, l->accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        l->workspace[d] = two_take(two, two->of[d], NULL, k->halves->linear_workspace(p, s));
        l->mask[d].bits = two_take(two, two->of[d], NULL, k->matrix->relu_mask(p, s));
        k->halves->narrow_linear(p, s, weight.of[d], l->with_bias ? l->bias.of[d] : NULL,
                                 l->narrow.of[d]);
    }
}

static void layer_run(const TwoDevices *two, int d, Layer *l) {
    const HalfKernels *k = two_kernels(two, d)->halves;
    const Compute how = {l->precision, l->workspace[d]};
    LinearShape s = l->shape;
    s.relu = l->relu ? &l->mask[d] : NULL;
    k->linear(how, s, l->x.of[d], l->narrow.of[d], l->with_bias ? l->bias.of[d] : NULL, l->y.of[d]);
    k->linear_weight_gradient(how, s, l->dy.of[d], l->x.of[d],
                              &(LinearGradient){l->dweight.of[d],
                                                l->with_bias ? l->dbias.of[d] : NULL, l->accumulate,
                                                l->accumulate});
    k->linear_input_gradient(how, s, l->dy.of[d], l->narrow.of[d], NULL, l->dx.of[d],
                             l->accumulate);
}

// A library without a fused bias rounds the product before it adds the bias: twice the tolerance.
static void layer_check(const Layer *l) {
    const double rounding = l->precision == PRECISION_F16 ? 0x1p-10 : 1e-6;
    half_check(l->narrow, l->precision, 0, "narrow_linear");
    half_check(l->y, l->precision, l->with_bias ? 2 : 1, "linear");
    half_check(l->dx, l->precision, 1, "linear_input_gradient");
    both_check(l->dweight, rounding, "linear_weight_gradient");
    if (l->with_bias) both_check(l->dbias, rounding, "the bias's gradient");
}

// Returns whether output i is so near 0 that rounding before the bias is added may change its sign.
// There a library's mask may disagree with its y (cuBLASLt's does, in bfloat16).
static bool is_at_zero(const Layer *l, size_t i) {
    const LinearShape s = l->shape;
    const float *row = half_read(l->x, REF, l->precision) + i / s.out * s.in;
    const float *narrow = half_read(l->narrow, REF, l->precision); // weight, then bias
    double sum = 0, unit = l->precision == PRECISION_F16 ? 0x1p-11 : 0x1p-8;
    for (size_t k = 0; k < s.in; k++) sum += (double)row[k] * (double)narrow[i % s.out * s.in + k];
    const float bias = l->with_bias ? narrow[linear_narrow_bias(s) + i % s.out] : 0;
    return fabs(sum + (double)bias) <= unit * fabs(sum);
}

// The gradient of a layer that follows y's relu is masked where y is 0.
static void check_cut(TwoDevices *two, Layer *l) {
    enum { NEXT = 5 };
    const LinearShape s = {l->shape.rows, NEXT, l->shape.out, NULL, 0};
    Both dnext = half_normal(two, l->precision, s.rows * NEXT, 6);
    Both next = half_normal(two, l->precision, NEXT * s.in, 7);
    Both cut = half_start(two, l->precision, s.rows * s.in, false);
    for (int d = 0; d < DEVICES; d++)
        two_kernels(two, d)->halves->linear_input_gradient((Compute){l->precision, l->workspace[d]},
                                                           s, dnext.of[d], next.of[d], &l->mask[d],
                                                           cut.of[d], false);
    const float *y = half_read(l->y, TESTED, l->precision);
    const float *y_of_ref = half_read(l->y, REF, l->precision);
    const uint16_t *got = both_read(cut, TESTED, cut.bytes);
    uint16_t *wanted = both_read(cut, REF, cut.bytes);
    for (size_t i = 0; i < s.rows * s.in; i++) {
        bool kept = from_half(l->precision, got[i]) != 0;
        if ((y[i] > 0) == (y_of_ref[i] > 0) && (y[i] > 0 || !kept)) continue;
        if (!is_at_zero(l, i)) fail_msg("element %zu: y and its mask differ", i);
        wanted[i] = got[i];
    }
    device_copy(two->of[REF], cut.of[REF], NULL, wanted, cut.bytes);
    half_check(cut, l->precision, 1, "linear_input_gradient, cut");
}

static void compare_layer(TwoDevices *two, Layer l) {
    layer_open(two, &l);
    for (int d = 0; d < DEVICES; d++) layer_run(two, d, &l);
    layer_check(&l);
    if (l.relu) check_cut(two, &l);
    two_free(two);
}

static void layers(void **state) {
    const size_t sizes[][3] = {{1, 1, 1},     {7, 13, 5}, {64, 10, 257}, {3, 1, 31}, {1, 17, 2},
                               {33, 150, 40}, {8, 16, 8}, {0, 5, 3},     {5, 0, 3},  {4, 5, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t flags = 0; flags < 16; flags++)
            compare_layer(*state, (Layer){.shape = {sizes[i][0], sizes[i][1], sizes[i][2], NULL, 0},
                                          .precision = type_of(*state, flags & 8),
                                          .with_bias = flags & 1,
                                          .relu = flags & 2,
                                          .accumulate = flags & 4});
}

// NaN must propagate through cuBLASLt's relu.
static void a_layer_keeps_nan(void **state) {
    TwoDevices *two = *state;
    Layer l = {{4, 16, 8, NULL, 0}, type_of(two, false), .with_bias = true, .relu = 1};
    layer_open(two, &l);
    float *values = two_normal(two, 4 * 8, 1);
    values[2 * 8 + 3] = NAN; // makes row 2 NaN
    l.x = half_floats(two, l.precision, values, 4 * 8);
    layer_run(two, TESTED, &l);
    const float *y = half_read(l.y, TESTED, l.precision);
    for (size_t i = 0; i < 4 * 16; i++)
        if ((i / 16 == 2) != (bool)isnan(y[i])) fail_msg("y[%zu] is %g", i, (double)y[i]);
    two_free(two);
}

// ---- attention --------------------------------------------------------------------------------

static void check_attention(TwoDevices *two, Attention of, Precision p, bool add) {
    size_t count = of.batch * of.length * of.heads * of.size;
    Both qkv = half_normal(two, p, 3 * count, 1), dy = half_normal(two, p, count, 2);
    Both y = half_start(two, p, count, false), dqkv = half_start(two, p, 3 * count, add);
    for (int d = 0; d < DEVICES; d++) {
        const Kernels *k = two_kernels(two, d);
        void *saved = two_take(two, two->of[d], NULL, k->transformer->attention_saved(&of));
        size_t room = k->transformer->attention_workspace(p, &of);
        const Compute how = {p, two_take(two, two->of[d], NULL, room)};
        k->halves->attention(how, &of, qkv.of[d], y.of[d], saved);
        k->halves->attention_gradient(how, &of, qkv.of[d], y.of[d], saved, dy.of[d], dqkv.of[d],
                                      add);
    }
    half_check(y, p, 1, "attention");
    half_check(dqkv, p, 1, "attention_gradient");
    two_free(two);
}

static void attention(void **state) {
    const Attention cases[] = {{0, 5, 2, 4},   {2, 0, 2, 4},   {1, 1, 1, 1},   {2, 5, 3, 7},
                               {3, 32, 2, 8},  {1, 63, 2, 16}, {1, 65, 1, 32}, {1, 131, 1, 5},
                               {1, 40, 1, 64}, {1, 9, 1, 128}, {2, 70, 2, 24}, {1, 131, 1, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int flags = 0; flags < 4; flags++)
            check_attention(*state, cases[i], type_of(*state, flags & 1), flags & 2);
}

// ---- convolution ------------------------------------------------------------------------------

static Window window_of(size_t n, size_t c, size_t h, size_t w, size_t k, size_t kernel) {
    return (Window){.n = n, .c = c, .h = h, .w = w, .k = k, .kernel = kernel, .stride = 1};
}

// Sets stride and padding, and computes the output's size.
static Window strided(Window v, size_t stride, size_t pad) {
    v.stride = stride;
    v.pad = pad;
    v.oh = (v.h + 2 * pad - v.kernel) / stride + 1;
    v.ow = (v.w + 2 * pad - v.kernel) / stride + 1;
    return v;
}

typedef struct Convolution {
    Window window;
    Precision precision;
    bool with_bias, accumulate;
    Both x, weight, bias, y, dy, dx, dweight, dbias;
    void *workspace[DEVICES];
} Convolution;

static void convolution_open(TwoDevices *two, Convolution *c) {
    const Window *v = &c->window;
    Precision p = c->precision;
    size_t x = v->n * v->c * v->h * v->w, y = v->n * v->k * v->oh * v->ow;
    size_t weight = v->k * v->c * v->kernel * v->kernel;
    c->x = half_normal(two, p, x, 1);
    c->weight = half_normal(two, p, weight, 2);
    c->bias = both_normal(two, v->k, 3);
    c->dy = half_normal(two, p, y, 4);
    c->y = half_start(two, p, y, false);
    c->dx = half_start(two, p, x, c->accumulate);
    c->dweight = both_start(two, weight, c->accumulate);
    c->dbias = both_start(two, v->k, c->accumulate);
    for (int d = 0; d < DEVICES; d++)
        c->workspace[d] =
            two_take(two, two->of[d], NULL, two_kernels(two, d)->halves->conv2d_workspace(p, v));
}

static void convolution_run(const TwoDevices *two, int d, const Convolution *c) {
    const HalfKernels *k = two_kernels(two, d)->halves;
    const Compute how = {c->precision, c->workspace[d]};
    const Window *v = &c->window;
    k->conv2d(how, v, c->x.of[d], c->weight.of[d], c->with_bias ? c->bias.of[d] : NULL, c->y.of[d]);
    k->conv2d_input_gradient(how, v, c->weight.of[d], c->dy.of[d], c->dx.of[d], c->accumulate);
    k->conv2d_weight_gradient(how, v, c->x.of[d], c->dy.of[d], c->dweight.of[d], c->accumulate);
    k->conv2d_bias_gradient(c->precision, v, c->dy.of[d], c->dbias.of[d], c->accumulate);
}

// With a bias, a library may round once more before it adds the bias.
static void convolution_check(const Convolution *c) {
    double unit = c->precision == PRECISION_F16 ? 0x1p-10 : 0x1p-7;
    half_check(c->y, c->precision, c->with_bias ? 2 : 1, "conv2d");
    half_check(c->dx, c->precision, 1, "conv2d_input_gradient");
    both_check(c->dweight, unit, "conv2d_weight_gradient");
    both_check(c->dbias, unit, "conv2d_bias_gradient");
}

static void compare_convolution(TwoDevices *two, Convolution c) {
    convolution_open(two, &c);
    for (int d = 0; d < DEVICES; d++) convolution_run(two, d, &c);
    convolution_check(&c);
    two_free(two);
}

static void convolutions(void **state) {
    const Window windows[] = {
        strided(window_of(3, 2, 7, 5, 4, 3), 1, 1), // the common case
        strided(window_of(2, 3, 9, 8, 5, 3), 2, 1), // a last column outside all windows
        strided(window_of(2, 5, 4, 6, 3, 1), 1, 0), // a matrix product
        strided(window_of(2, 3, 5, 5, 2, 1), 2, 0), // pixels outside all windows
        strided(window_of(1, 1, 1, 1, 1, 1), 1, 0), // all sizes are 1
        strided(window_of(2, 1, 3, 2, 2, 5), 3, 3), // a kernel larger than the image
        strided(window_of(1, 2, 11, 13, 3, 4), 3, 2), strided(window_of(2, 16, 8, 8, 32, 3), 1, 1),
        strided(window_of(0, 2, 5, 5, 3, 3), 1, 1), // no images
        strided(window_of(2, 2, 5, 5, 0, 3), 1, 1), // no outputs
        strided(window_of(2, 0, 5, 5, 3, 3), 1, 1), // no input channels: only the bias
    };
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (size_t flags = 0; flags < 4; flags++)
            compare_convolution(*state,
                                (Convolution){.window = windows[i],
                                              .precision = type_of(*state, (flags + i) % 3 == 0),
                                              .with_bias = flags & 1,
                                              .accumulate = flags & 2});
}

// Without cuDNN's convolution, the columns of all images exceed im2col's buffer (64 MiB): the
// images are processed in three parts, the last of them smaller.
static void a_convolution_in_parts(void **state) {
    Window window = strided(window_of(5, 1, 303, 301, 1, 9), 1, 4);
    compare_convolution(*state, (Convolution){window, type_of(*state, false)});
}

// A graph recorded after a first call repeats the call on the current contents of x: recording must
// not allocate, query or wait.
static void a_recorded_step(void **state) {
    TwoDevices *two = *state;
    Error err = {0};
    Device *device = two->of[TESTED];
    Convolution c = {strided(window_of(2, 3, 6, 5, 2, 3), 1, 1), type_of(two, false), true};
    convolution_open(two, &c);
    convolution_run(two, TESTED, &c);
    CHECK_OK(device_graph_begin(device, &err) == 0, err);
    convolution_run(two, TESTED, &c);
    DeviceGraph *graph = device_graph_end(device, &err);
    CHECK_OK(graph, err);
    Both other = half_normal(two, c.precision, c.x.bytes / sizeof(uint16_t), 8);
    for (int d = 0; d < DEVICES; d++)
        device_copy(two->of[d], c.x.of[d], two->of[d], other.of[d], other.bytes);
    device_graph_launch(device, graph);
    convolution_run(two, REF, &c);
    convolution_check(&c);
    device_graph_close(device, graph);
    two_free(two);
}

// ---- windows without weights ------------------------------------------------------------------

static void check_pools(TwoDevices *two, Precision p, Window v, bool accumulate) {
    v.k = v.c;
    size_t inputs = v.n * v.c * v.h * v.w, outputs = v.n * v.c * v.oh * v.ow;
    float *values = two_normal(two, inputs, 1);
    for (size_t i = 0; i < inputs; i++) values[i] = roundf(values[i]); // many equal values
    Both x = half_floats(two, p, values, inputs), dy = half_normal(two, p, outputs, 2);
    Both max = half_start(two, p, outputs, false), dmax = half_start(two, p, inputs, accumulate);
    Both avg = half_start(two, p, outputs, false), davg = half_start(two, p, inputs, accumulate);
    Both chosen = both_bytes(two, NULL, outputs * sizeof(int32_t));
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        k->max_pool(p, &v, x.of[d], max.of[d], chosen.of[d]);
        k->max_pool_gradient(p, &v, chosen.of[d], dy.of[d], dmax.of[d], accumulate);
        k->avg_pool(p, &v, x.of[d], avg.of[d]);
        k->avg_pool_gradient(p, &v, dy.of[d], davg.of[d], accumulate);
    }
    both_check_bytes(chosen, "max_pool's choice");
    half_check(max, p, 0, "max_pool");
    half_check(dmax, p, 1, "max_pool_gradient");
    half_check(avg, p, 1, "avg_pool");
    half_check(davg, p, 1, "avg_pool_gradient");
    two_free(two);
}

static void check_shortcut(TwoDevices *two, Precision p, Window v, bool accumulate) {
    size_t inputs = v.n * v.c * v.h * v.w, outputs = v.n * v.k * v.oh * v.ow;
    Both x = half_normal(two, p, inputs, 1), dy = half_normal(two, p, outputs, 2);
    Both y = half_start(two, p, outputs, false), dx = half_start(two, p, inputs, accumulate);
    Both up = half_start(two, p, 4 * inputs, false), dz = half_normal(two, p, 4 * inputs, 3);
    Both dup = half_start(two, p, inputs, accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        k->shortcut(p, &v, x.of[d], y.of[d]);
        k->shortcut_gradient(p, &v, dy.of[d], dx.of[d], accumulate);
        k->upsample2x(p, &v, x.of[d], up.of[d]);
        k->upsample2x_gradient(p, &v, dz.of[d], dup.of[d], accumulate);
    }
    half_check(y, p, 0, "shortcut");
    half_check(dx, p, 0, "shortcut_gradient");
    half_check(up, p, 0, "upsample2x");
    half_check(dup, p, 1, "upsample2x_gradient");
    two_free(two);
}

static void windows(void **state) {
    for (size_t i = 0; i < 3 * 2 * 2 * 2 * 2; i++) {
        Precision p = type_of(*state, i % 2);
        Window v = window_of(i / 2 % 2 * 3, i / 4 % 2 ? 8 : 3, 7, 9, 0, i / 8 % 2 + 2);
        check_pools(*state, p, strided(v, i / 16 + 1, v.kernel / 2), i / 8 % 2);
        v.kernel = 1;
        v.k = v.c + i / 16 * 4;
        check_shortcut(*state, p, strided(v, i / 16 + 1, 0), i / 8 % 2);
    }
}

// ---- batch norm -------------------------------------------------------------------------------

typedef struct Norm {
    Precision precision;
    ImageSizes of;
    bool relu, residual, accumulate, no_dx;
} Norm;

static void check_norm(TwoDevices *two, Norm t) {
    Precision p = t.precision;
    size_t c = t.of.c, count = t.of.n * c * t.of.inner;
    Both x = half_normal(two, p, count, 1), residual = half_normal(two, p, count, 2);
    Both weight = both_normal(two, c, 3), bias = both_normal(two, c, 4);
    Both mean = both_start(two, c, true), invstd = both_start(two, c, true);
    float *ones = two_normal(two, c, 5);
    for (size_t i = 0; i < c; i++) ones[i] = fabsf(ones[i]) + 1;
    Both running = both_output(two, two_normal(two, c, 6), c), var = both_output(two, ones, c);
    Both batches = both_bytes(two, &(int64_t){41}, sizeof(int64_t));
    Both y = half_start(two, p, count, false), eval = half_start(two, p, count, false);
    Both dy = half_normal(two, p, count, 7), dx = half_start(two, p, count, t.accumulate);
    Both dweight = both_start(two, c, t.accumulate), dbias = both_start(two, c, t.accumulate);
    for (int d = 0; d < DEVICES; d++) {
        const HalfKernels *k = two_kernels(two, d)->halves;
        BatchNorm of = {.n = t.of.n,
                        .c = c,
                        .inner = t.of.inner,
                        .weight = weight.of[d],
                        .bias = bias.of[d],
                        .mean = mean.of[d],
                        .invstd = invstd.of[d],
                        .running_mean = running.of[d],
                        .running_var = var.of[d],
                        .momentum = 0.1f,
                        .eps = 1e-5f,
                        .num_batches_tracked = batches.of[d],
                        .relu = t.relu};
        HalfNorm norm = {of, x.of[d], t.residual ? residual.of[d] : NULL, y.of[d]};
        k->batch_norm(p, &norm, y.of[d]);
        k->batch_norm_eval(p, &norm, eval.of[d]);
        const NormGradient to = {.dweight = dweight.of[d],
                                 .dbias = dbias.of[d],
                                 .add_dx = t.accumulate,
                                 .add_dweight = t.accumulate,
                                 .add_dbias = t.accumulate};
        k->batch_norm_gradient(p, &norm, dy.of[d], t.no_dx ? NULL : dx.of[d], &to);
    }
    if (count > 0) both_check(mean, 1e-6, "mean"), both_check(invstd, 1e-6, "invstd");
    both_check(running, 1e-6, "running_mean");
    both_check(var, 1e-6, "running_var");
    both_check_bytes(batches, "num_batches_tracked");
    half_check(y, p, t.residual ? 2 : 1, "batch_norm");
    half_check(eval, p, t.residual ? 2 : 1, "batch_norm_eval");
    if (!t.no_dx) half_check(dx, p, 1, "dx");
    both_check(dweight, 2e-6, "dweight");
    both_check(dbias, 2e-6, "dbias");
    two_free(two);
}

static void norms(void **state) {
    const ImageSizes shapes[] = {{2, 1, 1},   {3, 5, 7},    {2, 16, 64}, {1, 33, 129},
                                 {4, 64, 49}, {67, 3, 130}, {0, 4, 9},   {2, 0, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t flags = 0; flags < 8; flags++)
            check_norm(*state, (Norm){.precision = type_of(*state, (flags + i) % 3 == 0),
                                      .of = shapes[i],
                                      .relu = flags & 1,
                                      .residual = (flags & 3) == 3,
                                      .accumulate = flags & 4,
                                      .no_dx = flags == 6});
}

// A batch norm over two ranks that have the same batch, step by step.
static void ranks_step(const TwoDevices *two, int d, Precision p, const HalfNorm *norm,
                       const Both *dy, Both tensors[4]) {
    const Kernels *k = two_kernels(two, d);
    const BatchNorm *of = &norm->of;
    float *sums = tensors[0].of[d];
    double *count = tensors[1].of[d];
    uint16_t *y = tensors[2].of[d], *dx = tensors[3].of[d];
    k->halves->batch_norm_statistics(p, norm);
    k->halves->batch_norm_apply(p, norm, y);
    k->halves->batch_norm_gradient_sums(p, norm, dy->of[d], sums, &(NormGradient){0});
    if (of->n * of->inner > 0)
        k->halves->batch_norm_gradient_apply(p, norm, dy->of[d], sums, count, dx,
                                             &(NormGradient){.add_dx = true});
}

static void check_ranks(TwoDevices *two, Precision p, ImageSizes of) {
    size_t count = of.n * of.c * of.inner;
    double elements = 2 * (double)(of.n * of.inner);
    Both x = half_normal(two, p, count, 1), dy = half_normal(two, p, count, 2);
    Both weight = both_normal(two, of.c, 3), bias = both_normal(two, of.c, 4);
    Both mean = both_start(two, of.c, false), invstd = both_start(two, of.c, false);
    Both tensors[] = {both_start(two, 2 * of.c, false), both_bytes(two, &elements, sizeof elements),
                      half_start(two, p, count, false), half_start(two, p, count, true)};
    for (int d = 0; d < DEVICES; d++) {
        const BatchNorm plain = {.n = of.n,
                                 .c = of.c,
                                 .inner = of.inner,
                                 .weight = weight.of[d],
                                 .bias = bias.of[d],
                                 .mean = mean.of[d],
                                 .invstd = invstd.of[d],
                                 .eps = 1e-5f};
        ranks_step(two, d, p, &(HalfNorm){.of = plain, .x = x.of[d]}, &dy, tensors);
    }
    both_check(mean, 1e-6, "a rank's mean");
    both_check(invstd, 1e-6, "a rank's invstd");
    both_check(tensors[0], 2e-6, "batch_norm_gradient_sums");
    half_check(tensors[2], p, 1, "batch_norm_apply");
    half_check(tensors[3], p, 1, "batch_norm_gradient_apply");
    two_free(two);
}

static void norms_over_ranks(void **state) {
    const ImageSizes shapes[] = {{2, 1, 1},   {3, 5, 7},    {2, 16, 64}, {1, 33, 129},
                                 {4, 64, 49}, {67, 3, 130}, {0, 4, 9},   {2, 0, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int p = type_of(*state, false); p <= PRECISION_F16; p++)
            check_ranks(*state, (Precision)p, shapes[i]);
}

int main(int argc, char **argv) {
    TwoDevices two = half_open(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(turns, &two),
        cmocka_unit_test_prestate(elements, &two),
        cmocka_unit_test_prestate(layer_norms, &two),
        cmocka_unit_test_prestate(layers, &two),
        cmocka_unit_test_prestate(a_layer_keeps_nan, &two),
        cmocka_unit_test_prestate(attention, &two),
        cmocka_unit_test_prestate(convolutions, &two),
        cmocka_unit_test_prestate(a_convolution_in_parts, &two),
        cmocka_unit_test_prestate(a_recorded_step, &two),
        cmocka_unit_test_prestate(windows, &two),
        cmocka_unit_test_prestate(norms, &two),
        cmocka_unit_test_prestate(norms_over_ranks, &two),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    two_close(&two);
    return failed;
}
