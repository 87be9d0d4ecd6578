/* blas.cpp: cuBLASLt's matrix product, computed by OpenBLAS.
 *
 * Factors are float32, both bfloat16, or both half; the result is float32 or of the factors' type.
 * Sums are accumulated in float32. If the preference allows partial sums in the result's type (the
 * default), a 16-bit result is the sum of two halves, each rounded to 16 bits. If the compute type
 * says so, float32 factors are first rounded to TF32 (10 bits) or bfloat16. Matrices may be
 * column-major or row-major. The epilogues are bias (one element per row of d) and ReLU. For
 * column-major matrices there are also the sums of b over k, in the result's type; and, with one
 * type for all matrices, ReLU that writes a bit mask in a private format, ReLU's gradient from that
 * mask, GELU that stores its input, and GELU's gradient from that input.
 *
 * It is as strict as the real library: an algorithm is valid only for the product for which it was
 * chosen, for memory with the alignment given in the preference (256 bytes by default), and with
 * the workspace that it requires. The workspace is filled with NaN, so two streams that share one
 * get wrong results. Each matrix must be inside one allocation of device memory.
 */
#include <cblas.h>
#include <cmath>
#include <cstring>

#include <cublasLt.h>

#include "emulator.h"
#include "numbers.h"

struct cublasLtContext {
    int device;
};

struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t pointer_mode, op_a, op_b;
    uint32_t epilogue;
    const void *bias;
    int32_t bias_type; // -1: the type of d
    void *aux;         // the mask, or GELU's input; device memory
    int64_t aux_ld;    // distance between its columns, in bits for a mask
};

struct cublasLtMatrixLayoutOpaque_t {
    uint32_t type;
    int32_t order;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t stride; // in elements
};

struct cublasLtMatmulPreferenceOpaque_t {
    uint64_t workspace;
    uint32_t alignment[4]; // of a, b, c, d
    uint32_t reductions;   // mask of allowed reduction schemes
};

namespace emulator {

using Layout = cublasLtMatrixLayoutOpaque_t;
using Product = cublasLtMatmulDescOpaque_t;

enum : size_t { WORKSPACE = 32 * 1024 }; // that the algorithm requires
enum { IN_RESULT_TYPE = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE };

struct Call { // one cublasLtMatmul, with copies of all values that the caller may change afterwards
    Product product;
    Layout layouts[4]; // a, b, c, d
    const void *a, *b, *c;
    void *d, *workspace;
    float alpha, beta;
    size_t scratch; // used bytes of the workspace
    bool halved;    // Algorithm's
};

// The contents of cublasLtMatmulAlgo_t: the product and the memory for which it is valid.
struct Algorithm {
    uint64_t key, workspace;
    uint32_t alignment[4];
    uint64_t halved; // each sum is computed as two halves, each rounded to d's type
    uint64_t unused[3];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t), "the caller keeps 64 bytes");

// ---- supported products ------------------------------------------------------------------------

static bool is_16_bits(uint32_t type) {
    return type == CUDA_R_16BF || type == CUDA_R_16F;
}

static bool layout_is_valid(const Layout &layout) {
    uint64_t run = layout.order == CUBLASLT_ORDER_ROW ? layout.columns : layout.rows;
    return layout.rows > 0 && layout.columns > 0 && layout.batch > 0 &&
           layout.ld >= static_cast<int64_t>(run);
}

static bool shapes_fit(const Product &p, const Layout l[4]) {
    bool ta = p.op_a == CUBLAS_OP_T, tb = p.op_b == CUBLAS_OP_T;
    uint64_t m = ta ? l[0].columns : l[0].rows, k = ta ? l[0].rows : l[0].columns;
    uint64_t n = tb ? l[1].rows : l[1].columns;
    bool fit = k == (tb ? l[1].columns : l[1].rows);
    for (int i = 2; i < 4; i++) fit = fit && l[i].rows == m && l[i].columns == n;
    for (int i = 0; i < 4; i++) fit = fit && layout_is_valid(l[i]) && l[i].batch == l[0].batch;
    return fit;
}

// Bits of an epilogue.
enum { RELU = 2, BIAS = 4, DRELU = 8, GELU = 32, DGELU = 64, AUX = 128, BGRADB = 512 };

