/* recorder.c: the launches, operations and bytes of each entry of a GPU's kernel tables, as read
 * from the sources of its CUDA kernels; comments below derive the numbers that are not obvious.
 */
#include "bench/account/recorder.h"

#include <string.h>

#include "common/base/memory.h"

enum { OPERATIONS_MAX = 128 };
enum { HALF = 2, FLOAT = 4 }; // bytes of an element
enum { BLOCK = 256, WARP = 32 };
enum { GELU_OPERATIONS = 20 };    // tanh by an exponential and a division, and a cubic polynomial
enum { SOFTMAX_OPERATIONS = 24 }; // of attention: scale, mask, maximum, expf, sum, round, shuffles
enum { MMA_ROWS = 16, MMA_COLUMNS = 32 }; // of a warp and a tile in attention/mma.cu

struct Recorder {
    Device *device;
    bool tensor_cores;
    const Kernels *own; // the device's
    Kernels kernels;
    ElementwiseKernels elementwise;
    SliceKernels slices;
    MatrixKernels matrix;
    ConvolutionKernels convolution;
    NormKernels norm;
    LossKernels loss;
    PixelKernels pixels;
    TransformerKernels transformer;
    HalfKernels halves;
    OptimizerKernels optimizer;
    Operation operations[OPERATIONS_MAX];
    size_t count;
};

// Kernel functions have no parameter for their device (kernels.h), so the recorder is found here.
static Recorder *recording;

static void note(Operation operation) {
    Recorder *r = recording;
    operation.times = 1;
    for (size_t i = 0; i < r->count; i++) {
        Operation *known = &r->operations[i];
        if (strcmp(known->kernel, operation.kernel) == 0 && known->m == operation.m &&
            known->n == operation.n && known->k == operation.k && known->bytes == operation.bytes &&
            known->launches == operation.launches) {
            known->times++;
            return;
        }
    }
    CHECK(r->count < OPERATIONS_MAX, "more than %d kinds of operations", OPERATIONS_MAX);
    r->operations[r->count++] = operation;
}

// A kernel that loops over count elements: fp32 operations and bytes are per element.
static void note_loop(const char *kernel, size_t count, double fp32, double bytes) {
    note((Operation){.kernel = kernel,
                     .launches = 1,
                     .fp32 = fp32 * (double)count,
                     .bytes = bytes * (double)count});
}

static double product(size_t a, size_t b) {
    return (double)a * (double)b;
}

// Bytes of an element that is stored, and read before if it is added to.
static double stored(int bytes, bool accumulate) {
    return accumulate ? 2 * bytes : bytes;
}

// ---- elementwise --------------------------------------------------------------------------------

static void fill(float *y, float value, size_t count) {
    (void)y, (void)value;
    if (count > 0) note_loop("fill", count, 0, FLOAT);
}

static void narrow_rows(Precision precision, HalfRows of, const float *x, uint16_t *y, bool add_y) {
    (void)precision, (void)x, (void)y;
    note_loop("narrow_rows", of.n * of.pitch, 1, FLOAT + stored(HALF, add_y));
}

static void widen_rows(Precision precision, HalfRows of, const uint16_t *x, float *y, bool add_y) {
    (void)precision, (void)x, (void)y;
    note_loop("widen_rows", of.n * of.columns, 1, HALF + stored(FLOAT, add_y));
}

// ---- products -----------------------------------------------------------------------------------

static size_t no_workspace(Precision precision, LinearShape shape) {
    (void)precision, (void)shape;
    return 0;
}

static size_t no_matmul_workspace(Precision precision, size_t m, size_t n, size_t k) {
    (void)precision, (void)m, (void)n, (void)k;
    return 0;
}

// Its bytes are those of the factors.
static Operation product_of(const char *kernel, size_t m, size_t n, size_t k) {
    return (Operation){.kernel = kernel,
                       .launches = 1,
                       .m = m,
                       .n = n,
                       .k = k,
                       .tensor = 2 * product(m, n) * (double)k,
                       .bytes = HALF * (product(m, k) + product(k, n))};
}

static void note_product(const char *kernel, size_t m, size_t n, size_t k, bool add_c) {
    Operation operation = product_of(kernel, m, n, k);
    operation.bytes += stored(HALF, add_c) * product(m, n);
    note(operation);
}

// A product with fp32 more operations for each element of its result, and one more matrix to read
// or write.
static void note_gelu(const char *kernel, size_t m, size_t n, size_t k, double fp32) {
    Operation operation = product_of(kernel, m, n, k);
    operation.fp32 = fp32 * product(m, n);
    operation.bytes += 2 * HALF * product(m, n);
    note(operation);
}

