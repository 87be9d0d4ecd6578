/* graph.cpp: records calls on streams into graphs, and replays them.
 *
 * While a stream is recording, its tasks become nodes of a graph instead of being queued. A node
 * depends on the previous node of its stream. An event that is recorded on one stream and waited
 * for on another makes the other stream record too, with a dependency (the fork); before the
 * recording ends, the first stream must wait for each such stream in the same way (the join).
 *
 * A replay queues all nodes on one stream, in a random order that the graph's dependencies allow,
 * so that a missing event between two recorded streams changes results. A kernel's arguments are
 * those of its recording; a copy reads memory when it is replayed.
 */
#include <algorithm>

#include "emulator.h"

struct CUgraph_st {
    emulator::Nodes nodes;
};

struct CUgraphExec_st {
    emulator::Nodes nodes;
};

namespace emulator {

void capture_record(cudaStream_t stream, Task task) {
    Nodes &nodes = stream->capture->nodes;
    nodes.push_back({std::move(task), stream->tail});
    stream->tail = {nodes.size() - 1};
}

cudaError_t capture_wait(cudaStream_t stream, cudaEvent_t event) {
    if (event->capture == nullptr) { // recorded outside of the capture
        if (event->last == nullptr) return cudaSuccess;
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (event->capture->origin == nullptr) // that capture has ended
        return cudaErrorCapturedEvent;
    if (stream->capture != nullptr && stream->capture != event->capture) {
        stream->capture->invalid = event->capture->invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    stream->capture = event->capture;
    for (size_t node : event->tail)
        if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
            stream->tail.push_back(node);
    return cudaSuccess;
}

cudaError_t capture_forbids(Runtime &r) {
    for (auto &capture : r.captures)
        if (capture->mode == cudaStreamCaptureModeGlobal ||
            (capture->mode == cudaStreamCaptureModeThreadLocal &&
             capture->thread == std::this_thread::get_id())) {
            capture->invalid = true;
            return cudaErrorStreamCaptureUnsupported;
        }
    return cudaSuccess;
}

cudaError_t capture_forbids_wait(Runtime &r, cudaStream_t stream) {
    if (stream->capture == nullptr) return capture_forbids(r);
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

static cudaError_t begin(Runtime &r, cudaStream_t stream, cudaStreamCaptureMode mode) {
    if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->tail.clear();
    r.captures.push_back(stream->capture);
    return cudaSuccess;
}

// Whether the last node of each recording stream is, or precedes, one of the origin's last nodes.
static bool all_joined(const Runtime &r, const Capture &capture) {
    std::vector<bool> before(capture.nodes.size(), false);
    for (size_t node : capture.origin->tail) before[node] = true;
    for (size_t i = capture.nodes.size(); i-- > 0;)
        if (before[i])
            for (size_t node : capture.nodes[i].after) before[node] = true;
    for (auto &stream : r.streams)
        if (stream->capture.get() == &capture)
            for (size_t node : stream->tail)
                if (!before[node]) return false;
    return true;
}

static cudaError_t end(Runtime &r, cudaStream_t stream, cudaGraph_t *graph) {
    *graph = nullptr;
    if (stream_find(r, stream) == nullptr || stream->capture == nullptr)
        return cudaErrorIllegalState;
    std::shared_ptr<Capture> capture = stream->capture;
    if (capture->origin != stream) {
        capture->invalid = true;
        return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
        return cudaErrorStreamCaptureWrongThread;
    cudaError_t error = capture->invalid           ? cudaErrorStreamCaptureInvalidated
                        : !all_joined(r, *capture) ? cudaErrorStreamCaptureUnjoined
                                                   : cudaSuccess;
    for (auto &joined : r.streams)
        if (joined->capture == capture) {
            joined->capture = nullptr;
            joined->tail.clear();
        }
    capture->origin = nullptr;
    r.captures.erase(std::find(r.captures.begin(), r.captures.end(), capture));
    if (error == cudaSuccess) {
        *graph = new CUgraph_st{std::move(capture->nodes)};
        r.graphs.insert(*graph);
    }
    return error;
}

// A random order that the graph's dependencies allow; with seed 0 the order of recording.
static std::vector<size_t> replay_order(Runtime &r, const Nodes &nodes) {
    std::vector<size_t> order, ready, missing(nodes.size());
    std::vector<std::vector<size_t>> next(nodes.size());
    for (size_t i = 0; i < nodes.size(); i++) {
        missing[i] = nodes[i].after.size();
        for (size_t node : nodes[i].after) next[node].push_back(i);
        if (missing[i] == 0) ready.push_back(i);
    }
    while (!ready.empty()) {
        size_t pick = r.settings.seed != 0 ? r.random() % ready.size() : 0;
        size_t node = ready[pick];
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
        order.push_back(node);
        for (size_t follower : next[node])
            if (--missing[follower] == 0)
                ready.insert(std::upper_bound(ready.begin(), ready.end(), follower), follower);
    }
    return order;
}

static cudaError_t launch(Runtime &r, Lock &lock, cudaGraphExec_t exec, cudaStream_t stream) {
    if (r.graphs.count(exec) == 0 || stream_find(r, stream) == nullptr)
        return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) { // child graphs are not emulated
        stream->capture->invalid = true;
        return cudaErrorStreamCaptureUnsupported;
    }
    count_call(r, "cudaGraphLaunch");
    for (size_t node : replay_order(r, exec->nodes))
        stream_enqueue(r, lock, stream, exec->nodes[node].task);
    return cudaSuccess;
}

} // namespace emulator

using namespace emulator;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    return call([=](Runtime &r, Lock &) { return begin(r, stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    return call([=](Runtime &r, Lock &) { return end(r, stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    return call([=](Runtime &r, Lock &) {
        if (stream_find(r, stream) == nullptr) return cudaErrorInvalidResourceHandle;
        *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
                  : stream->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                             : cudaStreamCaptureStatusActive;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    return call([=](Runtime &r, Lock &) {
        if (r.graphs.count(graph) == 0) return cudaErrorInvalidValue;
        *exec = new CUgraphExec_st{graph->nodes};
        r.graphs.insert(*exec);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    return call([=](Runtime &r, Lock &lock) { return launch(r, lock, exec, stream); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return call([=](Runtime &r, Lock &) {
        if (r.graphs.erase(graph) == 0) return cudaErrorInvalidValue;
        delete graph;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return call([=](Runtime &r, Lock &) {
        if (r.graphs.erase(exec) == 0) return cudaErrorInvalidValue;
        delete exec; // queued replays have their own copies
        return cudaSuccess;
    });
}