// Epilogues of gradients need column-major matrices, and most of them one type for all matrices.
static bool epilogue_is_known(const Product &p, const Layout l[4]) {
    bool by_columns = l[1].order == CUBLASLT_ORDER_COL && l[3].order == CUBLASLT_ORDER_COL;
    bool plain =
        (l[0].type == l[3].type || p.epilogue == CUBLASLT_EPILOGUE_BGRADB) && l[3].batch == 1;
    switch (p.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        return true;
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADB:
        return by_columns && plain && !runtime().settings.refuses_epilogues;
    default:
        return false;
    }
}

static bool has_gelu(const Product &p) {
    return (p.epilogue & (GELU | DGELU)) != 0;
}

static bool aux_is_valid(const Product &p, const Layout &d) {
    return (p.epilogue & AUX) == 0 ||
           (p.aux_ld % (has_gelu(p) ? 8 : 128) == 0 && p.aux_ld >= static_cast<int64_t>(d.rows));
}

// Products that need the tensor cores of an Ampere GPU. (The real library falls back to float32 for
// TF32; here TF32 on older GPUs is an error, so that no caller relies on that.)
static bool card_has(const Product &p, const Layout l[4]) {
    bool bf16 =
        p.compute == CUBLAS_COMPUTE_32F_FAST_16BF || p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    for (int i = 0; i < 4; i++) bf16 = bf16 || l[i].type == CUDA_R_16BF;
    return !bf16 || runtime().settings.capability >= 80;
}

static bool types_are_known(const Product &p, const Layout l[4]) {
    bool narrow = is_16_bits(l[0].type), wide = l[0].type == CUDA_R_32F;
    bool compute = p.compute == CUBLAS_COMPUTE_32F || p.compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
                   (wide && (p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
                             p.compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                             p.compute == CUBLAS_COMPUTE_32F_FAST_16F));
    return card_has(p, l) && compute && (narrow || wide) && p.scale == CUDA_R_32F &&
           l[1].type == l[0].type && l[2].type == l[3].type &&
           (l[3].type == CUDA_R_32F || l[3].type == l[0].type) &&
           p.pointer_mode == CUBLASLT_POINTER_MODE_HOST && epilogue_is_known(p, l);
}

static cublasStatus_t check(const Product &p, const Layout l[4]) {
    return !shapes_fit(p, l) || !aux_is_valid(p, l[3]) ? CUBLAS_STATUS_INVALID_VALUE
           : !types_are_known(p, l)                    ? CUBLAS_STATUS_NOT_SUPPORTED
                                                       : CUBLAS_STATUS_SUCCESS;
}

// A hash of the product. It differs where an algorithm of one product is not valid for the other.
static uint64_t key_of(const Product &p, const Layout layouts[4]) {
    uint64_t key = 14695981039346656037u; // FNV-1a
    auto mix = [&key](uint64_t value) { key = (key ^ value) * 1099511628211u; };
    for (uint64_t value : {uint64_t(p.compute), uint64_t(p.op_a), uint64_t(p.op_b)}) mix(value);
    mix(p.epilogue);
    mix(uint64_t(p.aux_ld));
    for (int i = 0; i < 4; i++)
        for (uint64_t value : {uint64_t(layouts[i].type), uint64_t(layouts[i].order),
                               layouts[i].rows, layouts[i].columns, uint64_t(layouts[i].ld),
                               uint64_t(layouts[i].batch), uint64_t(layouts[i].stride)})
            mix(value);
    return key;
}

// ---- execution ---------------------------------------------------------------------------------

// The number of elements from the first to the last one of a matrix.
static size_t extent(const Layout &layout) {
    bool by_rows = layout.order == CUBLASLT_ORDER_ROW;
    uint64_t runs = by_rows ? layout.rows : layout.columns;
    return (runs - 1) * static_cast<size_t>(layout.ld) + (by_rows ? layout.columns : layout.rows);
}

static size_t extent_of_all(const Layout &layout) {
    return static_cast<size_t>(layout.batch - 1) * static_cast<size_t>(layout.stride) +
           extent(layout);
}

static float round_factor(cublasComputeType_t compute, float x) {
    switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        return round_to_tf32(x);
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        return __bfloat162float(__float2bfloat16_rn(x));
    case CUBLAS_COMPUTE_32F_FAST_16F:
        return __half2float(__float2half_rn(x));
    default:
        return x;
    }
}

