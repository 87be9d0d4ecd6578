/* half_tensors.h: 16-bit tensors on two devices (two_devices.h), followed by guard elements.
 */
#ifndef TESTS_RIGS_HALF_TENSORS_H
#define TESTS_RIGS_HALF_TENSORS_H

#include "tests/rigs/half_types.h"
#include "tests/rigs/two_devices.h"

#include "common/base/half.h"

// Ends the program with status 77 if the tested device does not store 16-bit tensors.
static inline TwoDevices half_open(int argc, char **argv) {
    TwoDevices two = two_open(argc, argv);
    if (two_kernels(&two, TESTED)->halves) return two;
    print_message("%s stores nothing in 16 bits\n", two.of[TESTED]->name);
    two_close(&two);
    exit(77);
}

// Returns fp16 if `wants_f16`, otherwise the tested device's first type. state: TwoDevices *.
static inline Precision type_of(void *state, bool wants_f16) {
    return half_type(((const TwoDevices *)state)->of[TESTED], wants_f16);
}

static inline uint16_t to_half(Precision precision, float x) {
    return precision == PRECISION_F16 ? half_to_f16(x) : half_to_bf16(x);
}

static inline float from_half(Precision precision, uint16_t x) {
    return precision == PRECISION_F16 ? half_from_f16(x) : half_from_bf16(x);
}

// values[count], rounded, followed by guards.
static inline Both half_floats(TwoDevices *two, Precision precision, const float *values,
                               size_t count) {
    uint16_t *host = two_take(two, NULL, NULL, (count + GUARD) * sizeof *host);
    for (size_t i = 0; i < count + GUARD; i++)
        host[i] = i < count ? to_half(precision, values[i]) : 0x1234;
    Both both = both_bytes(two, host, (count + GUARD) * sizeof *host);
    both.bytes = count * sizeof *host;
    return both;
}

static inline Both half_normal(TwoDevices *two, Precision precision, size_t count, uint64_t which) {
    return half_floats(two, precision, two_normal(two, count, which), count);
}

// An output to be overwritten or accumulated into.
static inline Both half_start(TwoDevices *two, Precision precision, size_t count, bool accumulate) {
    float *values = two_normal(two, count, 99);
    for (size_t i = 0; i < count && !accumulate; i++) values[i] = NAN;
    return half_floats(two, precision, values, count);
}

// Returns the tensor on device d, widened to float32, in host memory.
static inline float *half_read(Both both, int d, Precision precision) {
    const size_t count = both.bytes / sizeof(uint16_t);
    const uint16_t *values = both_read(both, d, both.bytes);
    float *wide = two_take(both.two, NULL, NULL, count * sizeof *wide);
    for (size_t i = 0; i < count; i++) wide[i] = from_half(precision, values[i]);
    return wide;
}

// Compares the devices; elements may differ by `units` units in the last place of the largest
// element, because a sum near the middle between two numbers may be rounded to either.
static inline void half_check(Both both, Precision precision, double units, const char *what) {
    size_t count = both.bytes / sizeof(uint16_t);
    const uint16_t *tested = both_read(both, TESTED, both.bytes + GUARD * sizeof *tested);
    const uint16_t *ref = both_read(both, REF, both.bytes);
    double scale = 0, unit = precision == PRECISION_F16 ? 0x1p-10 : 0x1p-7;
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)from_half(precision, ref[i]));
        scale = size > scale ? size : scale;
    }
    for (size_t i = 0; i < count; i++) {
        double a = (double)from_half(precision, tested[i]);
        double b = (double)from_half(precision, ref[i]);
        if (!(fabs(a - b) <= units * unit * scale))
            fail_msg("%s, element %zu of %zu: %.9g, reference %.9g, largest %.3g", what, i, count,
                     a, b, scale);
    }
    for (size_t i = count; i < count + GUARD; i++)
        if (tested[i] != 0x1234) fail_msg("%s: written behind its %zu elements", what, count);
}

#endif
