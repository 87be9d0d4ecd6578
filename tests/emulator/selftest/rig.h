/* rig.h: functions shared by the tests of the CUDA emulator.
 *
 * Every case runs in its own process, because the emulator reads its settings once and because many
 * cases must end by a signal. The process's exit status and stderr are checked: a correct case
 * prints nothing, also no report of memory that was not freed.
 */
#ifndef TESTS_EMULATOR_RIG_H
#define TESTS_EMULATOR_RIG_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>

extern "C" {
#include <cmocka.h>
}

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

// ---- a process for each case -------------------------------------------------------------------

struct Outcome {
    int status;       // from waitpid
    std::string said; // its stderr
};

using Settings = std::vector<std::pair<const char *, std::string>>;

// Runs body() in a new process, whose exit status is body's result.
template <typename Body> inline Outcome run(const Settings &settings, Body body) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("DDPC_EMULATED_CAPABILITY", "90", 1); // overrides the capability of other tests
        unsetenv("DDPC_EMULATED_NCCL_VERSION");
        for (auto &setting : settings) setenv(setting.first, setting.second.c_str(), 1);
        for (int number : {SIGSEGV, SIGABRT}) // removes cmocka's handlers
            signal(number, SIG_DFL);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        alarm(60);
        exit(body());
    }
    close(ends[1]);
    Outcome outcome = {};
    char text[512];
    for (ssize_t length; (length = read(ends[0], text, sizeof text)) > 0;)
        outcome.said.append(text, static_cast<size_t>(length));
    close(ends[0]);
    assert_int_equal(waitpid(child, &outcome.status, 0), child);
    return outcome;
}

template <typename Body> inline void expect_good(Body body, const Settings &settings = {}) {
    Outcome outcome = run(settings, body);
    if (outcome.status != 0 || !outcome.said.empty())
        fail_msg("status %d, said: %s", outcome.status, outcome.said.c_str());
}

// The process must end by the signal and print these words.
template <typename Body> inline void expect_death(int number, const char *words, Body body) {
    Outcome outcome = run({}, body);
    if (!WIFSIGNALED(outcome.status) || WTERMSIG(outcome.status) != number ||
        outcome.said.find(words) == std::string::npos)
        fail_msg("status %d, said: %s", outcome.status, outcome.said.c_str());
}

// The number of seeds 1 .. count for which body() returns nonzero.
template <typename Body> inline int seeds_that_see(int count, Body body) {
    int seen = 0;
    for (int seed = 1; seed <= count; seed++) {
        Outcome outcome = run({{"DDPC_EMULATOR_SEED", std::to_string(seed)}}, body);
        assert_true(WIFEXITED(outcome.status));
        seen += outcome.status != 0;
    }
    return seen;
}

// For the body of a case:
#define OK(call)                                                                  \
    do {                                                                          \
        cudaError_t error_ = (call);                                              \
        if (error_ != cudaSuccess) {                                              \
            fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorName(error_)); \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)
#define THAT(condition)                                                     \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
            _exit(1);                                                       \
        }                                                                   \
    } while (0)

inline cudaStream_t stream_new() {
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

inline cudaEvent_t event_new() {
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

template <typename T> inline T *device_new(size_t count) {
    void *memory;
    OK(cudaMalloc(&memory, count * sizeof(T)));
    return static_cast<T *>(memory);
}

template <typename T> inline T *pinned_new(size_t count) {
    void *memory;
    OK(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocPortable));
    return static_cast<T *>(memory);
}

template <typename T>
inline std::vector<T> fetch(const T *memory, size_t count, cudaStream_t stream) {
    std::vector<T> values(count);
    OK(cudaMemcpyAsync(values.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    return values;
}

template <typename T> inline T *device_of(const std::vector<T> &values, cudaStream_t stream) {
    T *memory = device_new<T>(values.size());
    OK(cudaMemcpyAsync(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                       stream));
    return memory;
}

inline cudaLaunchConfig_t threads_of(cudaStream_t stream, unsigned blocks, unsigned threads) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.stream = stream;
    return config;
}

template <typename... Parameters, typename... Arguments>
inline void launch(cudaStream_t stream, unsigned blocks, unsigned threads,
                   void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchConfig_t config = threads_of(stream, blocks, threads);
    OK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

// ---- kernels of several cases ------------------------------------------------------------------

__global__ void fill(float *x, float value, int count) {
    for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count;
         i += static_cast<int>(gridDim.x * blockDim.x))
        x[i] = value;
}

__global__ void add(float *y, const float *x, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        y[i] += x[i];
}

#endif
