/* blas.c: the GPUs' matrix products, by cuBLASLt.
 *
 * cuBLASLt's matrices are column-major, ours row-major: it sees each of ours transposed. So instead
 * of c = op(a) op(b) it computes c' = op(b)' op(a)', with b as its first operand, and no matrix is
 * transposed in memory.
 *
 * cuBLASLt's heuristic chooses an algorithm once per shape (a Plan). After that a product is one
 * call without allocation or query, which the capture of a graph requires. Its scratch memory is
 * the device's workspace.
 *
 * In float32, products round as the device's tf32 flag says. Bias, relu and their gradients are
 * part of the product where cuBLASLt has an "epilogue" for them; otherwise kernels compute them
 * afterwards:
 *
 *   forward    bias, relu; relu writes a mask of bits in cuBLASLt's own format
 *   backward   relu's gradient by that mask; the bias's gradient, accumulated in float32
 *   in 16 bits also GELU, which stores its input, and its gradient by that
 *
 * cuBLASLt does not document relu(NaN), and a NaN that became 0 would hide a failure. So every plan
 * with an activation is run once, and rejected if it loses a NaN.
 *
 * In 16 bits (HalfKernels' linear layers) all matrices and the bias have 16 bits, except the
 * gradients of weight and bias in bfloat16: the product stores its float32 sums where the gradients
 * are. In float16 they pass through the caller's workspace. Algorithms that split a sum into parts
 * must add the parts in float32.
 */
#include <cublasLt.h>
#include <math.h>

#include "common/base/half.h"
#include "common/base/memory.h"
#include "common/device/cuda/kernels.h"
#include "common/device/plan_cache.h"

#define CUBLAS(call) cublas_check((call), #call, __FILE__, __LINE__)

static void cublas_check(cublasStatus_t status, const char *call, const char *file, int line) {
    if (status != CUBLAS_STATUS_SUCCESS)
        check_failed(file, line, call, "cuBLASLt: %s", cublasLtGetStatusString(status));
}

#define SET_PRODUCT(plan, attribute, value)                                                  \
    CUBLAS(cublasLtMatmulDescSetAttribute((plan)->product, CUBLASLT_MATMUL_DESC_##attribute, \
                                          &(value), sizeof(value)))

// ---- plans -----------------------------------------------------------------------------------

// A product's shape, the key of its plan: fields of one size, so that there is no padding.
typedef struct Shape {
    uint64_t factors, result; // Precision of the operands a and b; of c
    uint64_t transpose_a, transpose_b, m, n, k;
    uint64_t pitch_a; // elements from one stored row of a to the next; 0: no more than there are
    uint64_t accumulate, epilogue, tf32;
    uint64_t count, stride_a, stride_b, stride_c; // CudaBatch
    uint64_t alignment, alignment_c;              // of a and b, of c and bias, in bytes
} Shape;

typedef struct Plan {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    bool possible;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
} Plan;

struct CudaPlans {
    cublasLtHandle_t handle;
    PlanCache *cache; // of Plan, by Shape
};

static void close_plan(void *memory) {
    Plan *plan = memory;
    CUBLAS(cublasLtMatrixLayoutDestroy(plan->a));
    CUBLAS(cublasLtMatrixLayoutDestroy(plan->b));
    CUBLAS(cublasLtMatrixLayoutDestroy(plan->c));
    CUBLAS(cublasLtMatmulDescDestroy(plan->product));
    free(plan);
}

CudaPlans *cuda_plans_create(void) {
    CudaPlans *plans = memory_zalloc(sizeof *plans);
    CUBLAS(cublasLtCreate(&plans->handle));
    plans->cache = plan_cache_create(sizeof(Shape), close_plan);
    return plans;
}

void cuda_plans_close(CudaPlans *plans) {
    if (!plans) return;
    plan_cache_close(plans->cache);
    CUBLAS(cublasLtDestroy(plans->handle));
    free(plans);
}

static cudaDataType_t type_of(uint64_t precision) {
    return precision == PRECISION_F16    ? CUDA_R_16F
           : precision == PRECISION_BF16 ? CUDA_R_16BF
                                         : CUDA_R_32F;
}