// Not listed: it rounds in the first step only, then the optimizer does.
static void narrow_linear(Precision precision, LinearShape shape, const float *weight,
                          const float *bias, uint16_t *to) {
    (void)precision, (void)shape, (void)weight, (void)bias, (void)to;
}

static void linear(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *weight,
                   const float *bias, uint16_t *y) {
    (void)how, (void)x, (void)weight, (void)bias, (void)y;
    note_product("linear", shape.rows, shape.out + shape.padding, shape.in, false);
}

// GELU is of the product's float32, and its input is stored.
static void linear_gelu(Compute how, LinearShape shape, const uint16_t *x, const uint16_t *weight,
                        const float *bias, HalfGelu to) {
    (void)how, (void)x, (void)weight, (void)bias, (void)to;
    note_gelu("linear_gelu", shape.rows, shape.out, shape.in, GELU_OPERATIONS);
}

static void linear_gelu_gradient(Compute how, LinearShape shape, const uint16_t *dy,
                                 const uint16_t *weight, const uint16_t *before,
                                 uint16_t *dbefore) {
    (void)how, (void)dy, (void)weight, (void)before, (void)dbefore;
    note_gelu("linear_gelu_gradient", shape.rows, shape.in, shape.out, 1.5 * GELU_OPERATIONS);
}

// A product to 16 bits, whose epilogue sums the bias's gradient, and a loop that accumulates both.
static void float16_weight_gradient(LinearShape shape, const LinearGradient *to) {
    note_product("linear_weight_gradient", shape.out + shape.padding, shape.in, shape.rows, false);
    note_loop("widen_linear", shape.out * shape.in, 1, HALF + stored(FLOAT, to->add_dweight));
}

// In bfloat16, a product to float32. With a padding the rows that fill no vector of 8 are another
// product's.
static void linear_weight_gradient(Compute how, LinearShape shape, const uint16_t *dy,
                                   const uint16_t *x, const LinearGradient *to) {
    (void)dy, (void)x;
    const size_t rest = shape.padding ? shape.out % 8 : 0, rows[] = {shape.out - rest, rest};
    if (how.precision == PRECISION_F16) {
        float16_weight_gradient(shape, to);
        return;
    }
    for (int i = 0; i < 2; i++) {
        Operation operation = product_of("linear_weight_gradient", rows[i], shape.in, shape.rows);
        operation.bytes += stored(FLOAT, to->add_dweight) * product(rows[i], shape.in);
        if (rows[i] > 0) note(operation);
    }
}

static void linear_input_gradient(Compute how, LinearShape shape, const uint16_t *dy,
                                  const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                  bool add_dx) {
    (void)how, (void)dy, (void)weight, (void)of, (void)dx;
    note_product("linear_input_gradient", shape.rows, shape.in, shape.out + shape.padding, add_dx);
}

// ---- transformers -------------------------------------------------------------------------------

static void embedding(const Embedding *of, const float *wte, const float *wpe, float *y) {
    (void)wte, (void)wpe, (void)y;
    note_loop("embedding", of->rows * of->channels, 1, 3 * FLOAT);
}

static size_t embedding_workspace(const Embedding *of) {
    (void)of;
    return 0;
}

// A block per row and 256 channels reads all tokens: those before its own, or after it.
static void embedding_gradient(const Embedding *of, const float *dy, float *dwte, bool add_dwte,
                               void *workspace) {
    (void)dy, (void)dwte, (void)add_dwte, (void)workspace;
    size_t blocks = of->rows * ((of->channels + BLOCK - 1) / BLOCK);
    double tokens = product(blocks, of->rows) * sizeof(int64_t);
    note((Operation){.kernel = "embedding_gradient",
                     .launches = 1,
                     .bytes = tokens + 3 * FLOAT * product(of->rows, of->channels)});
}

static void position_gradient(const Embedding *of, const float *dy, float *dwpe, bool add_dwpe) {
    (void)dy, (void)dwpe, (void)add_dwpe;
    note_loop("position_gradient", of->rows * of->channels, 7, FLOAT);
}

// Sums are LaneSums, 7 operations an element (9 for a square), then doubles over a warp.
static void note_rows(const char *kernel, const LayerNorm *norm, double fp32, double bytes) {
    double count = product(norm->rows, norm->channels);
    note((Operation){.kernel = kernel,
                     .launches = 1,
                     .fp32 = fp32 * count,
                     .fp64 = product(norm->rows, WARP) * 14,
                     .bytes = bytes * count});
}