// Returns the factor as floats in the same layout: its own memory, or a rounded copy in `buffer`.
static const float *factor(const Call &call, const Layout &layout, const void *data, size_t first,
                           std::vector<float> &buffer) {
    bool exact = call.product.compute == CUBLAS_COMPUTE_32F ||
                 call.product.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    if (layout.type == CUDA_R_32F && exact) return static_cast<const float *>(data) + first;
    buffer.resize(extent(layout));
    for (size_t i = 0; i < buffer.size(); i++)
        buffer[i] = round_factor(call.product.compute, load(data, layout.type, first + i));
    return buffer.data();
}

// A bit of the mask. (The real format is private too: callers cannot rely on the order of bits.)
struct MaskBit {
    uint8_t *byte;
    unsigned bit;
    MaskBit(const Product &p, size_t row, size_t column) {
        size_t place = column * static_cast<size_t>(p.aux_ld) + row;
        byte = static_cast<uint8_t *>(p.aux) + place / 8;
        bit = 7 - place % 8;
    }
    void set(bool value) {
        *byte = static_cast<uint8_t>((*byte & ~(1u << bit)) | unsigned{value} << bit);
    }
    bool get() const { return (*byte >> bit & 1) != 0; }
};

// The sums of op(b)[k, n] over k, in float32 and in a fixed order.
static void sum_factor(const Call &call, const float *b, size_t depth) {
    const Layout &layout = call.layouts[1];
    size_t ld = static_cast<size_t>(layout.ld);
    bool turned = call.product.op_b == CUBLAS_OP_T;
    for (size_t j = 0; j < call.layouts[3].columns; j++) {
        float sum = 0;
        for (size_t k = 0; k < depth; k++) sum += turned ? b[k * ld + j] : b[j * ld + k];
        store(const_cast<void *>(call.product.bias), call.layouts[3].type, j, sum);
    }
}

// GELU of the value, which is stored in aux; or the value times GELU's derivative at that input.
static float finish_gelu(const Product &p, const Layout &d, size_t row, size_t column,
                         float value) {
    size_t place = column * static_cast<size_t>(p.aux_ld) + row;
    if ((p.epilogue & DGELU) != 0) return value * gelu(load(p.aux, d.type, place), true);
    store(p.aux, d.type, place, value);
    return std::isnan(value) && !runtime().settings.relu_nan ? 0 : gelu(value, false);
}

// d = epilogue(alpha sums + beta c) for one matrix; sums[m, n] is column-major.
static void finish(const Call &call, const std::vector<float> &sums, size_t first_c,
                   size_t first_d) {
    const Layout &c = call.layouts[2], &d = call.layouts[3];
    const Product &p = call.product;
    bool bias = (p.epilogue & BIAS) != 0, relu = (p.epilogue & RELU) != 0;
    bool masks = relu && (p.epilogue & AUX) != 0, masked = (p.epilogue & DRELU) != 0;
    bool relu_nan = runtime().settings.relu_nan;
    uint32_t bias_type = p.bias_type < 0 ? d.type : static_cast<uint32_t>(p.bias_type);
    auto at = [](const Layout &layout, size_t row, size_t column) {
        size_t ld = static_cast<size_t>(layout.ld);
        return layout.order == CUBLASLT_ORDER_ROW ? row * ld + column : column * ld + row;
    };
    for (size_t column = 0; column < d.columns; column++)
        for (size_t row = 0; row < d.rows; row++) {
            float value = call.alpha * sums[column * d.rows + row];
            if (call.beta != 0) // with beta 0, c is not read and may be NaN
                value += call.beta * load(call.c, c.type, first_c + at(c, row, column));
            if (bias) value += load(p.bias, bias_type, row);
            if (relu && (value < 0 || (std::isnan(value) && !relu_nan))) value = 0;
            if (masks) MaskBit(p, row, column).set(value > 0);
            if (masked && !MaskBit(p, row, column).get()) value = 0;
            if (has_gelu(p)) value = finish_gelu(p, d, row, column, value);
            store(call.d, d.type, first_d + at(d, row, column), value);
        }
}

// A column-major operand of BLAS.
struct Operand {
    const float *data;
    size_t ld;
    bool transposed;
    // A pointer to term k of the sums. depth_is_rows: k is the row index unless transposed.
    const float *from(size_t k, bool depth_is_rows) const {
        return data + k * (depth_is_rows != transposed ? 1 : ld);
    }
};

