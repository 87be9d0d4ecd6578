/* test_cuda_fragments.cpp: the emulator's tensor cores (common/device/cuda/attention/fragments.cuh)
 * have the layout that the PTX ISA documents for mma.m16n8k16, element by element. The formulas
 * below were written from that document ("Matrix Fragments for mma.m16n8k16 with floating point
 * type"), independently of the header under test.
 */
#include "rig.h"

#include "common/device/cuda/attention/fragments.cuh"

enum { LANES = 32, INNER = 16, COLUMNS = 8, STRIDE = 24 };

// Row and column of element i of a lane's fragment, from groupID and threadID_in_group.
struct Place {
    int row, column;
};
static Place left_place(int lane, int i) {
    return {lane / 4 + (i % 4 < 2 ? 0 : 8), lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
static Place right_place(int lane, int i) {
    return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4};
}
static Place sums_place(int lane, int i) {
    return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

template <typename T> struct Fragments {
    Left left;
    Right rows[2], turned[2];
    Sums16 sums;
};

// a[16, 16] is the left factor; b[16, 16] is the right factor, once row-major and once transposed.
template <typename T> __global__ void load_all(const T *a, const T *b, Fragments<T> *of_lanes) {
    alignas(16) __shared__ T left[INNER][STRIDE], right[INNER][STRIDE];
    for (unsigned i = threadIdx.x; i < INNER * INNER; i += LANES) {
        left[i / INNER][i % INNER] = a[i];
        right[i / INNER][i % INNER] = b[i];
    }
    __syncthreads();
    Fragments<T> mine = {};
    mine.left = left_from(&left[0][0], STRIDE, INNER, INNER);
    load_rights(mine.rows, &right[0][0], STRIDE);
    load_rights_turned(mine.turned, &right[0][0], STRIDE);
    for (int i = 0; i < 4; i++) mine.sums.of[i] = 1000;
    multiply_add<T>(&mine.sums, mine.left, mine.turned[1]);
    of_lanes[threadIdx.x] = mine;
}

template <typename T> static float part_of(const unsigned *registers, int i) {
    const unsigned short bits = static_cast<unsigned short>(registers[i / 2] >> 16 * (i % 2));
    T value;
    memcpy(&value, &bits, sizeof value);
    return widened(value);
}

template <typename T>
static std::vector<T> numbers(int factor) { // small integers, so that all products are exact
    std::vector<T> x(INNER * INNER);
    for (int i = 0; i < INNER * INNER; i++) narrow_to(&x[i], static_cast<float>(i * factor % 97));
    return x;
}

template <typename T>
static void check_lane(const Fragments<T> &mine, int lane, const std::vector<T> &a,
                       const std::vector<T> &b) {
    auto at = [](const std::vector<T> &x, int row, int column) {
        return widened(x[row * INNER + column]);
    };
    for (int i = 0; i < 8; i++) {
        Place p = left_place(lane, i);
        THAT(part_of<T>(mine.left.of, i) == at(a, p.row, p.column));
    }
    for (int i = 0; i < 4; i++)
        for (int n = 0; n < 2; n++) { // the columns 0 to 7, and 8 to 15
            Place p = right_place(lane, i);
            THAT(part_of<T>(mine.rows[n].of, i) == at(b, p.column + 8 * n, p.row));
            THAT(part_of<T>(mine.turned[n].of, i) == at(b, p.row, p.column + 8 * n));
        }
    for (int i = 0; i < 4; i++) {
        Place p = sums_place(lane, i);
        double sum = 1000;
        for (int k = 0; k < INNER; k++)
            sum +=
                static_cast<double>(at(a, p.row, k)) * static_cast<double>(at(b, k, p.column + 8));
        THAT(static_cast<double>(mine.sums.of[i]) == sum);
    }
}

template <typename T> static int check_layout() {
    cudaStream_t stream = stream_new();
    const std::vector<T> a = numbers<T>(29), b = numbers<T>(31);
    T *left = device_of(a, stream), *right = device_of(b, stream);
    auto *device = device_new<Fragments<T>>(LANES);
    launch(stream, 1, LANES, load_all<T>, left, right, device);
    const std::vector<Fragments<T>> lanes = fetch(device, LANES, stream);
    for (int lane = 0; lane < LANES; lane++) check_lane(lanes[lane], lane, a, b);
    OK(cudaFree(left));
    OK(cudaFree(right));
    OK(cudaFree(device));
    OK(cudaStreamDestroy(stream));
    return 0;
}

static void the_layout_is_the_documented_one(void **) {
    expect_good(check_layout<__half>);
    expect_good(check_layout<__nv_bfloat16>);
}

static void other_tensor_cores_are_seen(void **) {
    Outcome outcome = run({{"DDPC_EMULATED_TENSOR_CORES", "0"}}, check_layout<__half>);
    assert_true(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == 1);
    assert_non_null(strstr(outcome.said.c_str(), "mine.sums.of[i]"));
}

// Two neighbouring fragments of sums, rounded, form the left factor of the next product.
static void sums_are_a_left_factor(void **) {
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 8; i++) {
            Place left = left_place(lane, i), sums = sums_place(lane, i % 4);
            assert_int_equal(left.row, sums.row);
            assert_int_equal(left.column, sums.column + i / 4 * 8);
        }
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(the_layout_is_the_documented_one),
        cmocka_unit_test(other_tensor_cores_are_seen),
        cmocka_unit_test(sums_are_a_left_factor),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
