/* test_cuda_emulator_blas.cpp: the CUDA emulator's matrix products against sums in double, and its
 * 16-bit formats against known bits.
 */
#include "rig.h"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// ---- products ----------------------------------------------------------------------------------

#define GOOD(call) THAT((call) == CUBLAS_STATUS_SUCCESS)

struct Matrix { // [rows, columns], batch times, in the layout's order
    int rows, columns, ld, batch, stride;
    bool by_rows;
    cudaDataType type;
    cublasLtMatrixLayout_t layout;
    std::vector<float> values; // of all its memory
    void *device;
    size_t at(int image, int row, int column) const {
        return static_cast<size_t>(image * stride +
                                   (by_rows ? row * ld + column : column * ld + row));
    }
};

static float narrowed(cudaDataType type, float x) {
    return type == CUDA_R_16BF  ? __bfloat162float(__float2bfloat16_rn(x))
           : type == CUDA_R_16F ? __half2float(__float2half_rn(x))
                                : x;
}

static Matrix matrix_new(int rows, int columns, int batch, bool by_rows, cudaDataType type,
                         cudaStream_t stream) {
    Matrix m = {rows, columns, (by_rows ? columns : rows) + 3, batch, 0, by_rows, type, nullptr,
                {},   nullptr};
    m.stride = m.ld * (by_rows ? rows : columns) + 8;
    for (int i = 0; i < m.stride * batch; i++)
        m.values.push_back(narrowed(type, static_cast<float>((i * 37 + rows) % 23) / 7 - 1.5f));
    if (type == CUDA_R_32F) {
        m.device = device_of(m.values, stream);
    } else {
        std::vector<unsigned short> bits;
        for (float x : m.values)
            bits.push_back(type == CUDA_R_16BF ? __float2bfloat16_rn(x).bits
                                               : __float2half_rn(x).bits);
        m.device = device_of(bits, stream);
    }
    int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    int64_t stride = m.stride;
    GOOD(cublasLtMatrixLayoutCreate(&m.layout, type, static_cast<uint64_t>(rows),
                                    static_cast<uint64_t>(columns), m.ld));
    GOOD(cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4));
    GOOD(cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, 4));
    GOOD(cublasLtMatrixLayoutSetAttribute(m.layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &stride, 8));
    return m;
}

static void matrix_free(Matrix &m) {
    OK(cudaFree(m.device));
    GOOD(cublasLtMatrixLayoutDestroy(m.layout));
}

struct ProductCase {
    bool ta, tb, a_rows, b_rows, d_rows;
    cudaDataType in, out;
    cublasComputeType_t compute;
    cublasLtEpilogue_t epilogue;
    float alpha, beta;
};

// The current contents of its memory, as floats.
static std::vector<float> fetch_matrix(const Matrix &m, cudaStream_t stream) {
    size_t count = m.values.size();
    if (m.type == CUDA_R_32F) return fetch(static_cast<const float *>(m.device), count, stream);
    std::vector<float> values;
    for (unsigned short bits : fetch(static_cast<const unsigned short *>(m.device), count, stream))
        values.push_back(m.type == CUDA_R_16BF ? __bfloat162float(__ushort_as_bfloat16(bits))
                                               : __half2float(__ushort_as_half(bits)));
    return values;
}

// The relative error bound of a result. A 16-bit result is itself rounded.
static double tolerance(const ProductCase &p) {
    if (p.out == CUDA_R_32F) return p.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? 1. / 256 : 1e-5;
    return p.out == CUDA_R_16BF ? 1. / 256 : 1. / 2048;
}

static void check_product(const ProductCase &p, const Matrix &a, const Matrix &b, const Matrix &d,
                          const std::vector<float> &bias, cudaStream_t stream) {
    int depth = p.ta ? a.rows : a.columns;
    std::vector<float> got = fetch_matrix(d, stream);
    for (int i = 0; i < d.batch; i++)
        for (int row = 0; row < d.rows; row++)
            for (int column = 0; column < d.columns; column++) {
                double want = 0;
                for (int k = 0; k < depth; k++)
                    want += double(p.alpha) *
                            double(a.values[p.ta ? a.at(i, k, row) : a.at(i, row, k)]) *
                            double(b.values[p.tb ? b.at(i, column, k) : b.at(i, k, column)]);
                size_t at = d.at(i, row, column);
                if (p.beta != 0) want += double(p.beta) * double(d.values[at]);
                if ((p.epilogue & 4) != 0) want += double(bias[static_cast<size_t>(row)]);
                if ((p.epilogue & 2) != 0 && want < 0) want = 0;
                THAT(std::fabs(double(got[at]) - want) <= tolerance(p) * (1 + std::fabs(want)));
            }
}

