/* numbers.h: reads and writes single numbers in the formats of the emulated libraries (blas.cpp,
 * dnn.cpp), by cudaDataType_t; and GELU.
 */
#ifndef TESTS_EMULATOR_NUMBERS_H
#define TESTS_EMULATOR_NUMBERS_H

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <library_types.h>

namespace emulator {

inline size_t type_size(uint32_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

inline float load(const void *data, uint32_t type, size_t i) {
    if (type == CUDA_R_32F) return static_cast<const float *>(data)[i];
    unsigned short bits = static_cast<const unsigned short *>(data)[i];
    return type == CUDA_R_16BF ? __bfloat162float({bits}) : __half2float({bits});
}

inline void store(void *data, uint32_t type, size_t i, float value) {
    if (type == CUDA_R_32F)
        static_cast<float *>(data)[i] = value;
    else
        static_cast<unsigned short *>(data)[i] =
            type == CUDA_R_16BF ? __float2bfloat16_rn(value).bits : __float2half_rn(value).bits;
}

// GELU with tanh, or its derivative.
inline float gelu(float x, bool derivative) {
    const float root = 0.7978845608f, cube = 0.044715f, t = tanhf(root * (x + cube * x * x * x));
    return derivative ? (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * cube * x * x)
                      : x / 2 * (1 + t);
}

// Rounds to TF32's 10 fraction bits, ties to even. (Tensor cores round like this where a library
// converts for them; truncation would cause errors of the same size.)
inline float round_to_tf32(float x) {
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7f800000) == 0x7f800000) return x;
    return __uint_as_float((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

} // namespace emulator

#endif
