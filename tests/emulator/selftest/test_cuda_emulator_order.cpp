/* test_cuda_emulator_order.cpp: the CUDA emulator's streams, events and graphs behave like CUDA's,
 * and a missing event causes wrong results.
 */
#include "rig.h"

#include <atomic>
#include <thread>

#include "tests/emulator/stream.h"

// ---- order of streams --------------------------------------------------------------------------

// One stream writes memory that another one reads.
static int reader_is_wrong(bool with_event) {
    cudaStream_t writer = stream_new(), reader = stream_new();
    cudaEvent_t written = event_new();
    float *x = device_new<float>(100), *y = device_of(std::vector<float>(100, 0), reader);
    launch(writer, 1, 32, fill, x, 1.0f, 100);
    launch(writer, 1, 32, fill, x, 2.0f, 100);
    OK(cudaEventRecord(written, writer));
    if (with_event) OK(cudaStreamWaitEvent(reader, written, 0));
    launch(reader, 1, 32, add, y, x, 100);
    return fetch(y, 100, reader)[99] != 2;
}

static void test_a_missing_event_is_seen(void **) {
    assert_int_equal(seeds_that_see(10, [] { return reader_is_wrong(true); }), 0);
    assert_true(seeds_that_see(10, [] { return reader_is_wrong(false); }) >= 3);
    assert_int_equal(
        run({{"DDPC_EMULATOR_SEED", "0"}}, [] { return reader_is_wrong(false); }).status, 0);
}

