/* two_devices.h: runs one computation on two devices and compares; the second is the reference,
 * "ref". The first is the command line's argument: "cpu" (default) or "cuda", whose tensors the
 * host cannot access except by device_copy. A test program's main opens the devices and passes them
 * to its tests as their state.
 *
 * Outputs are compared in full, and so are guard elements after them. Before the computation an
 * output contains NaN (if it is overwritten) or random values (if it is accumulated into). A
 * tolerance is relative to the largest reference value; 0 means equal bits except for the sign of
 * zero. The reference adds in double and rounds once (6e-8). Tolerances and their reasons:
 *
 *   0             the same float operations, or none: copies, masks, powers of two
 *   1e-7 to 3e-7  the device adds in double too; one to three roundings to float follow
 *   5e-7 to 1e-6  some float operations in a row (optimizers, exp), or float sums of short rows
 *   2e-6 to 4e-6  float sums over long rows, in another order of additions
 *   2e-3, 8e-3, 1.6e-2   operands of fp16 or bf16: up to 4 units of 2^-11 or 2^-8, since a sum near
 *                 the middle between two 16-bit numbers may be rounded either way
 *
 * A wrong formula must change a result by more. So the inputs' variances are small enough that an
 * eps of 1e-5 matters, and batches are short, so that n - 1 differs from n.
 */
#ifndef TESTS_RIGS_TWO_DEVICES_H
#define TESTS_RIGS_TWO_DEVICES_H

#include "tests/rigs/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/base/rng.h"
#include "common/device/device.h"

enum { TESTED, REF, DEVICES, GUARD = 16, PIECES_MAX = 256 };

typedef struct Piece { // of a device's memory, or the host's (device NULL)
    Device *device;
    void *memory;
    size_t bytes;
} Piece;

typedef struct TwoDevices {
    Device *of[DEVICES];
    size_t shift;             // offset of float tensors from the memory's alignment, in floats
    Piece pieces[PIECES_MAX]; // allocated since the last two_free
    size_t piece_count;
} TwoDevices;

// The same tensor on both devices.
typedef struct Both {
    TwoDevices *two;
    void *of[DEVICES];
    size_t bytes;
} Both;

// Ends the program with status 77 if the device does not exist.
static inline TwoDevices two_open(int argc, char **argv) {
    const char *names[DEVICES] = {argc > 1 ? argv[1] : "cpu", "ref"};
    TwoDevices two = {0};
    if (device_available(names[TESTED]) == 0) {
        print_message("there is no device %s\n", names[TESTED]);
        exit(77);
    }
    for (int d = 0; d < DEVICES; d++) {
        Error err = {0};
        two.of[d] = device_open(names[d], &err);
        if (!two.of[d]) {
            print_error("%s\n", err.message);
            exit(1);
        }
    }
    return two;
}

static inline const Kernels *two_kernels(const TwoDevices *two, int d) {
    return device_kernels(two->of[d]);
}