// The layout of `count` row-major matrices [rows, columns], `stride` elements apart.
static cublasLtMatrixLayout_t layout_create(uint64_t precision, uint64_t rows, uint64_t columns,
                                            uint64_t count, uint64_t stride) {
    cublasLtMatrixLayout_t layout;
    CUBLAS(
        cublasLtMatrixLayoutCreate(&layout, type_of(precision), columns, rows, (int64_t)columns));
    CHECK(count <= INT32_MAX, "%zu products at once", (size_t)count);
    int32_t matrices = (int32_t)count;
    int64_t offset = (int64_t)stride;
    CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices,
                                            sizeof matrices));
    CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &offset, sizeof offset));
    return layout;
}

static uint64_t mask_columns(uint64_t columns) {
    return (columns + 127) / 128 * 128; // cuBLASLt's alignment
}

static void describe_product(Plan *plan, const Shape *s) {
    bool fast = s->factors == PRECISION_F32 && s->tf32;
    CUBLAS(cublasLtMatmulDescCreate(
        &plan->product, fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t first = s->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = s->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    SET_PRODUCT(plan, TRANSA, first);
    SET_PRODUCT(plan, TRANSB, second);
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)s->epilogue;
    SET_PRODUCT(plan, EPILOGUE, epilogue);
    const bool relu =
        epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DRELU;
    const bool gelu =
        epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
    int64_t columns = (int64_t)(relu ? mask_columns(s->n) : s->n);
    if (relu || gelu) SET_PRODUCT(plan, EPILOGUE_AUX_LD, columns);
}

// The other operands of a product, in device memory; NULL: absent.
typedef struct Beside {
    const void *bias; // [n], an input, or [m], the gradient of one; of the result's type
    const void *aux;  // relu's mask, [m, mask_columns(n)] bits; GELU's input [m, n]
} Beside;

static void set_beside(const Plan *plan, const Beside *beside) {
    SET_PRODUCT(plan, BIAS_POINTER, beside->bias);
    SET_PRODUCT(plan, EPILOGUE_AUX_POINTER, beside->aux);
}

enum { WORKSPACE_BYTES = 32 << 20 }; // limit, NVIDIA's recommendation for Hopper

static cublasLtMatmulPreference_t preference_create(const Shape *s) {
    cublasLtMatmulPreference_t preference;
    CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    size_t bytes = WORKSPACE_BYTES;
    CUBLAS(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; // others: the result's type
    if (s->result != PRECISION_F32)
        CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference,
                                                    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &reductions, sizeof reductions));
    const uint32_t factors = (uint32_t)s->alignment, result = (uint32_t)s->alignment_c;
    const struct {
        cublasLtMatmulPreferenceAttributes_t pointer;
        uint32_t alignment;
    } least[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, factors},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, factors},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result}};
    for (size_t i = 0; i < 4; i++)
        CUBLAS(cublasLtMatmulPreferenceSetAttribute(
            preference, least[i].pointer, &least[i].alignment, sizeof least[i].alignment));
    return preference;
}

static Plan *plan_create(cublasLtHandle_t handle, const Shape *s, const Beside *beside) {
    Plan *plan = memory_zalloc(sizeof *plan);
    describe_product(plan, s);
    set_beside(plan, beside);
    uint64_t m = s->m, n = s->n, k = s->k;
    plan->a = layout_create(s->factors, s->transpose_a ? k : m, s->transpose_a ? m : k, s->count,
                            s->stride_a);
    const int64_t pitch = (int64_t)s->pitch_a;
    if (pitch > 0)
        CUBLAS(cublasLtMatrixLayoutSetAttribute(plan->a, CUBLASLT_MATRIX_LAYOUT_LD, &pitch,
                                                sizeof pitch));
    plan->b = layout_create(s->factors, s->transpose_b ? n : k, s->transpose_b ? k : n, s->count,
                            s->stride_b);
    plan->c = layout_create(s->result, m, n, s->count, s->stride_c);
    cublasLtMatmulPreference_t preference = preference_create(s);
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, plan->product, plan->b, plan->a, plan->c, plan->c, preference, 1, &best, &found);
    CUBLAS(cublasLtMatmulPreferenceDestroy(preference));
    plan->possible = status == CUBLAS_STATUS_SUCCESS && found == 1;
    CHECK(plan->possible || s->epilogue != CUBLASLT_EPILOGUE_DEFAULT,
          "cuBLASLt has no product [%zu, %zu] of %zu terms: %s", (size_t)m, (size_t)n, (size_t)k,
          cublasLtGetStatusString(status));
    if (!plan->possible) return plan;
    plan->algorithm = best.algo;
    plan->workspace = best.workspaceSize;
    return plan;
}