static cublasLtMatmulDesc_t product_new(const ProductCase &p, const float *bias) {
    cublasLtMatmulDesc_t product;
    int32_t op_a = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t bias_type = CUDA_R_32F;
    GOOD(cublasLtMatmulDescCreate(&product, p.compute, CUDA_R_32F));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, 4));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, 4));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, 4));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, 8));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &bias_type,
                                        4));
    return product;
}

static void run_product(const ProductCase &p) {
    cudaStream_t stream = stream_new();
    enum { M = 5, N = 7, K = 6, BATCH = 3 };
    Matrix a = matrix_new(p.ta ? K : M, p.ta ? M : K, BATCH, p.a_rows, p.in, stream);
    Matrix b = matrix_new(p.tb ? N : K, p.tb ? K : N, BATCH, p.b_rows, p.in, stream);
    Matrix d = matrix_new(M, N, BATCH, p.d_rows, p.out, stream);
    std::vector<float> bias = {0.5f, -1, 2, -3, 0.25f};
    float *bias_device = device_of(bias, stream);
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product = product_new(p, bias_device);
    cublasLtMatmulPreference_t preference;
    GOOD(cublasLtCreate(&handle));
    GOOD(cublasLtMatmulPreferenceCreate(&preference));
    size_t room = 1 << 20;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    GOOD(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &room, 8));
    GOOD(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, 4));
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    GOOD(cublasLtMatmulAlgoGetHeuristic(handle, product, a.layout, b.layout, d.layout, d.layout,
                                        preference, 1, &best, &found));
    THAT(found == 1 && best.workspaceSize <= room && best.workspaceSize > 0);
    char *workspace = device_new<char>(best.workspaceSize);
    auto call = [&](size_t bytes, size_t off) {
        return cublasLtMatmul(handle, product, &p.alpha, static_cast<char *>(a.device) + off,
                              a.layout, b.device, b.layout, &p.beta, d.device, d.layout, d.device,
                              d.layout, &best.algo, workspace, bytes, stream);
    };
    THAT(call(best.workspaceSize - 1, 0) == CUBLAS_STATUS_INVALID_VALUE);
    THAT(call(best.workspaceSize, 4) == CUBLAS_STATUS_INVALID_VALUE); // alignment too low
    GOOD(call(best.workspaceSize, 0));
    check_product(p, a, b, d, bias, stream);
    GOOD(cublasLtMatmulDescDestroy(product));
    GOOD(cublasLtMatmulPreferenceDestroy(preference));
    GOOD(cublasLtDestroy(handle));
    for (Matrix *matrix : {&a, &b, &d}) matrix_free(*matrix);
    OK(cudaFree(bias_device));
    OK(cudaFree(workspace));
    OK(cudaStreamDestroy(stream));
}

static void test_products(void **) {
    expect_good([] {
        const auto none = CUBLASLT_EPILOGUE_DEFAULT, both = CUBLASLT_EPILOGUE_RELU_BIAS;
        for (int bits = 0; bits < 32; bits++)
            run_product({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0,
                         (bits & 16) != 0, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F,
                         bits % 3 == 0 ? both : none, 1, bits % 2 == 0 ? 1.0f : 0.0f});
        for (cudaDataType type : {CUDA_R_16BF, CUDA_R_16F})
            for (cudaDataType out : {type, CUDA_R_32F})
                run_product({true, false, false, false, false, type, out, CUBLAS_COMPUTE_32F,
                             CUBLASLT_EPILOGUE_BIAS, 0.5f, 2});
        run_product({false, true, true, true, true, CUDA_R_32F, CUDA_R_32F,
                     CUBLAS_COMPUTE_32F_FAST_TF32, CUBLASLT_EPILOGUE_RELU, 1, 0});
        return 0;
    });
}