// With a branch: read, and the sum written and read again by the cache.
static void layer_norm(Precision precision, const LayerNorm *norm, const uint16_t *branch,
                       float *sum, uint16_t *y) {
    (void)precision, (void)sum, (void)y;
    note_rows("layer_norm", norm, 7 + 10 + 4 + (branch != NULL),
              FLOAT + HALF + (branch ? HALF + FLOAT : 0));
}

// A row's two LaneSums, then the columns' two and the gradients, from the cache; the parts of 256
// blocks, written and read.
static void layer_norm_gradient(Precision precision, const LayerNorm *norm, const uint16_t *dy,
                                const NormGradient *to, uint16_t *dbranch) {
    (void)precision, (void)dy;
    const double parts = 2.0 * 256 * 2 * sizeof(double) / (double)norm->rows;
    note_rows("layer_norm_gradient", norm, 2 * 7 + 3 + 2 * 7 + 10,
              FLOAT + HALF + stored(FLOAT, to->add_dx) + (dbranch ? HALF : 0) + parts);
}

static size_t attention_saved(const Attention *of) {
    return of->batch * of->heads * of->length * sizeof(float);
}

static size_t attention_workspace(Precision precision, const Attention *of) {
    (void)precision;
    return attention_saved(of);
}

// Pairs of a query and a key that are computed by `rows` queries and `columns` keys at a time: none
// beyond the diagonal's.
static double pairs(const Attention *of, size_t rows, size_t columns) {
    double count = 0;
    for (size_t first = 0; first < of->length; first += rows) {
        size_t end = (first + rows + columns - 1) / columns * columns;
        count += product(rows, end < of->length ? end : of->length);
    }
    return count * product(of->batch, of->heads);
}

// A kernel with that many products of a head's dimensions per pair: attention.cu's run on FP32
// units; attention/mma.cu's use tensor cores, and their other instructions, whose number the
// compiler determines, are not counted.
static void note_attention(const char *name, const char *mma, const Attention *of, size_t tile,
                           double products) {
    const bool exact = !recording->tensor_cores || of->size % 8 != 0;
    const bool gradient = products > 2;
    double fma = products * (double)of->size, rows = product(of->batch, of->length);
    // A gradient's two kinds of blocks read queries, keys, values and dy each, and write three.
    double bytes = (gradient ? 2 * 4 + 3 : 5) * HALF * rows * product(of->heads, of->size);
    Operation operation = {.kernel = exact ? name : mma, .launches = 1, .bytes = bytes};
    if (exact)
        operation.fp32 = pairs(of, tile, tile) * (fma + (gradient ? 2 : 1) * SOFTMAX_OPERATIONS);
    else
        operation.tensor = pairs(of, MMA_ROWS, MMA_COLUMNS) * 2 * fma;
    note(operation);
}

static void attention(Compute how, const Attention *of, const uint16_t *qkv, uint16_t *y,
                      void *saved) {
    (void)how, (void)qkv, (void)y, (void)saved;
    note_attention("attention_kernel", "attention_mma_kernel", of, of->size > 64 ? 32 : 64, 2);
}

static void attention_gradient(Compute how, const Attention *of, const uint16_t *qkv,
                               const uint16_t *y, const void *saved, const uint16_t *dy,
                               uint16_t *dqkv, bool add_dqkv) {
    (void)how, (void)qkv, (void)y, (void)saved, (void)dy, (void)dqkv, (void)add_dqkv;
    size_t tile = of->size > 64 ? 16 : 32, channels = of->heads * of->size;
    note_loop("attention_means_kernel", of->batch * of->length * channels, 2, 2 * HALF);
    // For a tile of keys four products, for a tile of queries three.
    note_attention("attention_gradient_kernel", "attention_mma_gradient_kernel", of, tile, 4 + 3);
}

// ---- loss and optimizer -------------------------------------------------------------------------

static void cross_entropy(Labels labels, const float *logits, double divisor, float *probabilities,
                          float *loss) {
    (void)logits, (void)divisor, (void)probabilities, (void)loss;
    // A row is read three times. Its last two reads meet the L2 cache.
    note_loop("cross_entropy", labels.n * labels.classes, 2 * 10 + 7 + 2, 2 * FLOAT);
}

static void cross_entropy_gradient(Labels labels, const float *probabilities, Upstream upstream,
                                   float *dlogits, bool add_dlogits) {
    (void)probabilities, (void)upstream, (void)dlogits;
    note_loop("cross_entropy_gradient", labels.n * labels.classes, 8,
              FLOAT + stored(FLOAT, add_dlogits));
}