// The largest power of two up to 16 (the width of vector loads) that divides both addresses. A
// gradient's memory begins where the previous gradient's ends, at any multiple of 4.
static uint64_t alignment_of(const void *p, const void *q) {
    uint64_t bits = (uintptr_t)p | (uintptr_t)q | 16;
    return bits & -bits;
}

typedef struct Operands { // device memory
    const void *a, *b;
    void *c;
    Beside beside;
} Operands;

// Returns false, with nothing done, if cuBLASLt does not support the plan's epilogue after all.
static bool run(CudaDevice *cuda, Plan *plan, const Shape *shape, const Operands *of) {
    set_beside(plan, &of->beside);
    const float one = 1, old = shape->accumulate ? 1 : 0;
    cublasStatus_t status =
        cublasLtMatmul(cuda->plans->handle, plan->product, &one, of->b, plan->b, of->a, plan->a,
                       &old, of->c, plan->c, of->c, plan->c, &plan->algorithm,
                       cuda_workspace(cuda, plan->workspace), plan->workspace, cuda->compute);
    plan->possible =
        status != CUBLAS_STATUS_NOT_SUPPORTED || shape->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    if (plan->possible) CUBLAS(status);
    return plan->possible;
}

static bool has_activation(const Shape *shape) {
    return shape->epilogue == CUBLASLT_EPILOGUE_RELU_BIAS ||
           shape->epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS ||
           shape->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static size_t size_of(Precision precision) {
    return precision == PRECISION_F32 ? sizeof(float) : sizeof(uint16_t);
}

static bool is_nan(Precision precision, const void *values, size_t i) {
    const uint16_t *halves = values;
    return precision == PRECISION_F32    ? isnan(((const float *)values)[i])
           : precision == PRECISION_BF16 ? isnan(half_from_bf16(halves[i]))
                                         : isnan(half_from_f16(halves[i]));
}

// Runs the product with a bias of NaNs. Returns whether the output's first row is all NaN.
static bool keeps_nan(CudaDevice *cuda, Plan *plan, const Shape *shape, const Operands *of) {
    Precision precision = (Precision)shape->result;
    size_t n = shape->n;
    size_t bytes = n * size_of(precision), room = 0;
    (void)cuda_part(NULL, &room, plan->workspace);
    void *bias = (char *)cuda_workspace(cuda, room + bytes) + room;
    CUDA(cudaMemsetAsync(bias, 0xff, bytes, cuda->compute)); // NaN in every precision
    Operands nan = *of;
    nan.beside.bias = bias;
    if (!run(cuda, plan, shape, &nan)) return false;
    void *row = memory_zalloc(bytes);
    cuda_copy(NULL, row, cuda->device, of->c, bytes);
    bool kept = true;
    for (size_t i = 0; i < n; i++) kept = kept && is_nan(precision, row, i);
    free(row);
    return kept;
}

// Fills tf32 and the alignments of the shape and runs the product. Returns false, with nothing
// done, if cuBLASLt does not support the epilogue.
static bool multiply(Shape shape, const Operands *of) {
    CudaDevice *cuda = cuda_current();
    shape.tf32 = cuda->device->tf32;
    shape.alignment = alignment_of(of->a, of->b);
    shape.alignment_c = alignment_of(of->c, of->beside.bias);
    Plan *plan = plan_cache_find(cuda->plans->cache, &shape);
    if (!plan) {
        if (cuda->capturing && has_activation(&shape)) return false; // a trial is impossible now
        plan = plan_create(cuda->plans->handle, &shape, &of->beside);
        plan_cache_add(cuda->plans->cache, &shape, plan);
        if (plan->possible && has_activation(&shape))
            plan->possible = keeps_nan(cuda, plan, &shape, of);
    }
    return plan->possible && run(cuda, plan, &shape, of);
}

// ---- the kernels -----------------------------------------------------------------------------

static size_t cuda_matmul_workspace(Precision precision, size_t m, size_t n, size_t k) {
    (void)m, (void)n, (void)k;
    cuda_check_float32(precision, "a product of float32");
    return 0;
}

static Shape shape_of(Precision precision, MatmulShape s) {
    return (Shape){.factors = precision,
                   .result = precision,
                   .transpose_a = s.transpose_a,
                   .transpose_b = s.transpose_b,
                   .m = s.m,
                   .n = s.n,
                   .k = s.k,
                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                   .count = 1};
}

// c (+)= a b, without an epilogue; any size may be 0.
static void multiply_plain(Shape shape, Operands of, bool accumulate) {
    if (shape.m * shape.n == 0 || (shape.k == 0 && accumulate)) return;
    if (shape.k == 0) {
        cuda_clear(of.c, shape.m * shape.n * size_of((Precision)shape.result));
        return;
    }
    shape.accumulate = accumulate;
    (void)multiply(shape, &of);
}

static void cuda_matmul(Compute how, MatmulShape s, const float *a, const float *b, float *c,
                        bool accumulate) {
    cuda_check_float32(how.precision, "a product of float32");
    multiply_plain(shape_of(PRECISION_F32, s), (Operands){.a = a, .b = b, .c = c}, accumulate);
}

static size_t cuda_relu_mask(Precision precision, LinearShape s) {
    (void)precision;
    return s.rows * mask_columns(s.out) / 8;
}

// The product with as much of bias and relu as cuBLASLt supports: clears that in *left.
static void multiply_linear(LinearShape s, Operands of, CudaFinish *left) {
    Shape shape = shape_of(left->stored, (MatmulShape){false, true, s.rows, s.out, s.in});
    if (s.relu && of.beside.bias) {
        shape.epilogue =
            s.relu->bits ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
        of.beside.aux = s.relu->bits;
        if (multiply(shape, &of)) {
            s.relu->written = s.relu->bits != NULL;
            left->relu = false;
            left->bias = NULL;
            return;
        }
        of.beside.aux = NULL;
    }
    shape.epilogue = of.beside.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    if (multiply(shape, &of)) {
        left->bias = NULL;
    } else {
        shape.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
        of.beside.bias = NULL;
        (void)multiply(shape, &of);
    }
}

// `bias` is in float32, of.beside.bias is the product's operand.
static void linear(Precision precision, LinearShape s, Operands of, const float *bias) {
    if (s.relu) s.relu->y = of.c;
    size_t count = s.rows * s.out;
    if (count == 0) return;
    CudaFinish left = {
        .stored = precision, .bias = bias, .inner = 1, .channels = s.out, .relu = s.relu};
    if (s.in == 0)
        cuda_clear(of.c, count * size_of(precision));
    else
        multiply_linear(s, of, &left);
    if (left.bias || left.relu) cuda_finish(&left, of.c, count);
}

static void cuda_linear(Compute how, LinearShape s, const float *x, const float *weight,
                        const float *bias, float *y) {
    cuda_check_float32(how.precision, "a product of float32");
    linear(PRECISION_F32, s, (Operands){x, weight, y, {.bias = bias}}, bias);
}

void cuda_matmul_batch(const CudaBatch *batch, MatmulShape s, const void *a, const void *b,
                       float *c, bool accumulate) {
    Shape shape = shape_of(batch->precision, s);
    shape.result = PRECISION_F32;
    shape.accumulate = accumulate;
    shape.count = batch->count;
    shape.stride_a = batch->stride_a;
    shape.stride_b = batch->stride_b;
    shape.stride_c = batch->stride_c;
    (void)multiply(shape, &(Operands){.a = a, .b = b, .c = c});
}

// The type in which a product stores gradients of parameters.
static Precision gradient_type(Precision precision) {
    return precision == PRECISION_F16 ? PRECISION_F16 : PRECISION_F32;
}

// dweight (+)= dy' x, and dbias, if it is not NULL, in the same product, both of gradient_type.
// of.a is dy, with the shape's padding, whose gradients are not computed. Returns false if the
// caller must compute dbias.
static bool weight_gradient(Precision precision, LinearShape s, Operands of, void *dbias,
                            bool accumulate) {
    Shape shape = shape_of(precision, (MatmulShape){true, false, s.out, s.in, s.rows});
    shape.result = gradient_type(precision);
    shape.pitch_a = s.out + s.padding;
    if (dbias && s.rows * s.out * s.in > 0) {
        Shape with_bias = shape;
        with_bias.accumulate = accumulate;
        // Our first operand is cuBLASLt's b. DRELU_BGRAD would sum in the product that computes dy,
        // but that belongs to the next layer, and the last layer has none.
        with_bias.epilogue = CUBLASLT_EPILOGUE_BGRADB;
        of.beside.bias = dbias;
        if (multiply(with_bias, &of)) return true;
        of.beside.bias = NULL;
    }
    multiply_plain(shape, of, accumulate);
    return false;
}

static void cuda_linear_weight_gradient(Compute how, LinearShape s, const float *dy, const float *x,
                                        const LinearGradient *to) {
    cuda_check_float32(how.precision, "a product of float32");
    bool summed = to->dweight &&
                  weight_gradient(PRECISION_F32, s, (Operands){.a = dy, .b = x, .c = to->dweight},
                                  to->add_dbias ? NULL : to->dbias, to->add_dweight);
    if (to->dbias && !summed) cuda_sum_channels(dy, to->dbias, to->add_dbias, s.rows, s.out, 1);
}

// dx = dy weight, masked by the relu. Returns false, with nothing done, if the caller must multiply
// and mask.
static bool relu_gradient(Precision precision, LinearShape s, Operands of, const ReluMask *mask) {
    if (!mask->written || s.out == 0) return false;
    Shape shape = shape_of(precision, (MatmulShape){false, false, s.rows, s.in, s.out});
    shape.epilogue = CUBLASLT_EPILOGUE_DRELU;
    of.beside.aux = mask->bits;
    return multiply(shape, &of);
}

static void cuda_linear_relu_gradient(Compute how, LinearShape s, const float *dy,
                                      const float *weight, const ReluMask *of, float *dx) {
    if (relu_gradient(PRECISION_F32, s, (Operands){.a = dy, .b = weight, .c = dx}, of)) return;
    cuda_matmul(how, (MatmulShape){false, false, s.rows, s.in, s.out}, dy, weight, dx, false);
    cuda_elementwise.activation_gradient(ACTIVATION_RELU, dx, of->y, dx, s.rows * s.in, false);
}

const MatrixKernels cuda_matrix = {
    .matmul_workspace = cuda_matmul_workspace,
    .matmul = cuda_matmul,
    .linear = cuda_linear,
    .relu_mask = cuda_relu_mask,
    .linear_weight_gradient = cuda_linear_weight_gradient,
    .linear_relu_gradient = cuda_linear_relu_gradient,
};

// ---- linear layers in 16 bits ----------------------------------------------------------------

// The product's own shape: the padding is as its other outputs.
static LinearShape padded(LinearShape s) {
    s.out += s.padding;
    s.padding = 0;
    return s;
}

// Bytes for the gradients of the two parameters in float16.
size_t cuda_half_linear_workspace(Precision precision, LinearShape s) {
    return precision == PRECISION_F16 ? linear_narrow_count(s) * sizeof(uint16_t) : 0;
}

void cuda_half_linear(Compute how, LinearShape s, const uint16_t *x, const uint16_t *narrow,
                      const float *bias, uint16_t *y) {
    const uint16_t *addend = bias ? narrow + linear_narrow_bias(s) : NULL;
    linear(how.precision, padded(s), (Operands){x, narrow, y, {.bias = addend}}, bias);
}

// Gradients that are rounded to float16 before they are accumulated. Returns false if the caller
// must compute dbias.
static bool rounded_gradient(Compute how, LinearShape s, Operands of, const LinearGradient *to) {
    uint16_t *narrow = how.workspace, *dbias = to->dbias ? narrow + linear_narrow_bias(s) : NULL;
    LinearGradient in_product = *to;
    of.c = narrow;
    if (!weight_gradient(how.precision, padded(s), of, dbias, false)) in_product.dbias = NULL;
    cuda_widen_linear(how.precision, s, narrow, &in_product);
    return in_product.dbias;
}

enum { VECTOR = 8 }; // numbers of 16 bits in 16 bytes

// The same for bfloat16: the sums are stored or accumulated in float32. Tensor cores reach their
// rate if a product's rows are whole vectors, but dweight has no rows for the padding. So the last
// rows, fewer than a vector has, are another product's.
static bool summed_gradient(Compute how, LinearShape s, Operands of, const LinearGradient *to) {
    const size_t rest = s.padding ? s.out % VECTOR : 0, whole = s.out - rest;
    const LinearShape first = {s.rows, whole, s.in, NULL, s.padding + rest};
    const LinearShape last = {s.rows, rest, s.in, NULL, s.padding + whole};
    of.c = to->dweight;
    bool summed = weight_gradient(how.precision, first, of, to->add_dbias ? NULL : to->dbias,
                                  to->add_dweight);
    if (rest == 0) return summed;
    of.a = (const uint16_t *)of.a + whole;
    of.c = to->dweight + whole * s.in;
    return weight_gradient(how.precision, last, of, NULL, to->add_dweight);
}

void cuda_half_linear_weight_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                      const uint16_t *x, const LinearGradient *to) {
    const Operands of = {.a = dy, .b = x};
    bool summed = false;
    if (to->dweight)
        summed = how.precision == PRECISION_F16 ? rounded_gradient(how, s, of, to)
                                                : summed_gradient(how, s, of, to);
    if (to->dbias && !summed)
        cuda_half_sum_channels((CudaStored){how.precision, gradient_type(how.precision)}, dy,
                               to->dbias, to->add_dbias, (ImageSizes){s.rows, s.out, 1});
}