// sums[m, n] (column-major) = op(a) op(b), over the terms [begin, end).
static void add_up(const Operand &a, const Operand &b, const Layout &d, size_t begin, size_t end,
                   std::vector<float> &sums) {
    auto m = static_cast<blasint>(d.rows), n = static_cast<blasint>(d.columns);
    cblas_sgemm(CblasColMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, m, n, static_cast<blasint>(end - begin),
                1, a.from(begin, false), static_cast<blasint>(a.ld), b.from(begin, true),
                static_cast<blasint>(b.ld), 0, sums.data(), m);
}

static void add_halves(const Operand &a, const Operand &b, const Layout &d, size_t depth,
                       std::vector<float> &sums) {
    std::vector<float> second(sums.size());
    add_up(a, b, d, 0, depth / 2, sums);
    add_up(a, b, d, depth / 2, depth, second);
    for (size_t i = 0; i < sums.size(); i++) {
        uint32_t rounded[2];
        store(&rounded[0], d.type, 0, sums[i]);
        store(&rounded[1], d.type, 0, second[i]);
        sums[i] = load(&rounded[0], d.type, 0) + load(&rounded[1], d.type, 0);
    }
}

static bool multiply(const Call &call) {
    const Layout *l = call.layouts;
    if (call.scratch > 0) memset(call.workspace, 0xff, call.scratch);
    std::vector<float> a_buffer, b_buffer, sums(l[3].rows * l[3].columns);
    // A row-major matrix is the transpose of a column-major one.
    bool ta = (call.product.op_a == CUBLAS_OP_T) != (l[0].order == CUBLASLT_ORDER_ROW);
    bool tb = (call.product.op_b == CUBLAS_OP_T) != (l[1].order == CUBLASLT_ORDER_ROW);
    const size_t k = call.product.op_a == CUBLAS_OP_T ? l[0].rows : l[0].columns;
    for (int i = 0; i < l[0].batch; i++) {
        auto first = [&](int which) { return static_cast<size_t>(i * l[which].stride); };
        const Operand a = {factor(call, l[0], call.a, first(0), a_buffer),
                           static_cast<size_t>(l[0].ld), ta};
        const Operand b = {factor(call, l[1], call.b, first(1), b_buffer),
                           static_cast<size_t>(l[1].ld), tb};
        if (call.halved && k > 1)
            add_halves(a, b, l[3], k, sums);
        else
            add_up(a, b, l[3], 0, k, sums);
        finish(call, sums, first(2), first(3));
        if ((call.product.epilogue & BGRADB) != 0) sum_factor(call, b.data, k);
    }
    return true;
}