static void count_correct(Labels labels, const float *logits, int64_t *correct) {
    (void)logits, (void)correct;
    note_loop("count_correct", labels.n * labels.classes, 3, FLOAT);
}

// Of each logit three conversions, the maximum, two exponentials, their sum, and the gradient.
// Second reads are from registers or the L2 cache.
static void half_cross_entropy(const HalfLogits *of, float *loss, int64_t *correct) {
    (void)loss, (void)correct;
    CHECK(of->gradient, "a training step has no gradient of its logits");
    note_loop("cross_entropy_in_place_kernel", of->labels.n * of->pitch, 3 * 2 + 1 + 2 * 10 + 2 + 4,
              2 * HALF);
}

// One launch takes as many tensors as its arguments hold (list.cu).
static void adam(const AdamConfig *config, const AdamTensor *tensors, size_t tensor_count,
                 const OptimizerPeer *peer) {
    (void)config, (void)peer;
    const size_t each = 64;
    double count = 0, halves = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        count += (double)tensors[i].count;
        halves += tensors[i].copy ? (double)tensors[i].count : 0;
    }
    note((Operation){.kernel = "adam",
                     .launches = (tensor_count + each - 1) / each,
                     .fp32 = 20 * count,
                     // reads w, g, m, v; writes w, m, v, and w in 16 bits
                     .bytes = 7 * FLOAT * count + HALF * halves});
}

// ---- the tables ---------------------------------------------------------------------------------

typedef void (*AnyKernel)(void);

static void unknown(void) {
    CHECK(false, "a step called a kernel that bench/account/recorder.c has no numbers for");
}

static void know_nothing(void *family, size_t bytes) {
    const AnyKernel kernel = unknown;
    for (size_t at = 0; at < bytes; at += sizeof kernel)
        memcpy((char *)family + at, &kernel, sizeof kernel);
}

#define FAMILY(name) know_nothing(&r->name, sizeof r->name), r->kernels.name = &r->name

static void fill_tables(Recorder *r) {
    FAMILY(elementwise), FAMILY(slices), FAMILY(matrix), FAMILY(convolution), FAMILY(norm);
    FAMILY(loss), FAMILY(pixels), FAMILY(transformer), FAMILY(halves), FAMILY(optimizer);
    r->elementwise.fill = fill;
    r->matrix.matmul_workspace = no_matmul_workspace;
    r->transformer.embedding = embedding;
    r->transformer.embedding_workspace = embedding_workspace;
    r->transformer.embedding_gradient = embedding_gradient;
    r->transformer.position_gradient = position_gradient;
    r->transformer.attention_saved = attention_saved;
    r->transformer.attention_workspace = attention_workspace;
    r->halves.narrow_rows = narrow_rows;
    r->halves.widen_rows = widen_rows;
    r->halves.layer_norm = layer_norm;
    r->halves.layer_norm_gradient = layer_norm_gradient;
    r->halves.attention = attention;
    r->halves.attention_gradient = attention_gradient;
    r->halves.narrow_linear = narrow_linear;
    r->halves.linear_workspace = no_workspace;
    r->halves.linear = linear;
    r->halves.linear_weight_gradient = linear_weight_gradient;
    r->halves.linear_input_gradient = linear_input_gradient;
    r->halves.linear_gelu = linear_gelu;
    r->halves.linear_gelu_gradient = linear_gelu_gradient;
    r->halves.cross_entropy = half_cross_entropy;
    r->loss.cross_entropy = cross_entropy;
    r->loss.cross_entropy_gradient = cross_entropy_gradient;
    r->loss.count_correct = count_correct;
    r->optimizer.adam = adam;
}

Recorder *recorder_open(Device *device, bool tensor_cores) {
    CHECK(device_is_dry(device) && !recording, "%s lists no operations", device->name);
    Recorder *r = recording = memory_zalloc(sizeof *r);
    r->device = device;
    r->tensor_cores = tensor_cores;
    r->own = device->kernels;
    r->kernels = *device->kernels;
    fill_tables(r);
    device->kernels = &r->kernels;
    return r;
}

void recorder_close(Recorder *r) {
    if (!r) return;
    r->device->kernels = r->own;
    recording = NULL;
    free(r);
}

void recorder_clear(Recorder *r) {
    r->count = 0;
}

const Operation *recorder_operations(const Recorder *r, size_t *count) {
    *count = r->count;
    return r->operations;
}