// 2048 + 1 - 2048 in half is 1, or differs if `reductions` lets an algorithm add parts.
static float sum_in_parts(uint32_t reductions) {
    cudaStream_t stream = stream_new();
    ProductCase p = {false,
                     false,
                     false,
                     false,
                     false,
                     CUDA_R_16F,
                     CUDA_R_16F,
                     CUBLAS_COMPUTE_32F,
                     CUBLASLT_EPILOGUE_DEFAULT,
                     1,
                     0};
    std::vector<unsigned short> values;
    for (float x : {1.0f, 1.0f, 1.0f, 1.0f, 2048.0f, 1.0f, -2048.0f, 0.0f, 7.0f})
        values.push_back(__float2half_rn(x).bits);
    unsigned short *memory = device_of(values, stream); // a[1, 4], b[4, 1], d[1, 1]
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product = product_new(p, nullptr);
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    uint32_t alignment = 2;
    int found = 0;
    GOOD(cublasLtCreate(&handle));
    GOOD(cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, 1, 4, 1));
    GOOD(cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, 4, 1, 4));
    GOOD(cublasLtMatrixLayoutCreate(&d, CUDA_R_16F, 1, 1, 1));
    GOOD(cublasLtMatmulPreferenceCreate(&preference));
    GOOD(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, 4));
    for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
        GOOD(cublasLtMatmulPreferenceSetAttribute(
            preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(i), &alignment, 4));
    GOOD(cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, d, d, preference, 1, &best, &found));
    GOOD(cublasLtMatmul(handle, product, &p.alpha, memory, a, memory + 4, b, &p.beta, memory + 8, d,
                        memory + 8, d, &best.algo, nullptr, 0, stream));
    float sum = __half2float(__ushort_as_half(fetch(memory + 8, 1, stream)[0]));
    for (cublasLtMatrixLayout_t layout : {a, b, d}) GOOD(cublasLtMatrixLayoutDestroy(layout));
    GOOD(cublasLtMatmulPreferenceDestroy(preference));
    GOOD(cublasLtMatmulDescDestroy(product));
    GOOD(cublasLtDestroy(handle));
    OK(cudaFree(memory));
    OK(cudaStreamDestroy(stream));
    return sum;
}

static void test_sums_in_parts(void **) {
    expect_good([] {
        THAT(sum_in_parts(CUBLASLT_REDUCTION_SCHEME_MASK) == 0);
        THAT(sum_in_parts(CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0);
        THAT(sum_in_parts(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) == 0);
        THAT(sum_in_parts(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 1);
        THAT(sum_in_parts(CUBLASLT_REDUCTION_SCHEME_NONE) == 1);
        return 0;
    });
}

// ---- epilogues ----------------------------------------------------------------------------------

struct Layer { // d = a b, with a mask of aux_ld bits per column
    Matrix a, b, d;
    float *bias;
    void *mask;
    int64_t bits;
};

static cublasStatus_t multiply(const Layer &layer, cublasLtEpilogue_t epilogue,
                               cudaStream_t stream) {
    cublasLtHandle_t handle;
    ProductCase p = {false,    false,      false,      false,
                     false,    CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F,
                     epilogue, 1,          0};
    cublasLtMatmulDesc_t product = product_new(p, layer.bias);
    GOOD(cublasLtCreate(&handle));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                        &layer.mask, 8));
    GOOD(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &layer.bits,
                                        8));
    cublasStatus_t status =
        cublasLtMatmul(handle, product, &p.alpha, layer.a.device, layer.a.layout, layer.b.device,
                       layer.b.layout, &p.beta, layer.d.device, layer.d.layout, layer.d.device,
                       layer.d.layout, nullptr, nullptr, 0, stream);
    GOOD(cublasLtMatmulDescDestroy(product));
    GOOD(cublasLtDestroy(handle));
    return status;
}

static Layer layer_new(int rows, int columns, int depth, cudaDataType factors,
                       cudaStream_t stream) {
    std::vector<float> bias;
    for (int i = 0; i < rows; i++) bias.push_back(static_cast<float>(i % 5) - 2);
    return {matrix_new(rows, depth, 1, false, factors, stream),
            matrix_new(depth, columns, 1, false, factors, stream),
            matrix_new(rows, columns, 1, false, CUDA_R_32F, stream),
            device_of(bias, stream),
            device_new<char>(static_cast<size_t>(columns) * 256 / 8),
            256};
}

static void layer_free(Layer &layer) {
    for (Matrix *matrix : {&layer.a, &layer.b, &layer.d}) matrix_free(*matrix);
    OK(cudaFree(layer.bias));
    OK(cudaFree(layer.mask));
}

// The sums of a factor (the gradient of a bias), in float32.
static void check_sums(const Layer &layer, cudaStream_t stream) {
    GOOD(multiply(layer, CUBLASLT_EPILOGUE_BGRADB, stream));
    std::vector<float> sums =
        fetch(static_cast<const float *>(layer.bias), static_cast<size_t>(layer.b.columns), stream);
    for (int column = 0; column < layer.b.columns; column++) {
        double want = 0;
        for (int k = 0; k < layer.b.rows; k++)
            want += double(layer.b.values[layer.b.at(0, k, column)]);
        THAT(std::fabs(double(sums[static_cast<size_t>(column)]) - want) < 1e-5);
    }
}