static inline size_t two_pages(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

// Maps host memory that ends at an inaccessible page: a kernel that reads beyond an input crashes.
static inline void *two_map(size_t bytes) {
    const size_t room = two_pages(bytes), guard = two_pages(1);
    char *start =
        mmap(NULL, room + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(start != MAP_FAILED && mprotect(start + room, guard, PROT_NONE) == 0);
    return start + room - bytes;
}

static inline bool two_is_mapped(const Device *device) {
    return !device || device_is_cpu(device);
}

// Allocates memory until two_free, with a copy of `values` (NULL: undefined contents).
static inline void *two_take(TwoDevices *two, Device *device, const void *values, size_t bytes) {
    assert_true(two->piece_count < PIECES_MAX);
    void *memory = two_is_mapped(device) ? two_map(bytes) : device_alloc(device, bytes);
    two->pieces[two->piece_count++] = (Piece){device, memory, bytes};
    if (values) device_copy(device, memory, NULL, values, bytes);
    return memory;
}

static inline void two_free(TwoDevices *two) {
    for (; two->piece_count > 0; two->piece_count--) {
        Piece piece = two->pieces[two->piece_count - 1];
        const size_t room = two_pages(piece.bytes);
        if (two_is_mapped(piece.device))
            munmap((char *)piece.memory + piece.bytes - room, room + two_pages(1));
        else
            device_free(piece.device, piece.memory, piece.bytes);
    }
}

static inline void two_close(TwoDevices *two) {
    two_free(two);
    for (int d = 0; d < DEVICES; d++) device_close(two->of[d]);
}

// Returns `count` normally distributed values in host memory; `which` selects the sequence. It
// repeats with a period of 100003 and is computed once, to save time.
static inline float *two_normal(TwoDevices *two, size_t count, uint64_t which) {
    enum { PERIOD = 100003, KINDS = 128 };
    static float known[KINDS][PERIOD];
    static size_t made[KINDS];
    assert_true(which < KINDS);
    for (; made[which] < count && made[which] < PERIOD; made[which]++)
        known[which][made[which]] = rng_normal(which, RNG_STREAM_TEST, made[which]);
    float *x = two_take(two, NULL, NULL, count * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = i < PERIOD ? known[which][i] : x[i - PERIOD];
    return x;
}

// ---- inputs ---------------------------------------------------------------------------------

static inline Both both_bytes(TwoDevices *two, const void *values, size_t bytes) {
    Both both = {.two = two, .bytes = bytes};
    for (int d = 0; d < DEVICES; d++) both.of[d] = two_take(two, two->of[d], values, bytes);
    return both;
}

static inline Both both_floats(TwoDevices *two, const float *values, size_t count) {
    Both both = {.two = two, .bytes = count * sizeof *values};
    for (int d = 0; d < DEVICES; d++) {
        size_t bytes = (count + two->shift) * sizeof(float);
        float *memory = two_take(two, two->of[d], NULL, bytes);
        both.of[d] = memory + two->shift;
        device_copy(two->of[d], both.of[d], NULL, values, both.bytes);
    }
    return both;
}

static inline Both both_normal(TwoDevices *two, size_t count, uint64_t which) {
    return both_floats(two, two_normal(two, count, which), count);
}

// ---- outputs --------------------------------------------------------------------------------

// values[count], followed by guards; NULL values: an output to be overwritten.
static inline Both both_output(TwoDevices *two, const float *values, size_t count) {
    float *start = two_normal(two, count + GUARD, 99);
    for (size_t i = 0; i < count; i++) start[i] = values ? values[i] : NAN;
    Both both = both_floats(two, start, count + GUARD);
    both.bytes = count * sizeof(float);
    return both;
}

static inline Both both_start(TwoDevices *two, size_t count, bool accumulate) {
    return both_output(two, accumulate ? two_normal(two, count, 99) : NULL, count);
}

// Returns a host copy of the tensor on device d.
static inline void *both_read(Both both, int d, size_t bytes) {
    void *values = two_take(both.two, NULL, NULL, bytes);
    device_copy(NULL, values, both.two->of[d], both.of[d], bytes);
    return values;
}

static inline void both_check_bytes(Both both, const char *what) {
    const char *tested = both_read(both, TESTED, both.bytes);
    const char *ref = both_read(both, REF, both.bytes);
    for (size_t i = 0; i < both.bytes; i++)
        if (tested[i] != ref[i])
            fail_msg("%s: byte %zu of %zu is %d, reference %d", what, i, both.bytes, tested[i],
                     ref[i]);
}

// Asserts that the guards after an output are unchanged.
static inline void both_check_guards(Both both, int d, const char *what) {
    size_t count = both.bytes / sizeof(float);
    const float *values = both_read(both, d, both.bytes + GUARD * sizeof *values);
    const float *guard = two_normal(both.two, count + GUARD, 99);
    if (memcmp(values + count, guard + count, GUARD * sizeof *guard) != 0)
        fail_msg("%s: written behind its %zu elements", what, count);
}

// Compares an output. NaN never passes; infinity passes only if the reference is equal.
static inline void both_check(Both both, double tolerance, const char *what) {
    size_t count = both.bytes / sizeof(float);
    const float *tested = both_read(both, TESTED, both.bytes);
    const float *ref = both_read(both, REF, both.bytes);
    double scale = 0;
    for (size_t i = 0; i < count; i++)
        if (!isinf(ref[i])) scale = fmax(scale, fabs((double)ref[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)tested[i] - (double)ref[i]) <= tolerance * scale) &&
            !(isinf(ref[i]) && tested[i] == ref[i]))
            fail_msg("%s, element %zu of %zu: %.9g, reference %.9g, largest %.3g", what, i, count,
                     (double)tested[i], (double)ref[i], scale);
    for (int d = 0; d < DEVICES; d++) both_check_guards(both, d, what);
}

#endif