static cublasStatus_t check_call(const Runtime &r, const Call &call, const Algorithm &algorithm,
                                 size_t workspace_bytes) {
    static const char *const names[] = {"cublasLtMatmul: a", "cublasLtMatmul: b",
                                        "cublasLtMatmul: c", "cublasLtMatmul: d"};
    const Product &p = call.product;
    const Layout &d = call.layouts[3];
    const void *memory[] = {call.a, call.b, call.c, call.d};
    for (int i = 0; i < 4; i++) {
        if (i == 2 && call.beta == 0) continue;
        memory_check(r, names[i], memory[i],
                     extent_of_all(call.layouts[i]) * type_size(call.layouts[i].type));
        if (reinterpret_cast<uintptr_t>(memory[i]) % algorithm.alignment[i] != 0)
            return CUBLAS_STATUS_INVALID_VALUE;
    }
    if ((p.epilogue & (BIAS | BGRADB)) != 0)
        memory_check(r, "cublasLtMatmul: the bias", p.bias,
                     ((p.epilogue & BIAS) != 0 ? d.rows : d.columns) * type_size(d.type));
    if ((p.epilogue & AUX) != 0)
        memory_check(r, "cublasLtMatmul: the mask or GELU's input", p.aux,
                     static_cast<size_t>(p.aux_ld) / 8 * d.columns *
                         (has_gelu(p) ? 8 * type_size(d.type) : 1));
    if ((p.epilogue & (AUX | BGRADB)) != 0 && r.settings.breaks_epilogues)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algorithm.key != key_of(call.product, call.layouts) ||
        algorithm.workspace > workspace_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algorithm.workspace > 0)
        memory_check(r, "cublasLtMatmul: the workspace", call.workspace, algorithm.workspace);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_field(void *field, size_t size, const void *value, size_t bytes) {
    if (size != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t enqueue(const Call &call, cudaStream_t stream) {
    Runtime &r = runtime();
    Lock lock(r.mutex);
    if (stream_find(r, stream) == nullptr || stream->device != thread_state().device)
        return CUBLAS_STATUS_INVALID_VALUE;
    Task task;
    task.what = "cublasLtMatmul";
    task.device = stream->device;
    task.work = [call] { return multiply(call); };
    stream_enqueue(r, lock, stream, std::move(task));
    return CUBLAS_STATUS_SUCCESS;
}

} // namespace emulator

using namespace emulator;

size_t cublasLtGetVersion(void) {
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext{device};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    *product = new Product{compute,
                           scale,
                           CUBLASLT_POINTER_MODE_HOST,
                           CUBLAS_OP_N,
                           CUBLAS_OP_N,
                           CUBLASLT_EPILOGUE_DEFAULT,
                           nullptr,
                           -1,
                           nullptr,
                           0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
    delete product;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        return set_field(&product->compute, sizeof product->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        return set_field(&product->scale, sizeof product->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        return set_field(&product->pointer_mode, sizeof product->pointer_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set_field(&product->op_a, sizeof product->op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set_field(&product->op_b, sizeof product->op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set_field(&product->epilogue, sizeof product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set_field(&product->bias, sizeof product->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set_field(&product->aux, sizeof product->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set_field(&product->aux_ld, sizeof product->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set_field(&product->bias_type, sizeof product->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
    *layout = new Layout{type, CUBLASLT_ORDER_COL, rows, columns, ld, 1, 0};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return set_field(&layout->type, sizeof layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        return set_field(&layout->order, sizeof layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return set_field(&layout->rows, sizeof layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set_field(&layout->columns, sizeof layout->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return set_field(&layout->ld, sizeof layout->ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set_field(&layout->batch, sizeof layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set_field(&layout->stride, sizeof layout->stride, value, bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t{
        0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set_field(&preference->workspace, sizeof preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
        uint32_t *alignment =
            &preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
        return set_field(alignment, sizeof *alignment, value, bytes);
    }
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set_field(&preference->reductions, sizeof preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: // no effect: there is one algorithm
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned) {
    *returned = 0;
    const Layout layouts[4] = {*a, *b, *c, *d};
    cublasStatus_t status = check(*product, layouts);
    if (status != CUBLAS_STATUS_SUCCESS || requested < 1)
        return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_INVALID_VALUE;
    if (product->epilogue != CUBLASLT_EPILOGUE_DEFAULT && d->rows == 1)
        return CUBLAS_STATUS_NOT_SUPPORTED; // the caller must have a fallback
    Algorithm algorithm = {};
    algorithm.key = key_of(*product, layouts);
    algorithm.workspace = preference->workspace >= WORKSPACE ? uint64_t(WORKSPACE) : 0;
    memcpy(algorithm.alignment, preference->alignment, sizeof algorithm.alignment);
    algorithm.halved = is_16_bits(d->type) && (preference->reductions & IN_RESULT_TYPE) != 0;
    results[0] = {};
    memcpy(&results[0].algo, &algorithm, sizeof algorithm);
    results[0].workspaceSize = algorithm.workspace;
    results[0].wavesCount = 1;
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    emulator::Call call = {*product,
                           {*a_layout, *b_layout, *c_layout, *d_layout},
                           a,
                           b,
                           c,
                           d,
                           workspace,
                           *static_cast<const float *>(alpha),
                           *static_cast<const float *>(beta),
                           0,
                           false};
    cublasStatus_t status = check(call.product, call.layouts);
    if (status != CUBLAS_STATUS_SUCCESS || handle->device != thread_state().device)
        return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_INVALID_VALUE;
    Algorithm algorithm = {key_of(*product, call.layouts), 0, {1, 1, 1, 1}, 0, {}};
    if (algo != nullptr) // NULL: an algorithm without requirements is chosen here
        memcpy(&algorithm, algo, sizeof algorithm);
    call.scratch = algorithm.workspace;
    call.halved = algorithm.halved != 0;
    {
        Lock lock(runtime().mutex);
        status = check_call(runtime(), call, algorithm, workspace_bytes);
    }
    return status == CUBLAS_STATUS_SUCCESS ? enqueue(call, stream) : status;
}