void cuda_half_linear_input_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                     const uint16_t *weight, const ReluMask *of, uint16_t *dx,
                                     bool accumulate) {
    const Operands operands = {.a = dy, .b = weight, .c = dx};
    if (of && relu_gradient(how.precision, s, operands, of)) return;
    const MatmulShape product = {false, false, s.rows, s.in, padded(s).out};
    multiply_plain(shape_of(how.precision, product), operands, accumulate);
    if (of)
        cuda_halves.activation_gradient((HalfActivation){how.precision, ACTIVATION_RELU}, dx, of->y,
                                        dx, s.rows * s.in, false);
}

// The product with GELU or its gradient, whose input is of.beside.aux. Returns false, with nothing
// done, if the caller must compute it.
static bool gelu_product(cublasLtEpilogue_t epilogue, Precision precision, MatmulShape s,
                         Operands of) {
    if (s.m * s.n * s.k == 0 || s.n % 8 != 0) return false; // cuBLASLt's alignment of the input
    Shape shape = shape_of(precision, s);
    shape.epilogue = epilogue;
    return multiply(shape, &of);
}

void cuda_half_linear_gelu(Compute how, LinearShape s, const uint16_t *x, const uint16_t *narrow,
                           const float *bias, HalfGelu to) {
    const Operands of = {
        x, narrow, to.y, {.bias = narrow + linear_narrow_bias(s), .aux = to.before}};
    if (gelu_product(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, how.precision,
                     (MatmulShape){false, true, s.rows, s.out, s.in}, of))
        return;
    cuda_half_linear(how, s, x, narrow, bias, to.before);
    cuda_halves.activation((HalfActivation){how.precision, ACTIVATION_GELU}, to.y, to.before,
                           s.rows * s.out);
}