// A ReLU's mask cuts the gradient of another product; the sums of a factor are the gradient of a
// bias.
static int run_epilogues() {
    enum { ROWS = 131, COLUMNS = 7, DEPTH = 6 };
    cudaStream_t stream = stream_new();
    Layer layer = layer_new(ROWS, COLUMNS, DEPTH, CUDA_R_32F, stream);
    GOOD(multiply(layer, CUBLASLT_EPILOGUE_RELU_AUX_BIAS, stream));
    std::vector<float> y = fetch_matrix(layer.d, stream);
    GOOD(multiply(layer, CUBLASLT_EPILOGUE_DEFAULT, stream));
    std::vector<float> plain = fetch_matrix(layer.d, stream);
    GOOD(multiply(layer, CUBLASLT_EPILOGUE_DRELU, stream));
    std::vector<float> cut = fetch_matrix(layer.d, stream);
    int zeros = 0;
    for (int column = 0; column < COLUMNS; column++)
        for (int row = 0; row < ROWS; row++) {
            size_t at = layer.d.at(0, row, column);
            THAT(cut[at] == (y[at] > 0 ? plain[at] : 0));
            zeros += cut[at] == 0;
        }
    THAT(zeros > 50 && zeros < ROWS * COLUMNS - 50);
    check_sums(layer, stream);
    for (int64_t bits :
         {int64_t{0}, int64_t{128}, int64_t{192}}) { // too small, or not a multiple of 128
        layer.bits = bits;
        THAT(multiply(layer, CUBLASLT_EPILOGUE_DRELU, stream) == CUBLAS_STATUS_INVALID_VALUE);
    }
    layer_free(layer);
    OK(cudaStreamDestroy(stream));
    return 0;
}

// For 16-bit factors of a float32 product, only the sums are supported.
static int run_epilogues_of_halves() {
    cudaStream_t stream = stream_new();
    Layer layer = layer_new(131, 7, 6, CUDA_R_16F, stream);
    check_sums(layer, stream);
    THAT(multiply(layer, CUBLASLT_EPILOGUE_DRELU, stream) == CUBLAS_STATUS_NOT_SUPPORTED);
    layer_free(layer);
    OK(cudaStreamDestroy(stream));
    return 0;
}

static void test_epilogues(void **) {
    expect_good(run_epilogues);
    expect_good(run_epilogues_of_halves);
    for (const char *word : {"epilogues", "runs"})
        expect_good(
            [] {
                cudaStream_t stream = stream_new();
                Layer layer = layer_new(4, 3, 2, CUDA_R_32F, stream);
                THAT(multiply(layer, CUBLASLT_EPILOGUE_BGRADB, stream) ==
                     CUBLAS_STATUS_NOT_SUPPORTED);
                GOOD(multiply(layer, CUBLASLT_EPILOGUE_RELU_BIAS, stream));
                layer_free(layer);
                OK(cudaStreamDestroy(stream));
                return 0;
            },
            {{"DDPC_EMULATED_BLAS_REFUSES", word}});
}

static void test_16_bits(void **) {
    const struct {
        float x;
        unsigned short half, bfloat16;
    } cases[] = {{0.0f, 0, 0},
                 {-0.0f, 0x8000, 0x8000},
                 {1.0f, 0x3c00, 0x3f80},
                 {1.0f + 0x1p-11f, 0x3c00, 0x3f80}, // ties go to even
                 {1.0f + 0x3p-11f, 0x3c02, 0x3f80},
                 {1.0f + 0x1p-8f, 0x3c04, 0x3f80},
                 {1.0f + 0x3p-8f, 0x3c0c, 0x3f82},
                 {65504.0f, 0x7bff, 0x4780},
                 {65519.996f, 0x7bff, 0x4780},
                 {65520.0f, 0x7c00, 0x4780},
                 {-1e38f, 0xfc00, 0xfe96},
                 {3.4028235e38f, 0x7c00, 0x7f80},
                 {0x1p-14f, 0x0400, 0x3880},
                 {0x1p-24f, 0x0001, 0x3380},
                 {0x1p-25f, 0x0000, 0x3300},
                 {0x1.8p-25f, 0x0001, 0x3340},
                 {-0x3p-25f, 0x8002, 0xb3c0},
                 {INFINITY, 0x7c00, 0x7f80},
                 {NAN, 0x7fff, 0x7fff}};
    for (auto &c : cases) {
        assert_int_equal(__float2half_rn(c.x).bits, c.half);
        assert_int_equal(__float2bfloat16_rn(c.x).bits, c.bfloat16);
    }
    for (unsigned bits = 0; bits < 0x10000; bits++) { // conversion to float and back
        __half narrow = __ushort_as_half(static_cast<unsigned short>(bits));
        __nv_bfloat16 wide = __ushort_as_bfloat16(static_cast<unsigned short>(bits));
        if ((bits & 0x7fff) <= 0x7c00)
            assert_int_equal(__float2half_rn(__half2float(narrow)).bits, bits);
        else
            assert_true(std::isnan(__half2float(narrow)));
        if ((bits & 0x7fff) <= 0x7f80)
            assert_int_equal(__float2bfloat16_rn(__bfloat162float(wide)).bits, bits);
    }
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_sums_in_parts),
        cmocka_unit_test(test_epilogues),
        cmocka_unit_test(test_16_bits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
