/* randperm.h: PyTorch's torch.randperm on the CPU, bit for bit: MT19937 seeded with the low 32 bits
 * of the seed, then for i = 0 .. n-2 swap(a[i], a[i + next % (n - i)]). n is less than
 * RANDPERM_LIMIT.
 */
#ifndef COMMON_DATA_RANDPERM_H
#define COMMON_DATA_RANDPERM_H

#include <stddef.h>
#include <stdint.h>

enum { RANDPERM_LIMIT = UINT32_MAX / 20 }; // from here on PyTorch shuffles differently

void randperm(size_t n, uint64_t seed, size_t *permutation); // writes 0 .. n-1 in random order

#endif
