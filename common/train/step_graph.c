/* step_graph.c: see step_graph.h. */
#include "common/train/step_graph.h"

#include "common/base/memory.h"
#include "common/nn/tape.h"

// Plain steps before one is captured: in the first ones buckets are rebuilt, memory is taken and
// libraries choose their algorithms.
enum { WARM_UP = 4 };

// A step that was captured, for one of the places that the input may have.
typedef struct Captured {
    DeviceGraph *graph;
    float *loss;    // [1], device memory: where a replay leaves its loss
    uint64_t moved; // bytes that one replay moves between devices
} Captured;

struct StepGraph {
    Step *step;
    // The memory of what was captured, scratch included, must stay as it is. So batches of other
    // sizes and evaluation have another tape: the step's.
    Tape *tape;
    Captured captured[BATCH_PLACES];
    // Both numbers are of the global batch: all ranks must replay a collective together, and ranks
    // whose own shares differ have only this number in common.
    size_t rows;      // all captured steps have batches of this many samples
    size_t same_rows; // how many plain steps in a row had such batches
    uint64_t replayed_bytes;
};

StepGraph *step_graph_open(Step *step) {
    StepGraph *graph = memory_zalloc(sizeof *graph);
    *graph =
        (StepGraph){.step = step, .tape = tape_create(step->strategy->device, step->tape->profile)};
    graph->tape->precision = step->tape->precision;
    return graph;
}

static void close_captured(StepGraph *graph) {
    for (int i = 0; i < BATCH_PLACES; i++) {
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

// The five lines of step_run. The optimizer's numbers are left out, because they change from step
// to step: replay sends them.
static int record(Step *step, Tape *tape, BatchLoss *loss, Error *err) {
    Strategy *strategy = step->strategy;
    module_zero_grad(strategy->model);
    if (batch_forward(loss, tape, strategy->module, step->input, err) != 0 ||
        step_loss(step, tape, loss, err) != 0 || tape_backward(tape, loss->root, err) != 0 ||
        strategy->finish_backward(strategy, tape, err) != 0)
        return -1;
    optimizer_apply(step->optimizer);
    return 0;
}

// Records a step on the current place. Nothing is computed.
static int capture(StepGraph *graph, Captured *captured, Error *err) {
    Strategy *strategy = graph->step->strategy;
    BatchLoss loss;
    uint64_t moved = strategy->moved_bytes(strategy);
    // What hangs on the model may have come since the run began.
    if (strategy_check_recordable(strategy, err) != 0) return -1;
    if (device_graph_begin(strategy->device, err) != 0) return -1;
    int failed = record(graph->step, graph->tape, &loss, err);
    captured->graph = device_graph_end(strategy->device, failed ? NULL : err);
    if (failed || !captured->graph) return -1;
    captured->loss = tensor_f32(loss.loss);
    captured->moved = strategy->moved_bytes(strategy) - moved;
    tape_reset(graph->tape);
    return 0;
}

// Nobody waits for the collectives of a replay one by one, so a failure of one would go unnoticed,
// and what the step made of it would pass for weights. A communicator that has failed moreover
// waits for its graphs to be closed.
static int check_job(StepGraph *graph, Error *err) {
    const JobWatch *watch = graph->step->strategy->watch;
    if (watch->check(watch, err) == 0) return 0;
    close_captured(graph);
    return -1;
}

static int replay(StepGraph *graph, double lr, Error *err) {
    Step *step = graph->step;
    if (check_job(graph, err) != 0) return -1;
    Captured *captured = &graph->captured[batch_input_place(step->input)];
    bool first = !captured->graph;
    optimizer_choose_slot(step->optimizer, batch_input_place(step->input));
    if (first && capture(graph, captured, err) != 0) return -1;
    optimizer_begin_step(step->optimizer, lr);
    device_graph_launch(step->strategy->device, captured->graph);
    optimizer_end_step(step->optimizer);
    if (!first) graph->replayed_bytes += captured->moved;
    step_done(step, captured->loss);
    return 0;
}

// Whether a step on this many samples is to be replayed: if the number is the usual one, and enough
// plain steps have had it.
static bool is_warm(StepGraph *graph, size_t rows) {
    if (graph->same_rows >= WARM_UP) return rows == graph->rows;
    graph->same_rows = rows == graph->rows ? graph->same_rows + 1 : 1;
    graph->rows = rows;
    return false;
}

int step_graph_run(StepGraph *graph, double lr, Error *err) {
    Step *step = graph->step;
    size_t rows = batch_input_batch(step->input)->global_count;
    if (is_warm(graph, rows)) return replay(graph, lr, err);
    return step_run(step, rows == graph->rows ? graph->tape : step->tape, lr, err);
}
