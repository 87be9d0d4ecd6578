/* test_cuda_emulator.cpp: the CUDA emulator's kernels, memory and devices behave like CUDA's, and
 * each error that the emulator detects is made here on purpose (a missing barrier, a host that
 * accesses device memory, ...).
 */
#include "rig.h"

#include <nccl.h>

// ---- kernels -----------------------------------------------------------------------------------

// sums[block] of 256 threads each, with shuffles and then with shared memory.
__global__ void __launch_bounds__(256) sum(const float *x, float *sums, int count) {
    __shared__ float of_warps[8];
    float value = 0;
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
         i += static_cast<int>(gridDim.x * blockDim.x))
        value += __ldg(x + i);
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffff, value, lanes);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    for (int half = 4; half > 0; half /= 2) {
        if (static_cast<int>(threadIdx.x) < half)
            of_warps[threadIdx.x] += of_warps[static_cast<int>(threadIdx.x) + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = of_warps[0];
}

static void test_barriers_and_shuffles(void **) {
    for (const char *seed : {"0", "1", "2", "3"})
        expect_good(
            [] {
                std::vector<float> x(10007, 1);
                cudaStream_t stream = stream_new();
                float *device = device_of(x, stream), *sums = device_new<float>(3);
                launch(stream, 3, 256, sum, device, sums, 10007);
                std::vector<float> y = fetch(sums, 3, stream);
                THAT(y[0] + y[1] + y[2] == 10007 && y[0] > 3000 && y[2] > 3000);
                OK(cudaFree(device));
                OK(cudaFree(sums));
                OK(cudaStreamDestroy(stream));
                return 0;
            },
            {{"DDPC_EMULATOR_SEED", seed}});
}

__global__ void shuffles(int *y) { // y[9, 64]
    int t = static_cast<int>(threadIdx.x), *mine = y + t;
    mine[0 * 64] = __shfl_sync(0xffffffff, t, 5);
    mine[1 * 64] = __shfl_up_sync(0xffffffff, t, 3);
    mine[2 * 64] = __shfl_down_sync(0xffffffff, t, 3);
    mine[3 * 64] = __shfl_xor_sync(0xffffffff, t, 9);
    mine[4 * 64] = __shfl_down_sync(0xffffffff, t, 1, 8);
    mine[5 * 64] = static_cast<int>(__ballot_sync(0xffffffff, t % 3 == 0));
    mine[6 * 64] = __any_sync(0xffffffff, t == 40) * 2 + __all_sync(0xffffffff, t < 40);
    mine[7 * 64] = -1;
    if (t % 32 < 4) // 4 lanes of each warp
        mine[7 * 64] = __shfl_xor_sync(0xf, t, 1);
    mine[8 * 64] = static_cast<int>(__shfl_sync(0xffffffff, 1e300 * t, 7) / 1e299);
}

static void test_shuffles_one_by_one(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        int *device = device_new<int>(9 * 64);
        launch(stream, 1, 64, shuffles, device);
        std::vector<int> y = fetch(device, 9 * 64, stream);
        for (int t = 0; t < 64; t++) {
            int lane = t % 32, warp = t - lane, ballot = 0;
            for (int i = 0; i < 32; i++)
                ballot |= static_cast<int>(static_cast<unsigned>((warp + i) % 3 == 0) << i);
            auto at = [&](int row) { return y[static_cast<size_t>(row * 64 + t)]; };
            THAT(at(0) == warp + 5);
            THAT(at(1) == (lane >= 3 ? t - 3 : t));
            THAT(at(2) == (lane < 29 ? t + 3 : t));
            THAT(at(3) == (t ^ 9));
            THAT(at(4) == (lane % 8 < 7 ? t + 1 : t));
            THAT(at(5) == ballot);
            THAT(at(6) == (t < 32 ? 1 : 2));
            THAT(at(7) == (lane < 4 ? (t ^ 1) : -1));
            THAT(at(8) == (warp + 7) * 10);
        }
        OK(cudaFree(device));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

__global__ void votes(int *y, unsigned *sum, unsigned long long *largest) {
    int t = static_cast<int>(threadIdx.x);
    int all = __syncthreads_and(t < 100), any = __syncthreads_or(t == 99);
    int count = __syncthreads_count(t % 2);
    y[t] = all * 10000 + any * 1000 + count;
    atomicAdd(sum, threadIdx.x);
    atomicMax(largest, 7ull * threadIdx.x);
}

static void test_votes_and_atomics(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        int *y = device_new<int>(100);
        unsigned *sum = device_of(std::vector<unsigned>{0}, stream);
        auto *largest = device_of(std::vector<unsigned long long>{0}, stream);
        launch(stream, 1, 100, votes, y, sum, largest);
        for (int value : fetch(y, 100, stream)) THAT(value == 11050);
        THAT(fetch(sum, 1, stream)[0] == 4950 && fetch(largest, 1, stream)[0] == 693);
        for (void *memory :
             {static_cast<void *>(y), static_cast<void *>(sum), static_cast<void *>(largest)})
            OK(cudaFree(memory));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

// ---- wrong kernels -----------------------------------------------------------------------------

__global__ void neighbours(int *y, bool with_barrier) {
    __shared__ int shared[64];
    shared[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (with_barrier) __syncthreads();
    y[threadIdx.x] = shared[(threadIdx.x + 63) % 64];
}

static int neighbours_are_wrong(bool with_barrier) {
    cudaStream_t stream = stream_new();
    int *y = device_new<int>(64);
    launch(stream, 1, 64, neighbours, y, with_barrier);
    std::vector<int> values = fetch(y, 64, stream);
    for (int t = 0; t < 64; t++)
        if (values[static_cast<size_t>(t)] != (t + 63) % 64) return 1;
    return 0;
}

static void test_a_missing_barrier_is_seen(void **) {
    assert_int_equal(seeds_that_see(8, [] { return neighbours_are_wrong(true); }), 0);
    assert_true(seeds_that_see(8, [] { return neighbours_are_wrong(false); }) > 0);
}

// Each block reads shared memory that only a previous block may have written.
__global__ void unwritten(float *y) {
    __shared__ float shared[64];
    y[blockIdx.x * 64 + threadIdx.x] = shared[threadIdx.x];
    shared[threadIdx.x] = 1;
}

static void test_shared_memory_is_nan(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        float *y = device_new<float>(5 * 64);
        for (int launches = 0; launches < 3; launches++) {
            launch(stream, 5, 64, unwritten, y);
            for (float value : fetch(y, 5 * 64, stream)) THAT(std::isnan(value));
        }
        OK(cudaFree(y));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

template <typename T> __global__ void diverging(T *y) {
    if (threadIdx.x < 7) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}

__global__ void lonely(int *y) {
    if (threadIdx.x != 3) y[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1);
}

__global__ void unmasked(int *y) {
    y[threadIdx.x] = __shfl_down_sync(0xf, 1, 1);
}

static void test_diverging_threads_are_named(void **) {
    expect_death(SIGABRT, "void diverging<float>(float*), block (0, 0, 0)", [] {
        launch(stream_new(), 2, 64, diverging<float>, device_new<float>(64));
        OK(cudaDeviceSynchronize());
        return 0;
    });
    expect_death(SIGABRT,
                 "31 wait for other lanes of their warp (thread 0), 33 have ended (thread 3)", [] {
                     cudaStream_t stream = stream_new();
                     launch(stream, 1, 64, lonely, device_new<int>(64));
                     return static_cast<int>(cudaStreamSynchronize(stream));
                 });
    expect_death(SIGABRT, "is not in the mask 0000000f", [] {
        launch(stream_new(), 1, 32, unmasked, device_new<int>(64));
        return static_cast<int>(cudaDeviceSynchronize());
    });
}

static void test_wrong_launches_are_refused(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        float *x = nullptr;
        cudaLaunchConfig_t config = threads_of(stream, 1, 1025);
        THAT(cudaLaunchKernelEx(&config, fill, x, 0.0f, 0) == cudaErrorInvalidConfiguration);
        config = threads_of(stream, 0, 32);
        THAT(cudaLaunchKernelEx(&config, fill, x, 0.0f, 0) == cudaErrorInvalidConfiguration);
        config = threads_of(stream, 1, 32);
        OK(cudaSetDevice(1)); // the stream belongs to device 0
        THAT(cudaLaunchKernelEx(&config, fill, x, 0.0f, 0) == cudaErrorInvalidResourceHandle);
        THAT(cudaPeekAtLastError() == cudaErrorInvalidResourceHandle);
        THAT(cudaGetLastError() == cudaErrorInvalidResourceHandle);
        THAT(cudaGetLastError() == cudaSuccess);
        OK(cudaStreamDestroy(stream));
        THAT(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
        return 0;
    });
    expect_death(SIGABRT, "argument 1 of fill(float*, float, int) points to ordinary memory", [] {
        float x;
        launch(stream_new(), 1, 32, fill, &x, 0.0f, 1);
        return 0;
    });
}

// ---- memory ------------------------------------------------------------------------------------

static void test_wrong_accesses_die_with_a_word(void **) {
    expect_death(SIGSEGV, "the host touched device memory of GPU 0", [] {
        float *x = device_new<float>(4);
        *x = 1;
        return 0;
    });
    expect_death(SIGSEGV, "fill(float*, float, int) touched memory", [] { // in the guard page
        float *x = device_new<float>(128);
        launch(stream_new(), 1, 32, fill, x, 1.0f, 129);
        return static_cast<int>(cudaDeviceSynchronize());
    });
    expect_death(SIGABRT, "wrote outside of an allocation of 400 bytes", [] {
        float *x = device_new<float>(100);
        launch(stream_new(), 1, 32, fill, x, 1.0f, 101);
        return static_cast<int>(cudaFree(x));
    });
    expect_death(SIGSEGV, "touched memory that was freed", [] {
        cudaStream_t stream = stream_new();
        float *x = device_new<float>(4), *y = device_new<float>(4);
        launch(stream, 1, 32, add, x, y, 4);
        OK(cudaFree(y)); // waits for the first add
        struct Pointers {
            float *x, *y;
        };
        auto kernel = +[](Pointers p) { *p.x = *p.y; }; // in a struct: not checked at the launch
        launch(stream, 1, 1, kernel, Pointers{x, y});
        return static_cast<int>(cudaStreamSynchronize(stream));
    });
    expect_death(SIGABRT, "points to memory that was freed", [] {
        float *x = device_new<float>(4);
        OK(cudaFree(x));
        launch(stream_new(), 1, 32, fill, x, 1.0f, 4);
        return 0;
    });
}

static void test_new_memory_is_nan(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        float *x = device_new<float>(1000);
        for (float value : fetch(x, 1000, stream)) THAT(std::isnan(value));
        OK(cudaFree(x));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

static void test_memory_ends(void **) {
    expect_good(
        [] {
            void *half, *more;
            size_t left, total;
            OK(cudaMalloc(&half, 600000));
            THAT(cudaMalloc(&more, 600000) == cudaErrorMemoryAllocation && more == nullptr);
            THAT(cudaGetLastError() == cudaErrorMemoryAllocation);
            OK(cudaMemGetInfo(&left, &total));
            THAT(total == 1000000 && left <= 400000 && left > 399000);
            OK(cudaSetDevice(1));
            OK(cudaMalloc(&more, 600000));
            OK(cudaFree(half));
            OK(cudaFree(more));
            OK(cudaFree(nullptr));
            return 0;
        },
        {{"DDPC_EMULATED_MEMORY", "1000000"}});
}

static void test_books_of_memory(void **) {
    Outcome outcome = run({}, [] {
        void *memory, *pinned;
        OK(cudaMalloc(&memory, 100));
        OK(cudaHostAlloc(&pinned, 1, 0));
        THAT(cudaFree(static_cast<char *>(memory) + 1) == cudaErrorInvalidValue);
        THAT(cudaFree(pinned) == cudaErrorInvalidValue);
        OK(cudaFree(memory));
        THAT(cudaFree(memory) == cudaErrorInvalidValue);
        device_new<float>(10);
        return 0;
    });
    assert_int_equal(outcome.status, 0);
    assert_non_null(strstr(outcome.said.c_str(), "was never allocated"));
    assert_non_null(strstr(outcome.said.c_str(), "was freed already"));
    assert_non_null(
        strstr(outcome.said.c_str(), "never given back: 40 bytes of device memory, 1 "));
}

static void test_pointers_and_copies(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        float *x = device_new<float>(4), *pinned = pinned_new<float>(4), plain[4] = {};
        struct cudaPointerAttributes a;
        OK(cudaPointerGetAttributes(&a, x + 3));
        THAT(a.type == cudaMemoryTypeDevice && a.device == 0);
        OK(cudaPointerGetAttributes(&a, pinned));
        THAT(a.type == cudaMemoryTypeHost);
        OK(cudaPointerGetAttributes(&a, plain));
        THAT(a.type == cudaMemoryTypeUnregistered);
        THAT(cudaMemcpyAsync(x, plain, 20, cudaMemcpyHostToDevice, stream) ==
             cudaErrorInvalidValue);
        THAT(cudaMemcpyAsync(x, plain, 16, cudaMemcpyDeviceToDevice, stream) ==
             cudaErrorInvalidValue);
        THAT(cudaMemcpyAsync(plain, pinned, 16, cudaMemcpyDeviceToHost, stream) ==
             cudaErrorInvalidValue);
        THAT(cudaMemsetAsync(plain, 0, 16, stream) == cudaErrorInvalidValue);
        THAT(cudaMemcpyPeerAsync(x, 1, x, 0, 4, stream) == cudaErrorInvalidValue);
        OK(cudaFree(x));
        OK(cudaFreeHost(pinned));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

// ---- devices -----------------------------------------------------------------------------------

static int add_from_other_device(bool enable) {
    cudaStream_t first = stream_new();
    float *x = device_of(std::vector<float>(4, 1), first);
    OK(cudaStreamSynchronize(first));
    OK(cudaSetDevice(1));
    cudaStream_t second = stream_new();
    float *y = device_new<float>(4);
    OK(cudaMemcpyPeerAsync(y, 1, x, 0, 16, second)); // works without peer access
    if (enable) OK(cudaDeviceEnablePeerAccess(0, 0));
    launch(second, 1, 32, add, y, x, 4);
    return fetch(y, 4, second)[3] != 2;
}

static void test_peers(void **) {
    assert_int_equal(run({}, [] { return add_from_other_device(true); }).status, 0);
    expect_death(SIGSEGV, "add(float*, float const*, int), work of GPU 1, touched memory of GPU 0",
                 [] { return add_from_other_device(false); });
    expect_good(
        [] {
            int can = -1;
            OK(cudaDeviceCanAccessPeer(&can, 0, 1));
            THAT(can == 0);
            THAT(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessUnsupported);
            return 0;
        },
        {{"DDPC_EMULATED_PEERS", "0"}});
    expect_good([] {
        int can = -1;
        OK(cudaDeviceCanAccessPeer(&can, 0, 1));
        THAT(can == 1);
        OK(cudaDeviceEnablePeerAccess(1, 0));
        THAT(cudaDeviceEnablePeerAccess(1, 0) == cudaErrorPeerAccessAlreadyEnabled);
        return 0;
    });
}

static void test_devices(void **) {
    expect_good(
        [] {
            int count = -1, value = 0;
            struct cudaDeviceProp p;
            OK(cudaGetDeviceCount(&count));
            OK(cudaGetDeviceProperties(&p, 2));
            OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 2));
            THAT(count == 3 && p.multiProcessorCount == 2 && p.major == 9 && value == 9);
            THAT(strcmp(p.name, "emulated GPU (runs on the CPU)") == 0);
            THAT(cudaSetDevice(3) == cudaErrorInvalidDevice);
            pid_t child = fork(); // the child cannot use CUDA
            if (child == 0) _exit(cudaSetDevice(0) == cudaErrorInitializationError ? 0 : 1);
            int status = -1;
            THAT(waitpid(child, &status, 0) == child && status == 0);
            return 0;
        },
        {{"DDPC_EMULATED_GPUS", "3"}});
    expect_good(
        [] {
            int count = -1;
            void *memory;
            THAT(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0);
            THAT(cudaMalloc(&memory, 1) == cudaErrorNoDevice);
            return 0;
        },
        {{"DDPC_EMULATED_GPUS", "0"}});
    const struct {
        const char *visible, *first; // of four devices; bus id of the first, nullptr: none
        int count;
    } lists[] = {{"2", "0000:03:00.0", 1},
                 {"3,0,1", "0000:04:00.0", 3},
                 {"1,7,0", "0000:02:00.0", 1},
                 {"", nullptr, 0},
                 {"4", nullptr, 0},
                 {"none", nullptr, 0}};
    for (auto &list : lists)
        expect_good(
            [&] {
                int count = -1;
                char bus[16];
                cudaError_t error = cudaGetDeviceCount(&count);
                THAT(count == list.count && (error == cudaSuccess) == (count > 0));
                if (list.first == nullptr) return 0;
                OK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
                THAT(strcmp(bus, list.first) == 0);
                return 0;
            },
            {{"DDPC_EMULATED_GPUS", "4"}, {"CUDA_VISIBLE_DEVICES", list.visible}});
    Outcome outcome = run({{"DDPC_EMULATED_GPUS", "two"}}, [] { return cudaSetDevice(0) != 0; });
    assert_true(WIFSIGNALED(outcome.status));
    assert_non_null(strstr(outcome.said.c_str(), "DDPC_EMULATED_GPUS=two"));
}

// A call of a function that this version of NCCL does not have ends the program.
static void test_versions_of_nccl(void **) {
    auto allocate = [] {
        void *memory = nullptr;
        int version = 0;
        THAT(ncclGetVersion(&version) == ncclSuccess);
        THAT(ncclMemAlloc(&memory, 100) == ncclSuccess && ncclMemFree(memory) == ncclSuccess);
        return 0;
    };
    expect_good(allocate, {{"DDPC_EMULATED_NCCL_VERSION", "21903"}});
    Outcome outcome = run({{"DDPC_EMULATED_NCCL_VERSION", "21805"}}, allocate);
    assert_true(WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGABRT);
    assert_non_null(strstr(outcome.said.c_str(), "NCCL 2.18.5 has no ncclMemAlloc"));
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers_and_shuffles),
        cmocka_unit_test(test_shuffles_one_by_one),
        cmocka_unit_test(test_votes_and_atomics),
        cmocka_unit_test(test_a_missing_barrier_is_seen),
        cmocka_unit_test(test_shared_memory_is_nan),
        cmocka_unit_test(test_diverging_threads_are_named),
        cmocka_unit_test(test_wrong_launches_are_refused),
        cmocka_unit_test(test_wrong_accesses_die_with_a_word),
        cmocka_unit_test(test_new_memory_is_nan),
        cmocka_unit_test(test_memory_ends),
        cmocka_unit_test(test_books_of_memory),
        cmocka_unit_test(test_pointers_and_copies),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_versions_of_nccl),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
