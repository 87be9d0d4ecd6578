/* step_graph.c: warm-up, capture and replay of a step. */
#include "common/train/step_graph.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

// Plain steps before the capture: the first ones rebuild buckets, allocate memory and let libraries
// choose their algorithms.
enum { WARM_UP = 4 };

// A captured step, for one slot of the input.
typedef struct Captured {
    DeviceGraph *graph;
    float *loss;    // [1], device memory: a replay's loss
    uint64_t moved; // bytes that a replay moves between devices
} Captured;

struct StepGraph {
    Step *step;
    const Job *job;
    // Holds the captured steps' memory, scratch included, at constant addresses. Batches of other
    // sizes and evaluation use step->tape.
    Tape *tape;
    Captured captured[BATCH_SLOTS];
    // Both count rows of the global batch, which is the same on all ranks: ranks must replay the
    // same step, and their own shares may differ.
    size_t rows;      // batch size of the captured steps
    size_t same_rows; // consecutive plain steps of this batch size
    uint64_t replayed_bytes;
};

StepGraph *step_graph_open(Step *step, const Job *job) {
    StepGraph *graph = memory_zalloc(sizeof *graph);
    *graph = (StepGraph){
        .step = step, .job = job, .tape = tape_create(step->strategy->device, step->tape->profile)};
    graph->tape->precision = step->tape->precision;
    return graph;
}

static void close_captured(StepGraph *graph) {
    for (int i = 0; i < BATCH_SLOTS; i++) {
        device_graph_close(graph->step->strategy->device, graph->captured[i].graph);
        graph->captured[i].graph = NULL;
    }
}

void step_graph_close(StepGraph *graph) {
    if (!graph) return;
    close_captured(graph);
    tape_close(graph->tape);
    free(graph);
}

uint64_t step_graph_moved_bytes(const StepGraph *graph) {
    return graph ? graph->replayed_bytes : 0;
}

// Runs train_step's five lines, without the optimizer's numbers, which change in every step: replay
// sends these. 0, or -1 with err filled.
static int record(Step *step, Tape *tape, BatchLoss *batch, Error *err) {
    Strategy *strategy = step->strategy;
    module_zero_grad(strategy->model);
    if (batch_forward(batch, tape, strategy->module, step->input, err) != 0 ||
        step_loss(step, tape, batch, err) != 0 || tape_backward(tape, batch->root, err) != 0 ||
        strategy->finish_backward(strategy, tape, err) != 0)
        return -1;
    optimizer_apply(step->optimizer);
    return 0;
}

// Captures a step on the current slot without computing it. 0, or -1 with err filled.
static int capture(StepGraph *graph, Captured *captured, Error *err) {
    Strategy *strategy = graph->step->strategy;
    BatchLoss batch;
    uint64_t moved = graph->job->moved_bytes(graph->job);
    // Hooks may have been registered since the run began.
    if (job_check_recordable(graph->job, err) != 0) return -1;
    if (device_graph_begin(strategy->device, err) != 0) return -1;
    int failed = record(graph->step, graph->tape, &batch, err);
    captured->graph = device_graph_end(strategy->device, failed ? NULL : err);
    if (failed || !captured->graph) return -1;
    captured->loss = tensor_f32(batch.loss);
    captured->moved = graph->job->moved_bytes(graph->job) - moved;
    tape_reset(graph->tape);
    return 0;
}

int step_graph_replay(StepGraph *graph, double lr, Error *err) {
    Step *step = graph->step;
    const JobWatch *watch = graph->job->watch;
    // A replay's collectives are not waited for one by one, so this check finds their failures. A
    // failed communicator can be closed after its graphs only.
    if (watch->check(watch, err) != 0) {
        close_captured(graph);
        return -1;
    }
    Captured *captured = &graph->captured[step->input->slot];
    bool first = !captured->graph;
    optimizer_choose_slot(step->optimizer, step->input->slot);
    if (first && capture(graph, captured, err) != 0) return -1;
    optimizer_begin_step(step->optimizer, lr);
    device_graph_launch(step->strategy->device, captured->graph);
    optimizer_end_step(step->optimizer);
    if (!first) graph->replayed_bytes += captured->moved;
    step_done(step, captured->loss);
    return 0;
}

Tape *step_graph_tape(StepGraph *graph) {
    size_t rows = graph->step->input->batch->global_count;
    if (graph->same_rows >= WARM_UP) return rows == graph->rows ? NULL : graph->step->tape;
    graph->same_rows = rows == graph->rows ? graph->same_rows + 1 : 1;
    graph->rows = rows;
    return graph->tape;
}
