/* test_cuda_races.cpp: the race checker ends a program at each kind of race inside a kernel, with
 * both source lines, and reports no race where accesses are ordered. The seed is 0, so threads run
 * one after another in order, and most of these kernels compute correct values in spite of their
 * race.
 */
#include "rig.h"

enum { THREADS = 64 };

// Runs the kernel. Its arguments are integers, initially 0.
static int run_kernel(void (*kernel)(unsigned *), unsigned blocks) {
    cudaStream_t stream = stream_new();
    unsigned *x = device_of(std::vector<unsigned>(4096), stream);
    launch(stream, blocks, THREADS, kernel, x);
    fetch(x, 4096, stream);
    OK(cudaFree(x));
    OK(cudaStreamDestroy(stream));
    return 0;
}

static void expect_race(const char *words, void (*kernel)(unsigned *), unsigned blocks) {
    Outcome outcome =
        run({{"DDPC_EMULATOR_SEED", "0"}}, [=] { return run_kernel(kernel, blocks); });
    if (!WIFSIGNALED(outcome.status) || WTERMSIG(outcome.status) != SIGABRT ||
        outcome.said.find(words) == std::string::npos)
        fail_msg("status %d, not '%s', said: %s", outcome.status, words, outcome.said.c_str());
    if (outcome.said.find("test_cuda_races.cpp:") == std::string::npos)
        fail_msg("no place in: %s", outcome.said.c_str());
}

static void expect_order(void (*kernel)(unsigned *), unsigned blocks) {
    for (const char *seed : {"0", "1", "2"})
        expect_good([=] { return run_kernel(kernel, blocks); }, {{"DDPC_EMULATOR_SEED", seed}});
}

// ---- within a block ----------------------------------------------------------------------------

enum class Sync { none, warp, block };

template <Sync sync> __device__ void wait() {
    if (sync == Sync::warp) __syncwarp();
    if (sync == Sync::block) __syncthreads();
}

// Each thread reads the value of thread threadIdx.x - distance.
template <Sync sync, unsigned distance, bool is_shared> __global__ void before(unsigned *x) {
    __shared__ unsigned shared[THREADS];
    x += blockIdx.x * 2 * THREADS;
    unsigned *values = is_shared ? shared : x;
    values[threadIdx.x] = threadIdx.x;
    wait<sync>();
    x[THREADS + threadIdx.x] = values[(threadIdx.x / 32 * 32 + threadIdx.x + 64 - distance) % 64];
}

// Each lane reads its neighbour's value, twice, with writes in between.
template <Sync first, Sync second> __global__ void twice(unsigned *x) {
    __shared__ unsigned shared[THREADS];
    x += blockIdx.x * 2 * THREADS;
    for (int i = 0; i < 2; i++) {
        shared[threadIdx.x] = threadIdx.x;
        wait<first>();
        x[THREADS + threadIdx.x] = shared[threadIdx.x ^ 1];
        wait<second>();
    }
}

static void test_within_a_block(void **) {
    expect_race("reads shared memory", before<Sync::none, 1, true>, 1);
    expect_race("reads shared memory", before<Sync::warp, 33, true>, 1);
    expect_race("reads memory", before<Sync::none, 1, false>, 1);
    expect_race("race in", twice<Sync::block, Sync::none>, 1);
    expect_race("reads shared memory", twice<Sync::none, Sync::block>, 1);
    expect_order(before<Sync::block, 1, true>, 3);
    expect_order(before<Sync::block, 33, false>, 1);
    expect_order(twice<Sync::warp, Sync::warp>, 3);
    expect_order(twice<Sync::block, Sync::block>, 3);
}

// A vote makes all lanes wait for each other, but does not order memory accesses.
__global__ void voted(unsigned *x) {
    __shared__ unsigned shared[THREADS];
    shared[threadIdx.x] = threadIdx.x;
    if (__ballot_sync(0xffffffff, 1) != 0) x[threadIdx.x] = shared[threadIdx.x ^ 1];
}

// Two threads write the same value: still a race.
__global__ void agreed(unsigned *x) {
    if (threadIdx.x < 2) x[0] = 7;
}

static void test_votes_and_equal_values_are_no_order(void **) {
    expect_race("reads shared memory", voted, 1);
    expect_race("writes memory", agreed, 1);
}

template <bool clears_first, Sync sync> __global__ void histogram(unsigned *x) {
    __shared__ unsigned counts[8];
    if (threadIdx.x < 8) counts[threadIdx.x] = 0;
    if (clears_first) __syncthreads();
    atomicAdd(&counts[threadIdx.x * 5 % 8], 1u);
    wait<sync>();
    if (threadIdx.x < 8) atomicAdd(&x[threadIdx.x], counts[threadIdx.x]);
}

static void test_atomics_and_plain_accesses(void **) {
    expect_race("shared memory", histogram<false, Sync::block>, 1);
    expect_race("changes by an atomic", histogram<true, Sync::none>, 1);
    expect_order(histogram<true, Sync::block>, 5);
}

__global__ void unwritten(unsigned *x) {
    __shared__ unsigned shared[THREADS];
    if (threadIdx.x != 9 || blockIdx.x != 2) shared[threadIdx.x] = 1;
    __syncthreads();
    x[blockIdx.x * THREADS + threadIdx.x] = shared[threadIdx.x];
}

static void test_unwritten_shared_memory(void **) {
    expect_race("reads shared memory that no thread of its block has written", unwritten, 4);
    expect_order(unwritten, 2);
}

// ---- between blocks ----------------------------------------------------------------------------

enum Fences { NEITHER = 0, RELEASE = 1, ACQUIRE = 2, BOTH = 3 };

// The block that arrives last sums all numbers; x[0] counts the arrivals.
template <int fences, bool by_all> __global__ void last_block(unsigned *x) {
    __shared__ bool is_last;
    if (by_all) {
        x[64 + blockIdx.x * THREADS + threadIdx.x] = 1;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        if (!by_all) x[64 + blockIdx.x * THREADS] = 1;
        if (fences & RELEASE) __threadfence();
        is_last = atomicAdd(x, 1u) == gridDim.x - 1;
        if (fences & ACQUIRE) __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    for (unsigned block = threadIdx.x; block < gridDim.x; block += THREADS)
        atomicAdd(x + 1, x[64 + block * THREADS]);
    if (threadIdx.x == 0) x[0] = 0;
}

__global__ void same_place(unsigned *x) {
    if (threadIdx.x == 0) x[0] = blockIdx.x;
}

static void test_between_blocks(void **) {
    expect_race("of another block wrote", last_block<NEITHER, false>, 5);
    expect_race("of another block wrote", last_block<RELEASE, false>, 5);
    expect_race("of another block wrote", last_block<ACQUIRE, false>, 5);
    expect_race("of another block wrote", last_block<ACQUIRE, true>, 5);
    expect_race("writes memory", same_place, 2);
    expect_order(last_block<BOTH, false>, 5);
    expect_order(last_block<BOTH, true>, 40);
    expect_order(same_place, 1);
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_a_block),
        cmocka_unit_test(test_votes_and_equal_values_are_no_order),
        cmocka_unit_test(test_atomics_and_plain_accesses),
        cmocka_unit_test(test_unwritten_shared_memory),
        cmocka_unit_test(test_between_blocks),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