static void test_nothing_is_done_before_somebody_waits(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        cudaEvent_t event = event_new();
        THAT(cudaEventQuery(event) == cudaSuccess); // never recorded
        float *x = device_new<float>(4), *host = pinned_new<float>(4);
        host[0] = 1;
        OK(cudaMemcpyAsync(x, host, 16, cudaMemcpyHostToDevice, stream));
        host[0] = 2; // too early: pinned memory is read when the copy runs
        OK(cudaMemcpyAsync(host + 1, x, 4, cudaMemcpyDeviceToHost, stream));
        OK(cudaEventRecord(event, stream));
        float seen = host[1];
        THAT(seen != 2);
        OK(cudaEventSynchronize(event));
        THAT(host[1] == 2);
        float early = 3, late = 0;
        OK(cudaMemcpyAsync(x, &early, 4, cudaMemcpyHostToDevice, stream));
        early = 4; // allowed: pageable memory was read by the call
        OK(cudaMemcpyAsync(&late, x, 4, cudaMemcpyDeviceToHost, stream));
        THAT(late == 3);
        OK(cudaMemsetAsync(x, 0, 4, stream));
        while (cudaStreamQuery(stream) == cudaErrorNotReady) continue;
        THAT(fetch(x, 1, stream)[0] == 0);
        OK(cudaFree(x));
        OK(cudaFreeHost(host));
        OK(cudaEventDestroy(event));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

// Work for which no thread waits runs eventually: another process may wait for it.
static void test_work_goes_on_by_itself(void **) {
    expect_good([] {
        static std::atomic<bool> done{false};
        cudaStream_t stream = stream_new();
        OK(emulator::stream_put(stream, "work", [] {
            done = true;
            return true;
        }));
        while (!done) // otherwise an alarm ends the process
            usleep(1000);
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

// Two threads queue work on two devices, and each piece of work needs the other, as in NCCL.
static void test_work_that_waits_for_other_work(void **) {
    expect_good([] {
        static std::atomic<int> here{0};
        auto meet = [](int device) {
            OK(cudaSetDevice(device));
            cudaStream_t stream = stream_new();
            float *x = device_new<float>(1);
            for (int round = 1; round <= 20; round++) {
                OK(emulator::stream_put(stream, "meeting", [round, came = false]() mutable {
                    here += !came;
                    came = true;
                    return here >= 2 * round;
                }));
                launch(stream, 1, 32, fill, x, static_cast<float>(round), 1);
                THAT(fetch(x, 1, stream)[0] == static_cast<float>(round));
            }
            OK(cudaFree(x));
            OK(cudaStreamDestroy(stream));
        };
        std::thread other(meet, 1);
        meet(0);
        other.join();
        THAT(here == 40);
        return 0;
    });
}

// ---- graphs ------------------------------------------------------------------------------------

static cudaGraphExec_t instantiate(cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

static void test_graphs_replay(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new();
        float *x = device_new<float>(4), *y = device_new<float>(4), *host = pinned_new<float>(4);
        float value = 1;
        OK(cudaMemsetAsync(y, 0, 16, stream));
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        OK(cudaMemcpyAsync(x, host, 16, cudaMemcpyHostToDevice, stream));
        launch(stream, 1, 32, add, y, x, 4);
        launch(stream, 1, 32, fill, x, value, 4);
        launch(stream, 1, 32, add, y, x, 4);
        enum cudaStreamCaptureStatus status;
        OK(cudaStreamIsCapturing(stream, &status));
        THAT(status == cudaStreamCaptureStatusActive);
        cudaGraphExec_t exec = instantiate(stream);
        value = 100;                       // no effect: the argument was copied
        THAT(fetch(y, 1, stream)[0] == 0); // recorded, not executed
        for (float round : {10.0f, 20.0f, 30.0f}) {
            for (int i = 0; i < 4; i++) host[i] = round; // read by each replay
            OK(cudaGraphLaunch(exec, stream));
            OK(cudaStreamSynchronize(stream));
        }
        THAT(fetch(y, 4, stream)[3] == 63);
        OK(cudaGraphExecDestroy(exec));
        THAT(cudaGraphLaunch(exec, stream) == cudaErrorInvalidResourceHandle);
        OK(cudaFree(x));
        OK(cudaFree(y));
        OK(cudaFreeHost(host));
        OK(cudaStreamDestroy(stream));
        return 0;
    });
}

// A second stream joins the recording: y = (1 + 2) there, then y += x.
static int forked_graph_is_wrong(bool with_join_before_use) {
    cudaStream_t stream = stream_new(), side = stream_new();
    cudaEvent_t fork = event_new(), join = event_new();
    float *x = device_new<float>(4), *y = device_new<float>(4);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    launch(stream, 1, 32, fill, y, 1.0f, 4);
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    launch(side, 1, 32, fill, x, 2.0f, 4);
    launch(side, 1, 32, add, x, y, 4);
    OK(cudaEventRecord(join, side));
    if (with_join_before_use) OK(cudaStreamWaitEvent(stream, join, 0));
    launch(stream, 1, 32, add, y, x, 4);
    OK(cudaStreamWaitEvent(stream, join, 0)); // joined, but only after the add
    cudaGraphExec_t exec = instantiate(stream);
    OK(cudaGraphLaunch(exec, stream));
    return fetch(y, 4, stream)[0] != 4;
}

static void test_a_missing_event_in_a_graph_is_seen(void **) {
    assert_int_equal(seeds_that_see(10, [] { return forked_graph_is_wrong(true); }), 0);
    assert_true(seeds_that_see(10, [] { return forked_graph_is_wrong(false); }) >= 2);
}

static void begin(cudaStream_t stream) {
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

// While the stream is recording, body() must return the error, and the recording must then be
// invalid.
template <typename Body>
static void expect_refused(cudaStream_t stream, cudaError_t error, Body body) {
    cudaGraph_t graph;
    begin(stream);
    THAT(body() == error);
    THAT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
    THAT(graph == nullptr);
}

static void test_what_cannot_be_recorded(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new(), side = stream_new();
        cudaEvent_t event = event_new(), outside = event_new();
        float *x = device_new<float>(4), plain = 0;
        void *memory;
        expect_refused(stream, cudaErrorStreamCaptureUnsupported,
                       [&] { return cudaStreamSynchronize(stream); });
        expect_refused(stream, cudaErrorStreamCaptureUnsupported,
                       [&] { return cudaDeviceSynchronize(); });
        expect_refused(stream, cudaErrorStreamCaptureUnsupported,
                       [&] { return cudaMalloc(&memory, 16); });
        expect_refused(stream, cudaErrorStreamCaptureUnsupported, [&] {
            return cudaMemcpyAsync(x, &plain, 4, cudaMemcpyHostToDevice, stream);
        });
        expect_refused(stream, cudaErrorCapturedEvent, [&] {
            OK(cudaEventRecord(event, stream));
            return cudaEventSynchronize(event);
        });
        OK(cudaEventRecord(outside, side));
        expect_refused(stream, cudaErrorStreamCaptureIsolation,
                       [&] { return cudaStreamWaitEvent(stream, outside, 0); });
        OK(cudaFree(x));
        for (cudaEvent_t e : {event, outside}) OK(cudaEventDestroy(e));
        for (cudaStream_t s : {stream, side}) OK(cudaStreamDestroy(s));
        return 0;
    });
}

static void test_forks_must_be_joined(void **) {
    expect_good([] {
        cudaStream_t stream = stream_new(), side = stream_new();
        cudaEvent_t event = event_new();
        cudaGraph_t graph;
        auto fork = [&] {
            OK(cudaEventRecord(event, stream));
            OK(cudaStreamWaitEvent(side, event, 0));
            OK(emulator::stream_put(side, "work", [] { return true; }));
        };
        expect_refused(stream, cudaErrorStreamCaptureUnmatched, [&] {
            fork();
            return cudaStreamEndCapture(side, &graph);
        });
        begin(stream);
        fork();
        THAT(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined);
        OK(cudaStreamSynchronize(side)); // no longer recording
        begin(stream);
        fork();
        OK(cudaEventRecord(event, side));
        OK(cudaStreamWaitEvent(stream, event, 0));
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphDestroy(graph));
        THAT(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
        OK(cudaEventDestroy(event));
        for (cudaStream_t s : {stream, side}) OK(cudaStreamDestroy(s));
        return 0;
    });
}

int main() {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_event_is_seen),
        cmocka_unit_test(test_nothing_is_done_before_somebody_waits),
        cmocka_unit_test(test_work_goes_on_by_itself),
        cmocka_unit_test(test_work_that_waits_for_other_work),
        cmocka_unit_test(test_graphs_replay),
        cmocka_unit_test(test_a_missing_event_in_a_graph_is_seen),
        cmocka_unit_test(test_what_cannot_be_recorded),
        cmocka_unit_test(test_forks_must_be_joined),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
