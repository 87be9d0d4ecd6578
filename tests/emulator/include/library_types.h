/* library_types.h of the CUDA emulator: the number formats that its cuBLASLt knows, with the real
 * header's values. See ../emulator.cpp for what the emulator is.
 */
#ifndef CUDA_EMULATOR_LIBRARY_TYPES_H
#define CUDA_EMULATOR_LIBRARY_TYPES_H

typedef enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1,
    CUDA_R_16F = 2,
    CUDA_R_32I = 10,
    CUDA_R_16BF = 14
} cudaDataType_t;
typedef cudaDataType_t cudaDataType;

#endif