void cuda_half_linear_gelu_gradient(Compute how, LinearShape s, const uint16_t *dy,
                                    const uint16_t *weight, const uint16_t *before,
                                    uint16_t *dbefore) {
    const MatmulShape product = {false, false, s.rows, s.in, s.out};
    const Operands of = {dy, weight, dbefore, {.aux = before}};
    if (gelu_product(CUBLASLT_EPILOGUE_DGELU, how.precision, product, of)) return;
    multiply_plain(shape_of(how.precision, product), (Operands){.a = dy, .b = weight, .c = dbefore},
                   false);
    cuda_halves.activation_gradient((HalfActivation){how.precision, ACTIVATION_GELU}, dbefore,
                                    before, dbefore, s.rows * s.in, false);
}

// ---- versions -------------------------------------------------------------------------------

void cuda_describe(char *buffer, size_t capacity) {
    const CudaDevice *cuda = cuda_current();
    struct cudaDeviceProp card;
    CUDA(cudaGetDeviceProperties(&card, cuda->ordinal));
    int runtime, driver;
    CUDA(cudaRuntimeGetVersion(&runtime));
    CUDA(cudaDriverGetVersion(&driver));
    size_t blas = cublasLtGetVersion();
    char dnn[64];
    cuda_convolution_describe(dnn, sizeof dnn);
    snprintf(buffer, capacity,
             "%s, CUDA %d.%d, driver for CUDA %d.%d, cuBLASLt %zu.%zu.%zu, %s, TF32 %s", card.name,
             runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10, blas / 10000,
             blas / 100 % 100, blas % 100, dnn, cuda->device->tf32 ? "on" : "off");
}

// The version of the library at build time and the loaded one may differ.
int cuda_prepare(Error *err) {
    int runtime;
    CUDA(cudaRuntimeGetVersion(&runtime));
    if (runtime < 12000)
        return error_set(err, STATUS_SKIPPED, "CUDA %d.%d is too old, 12.0 is needed",
                         runtime / 1000, runtime % 1000 / 10);
    return 0;
}
