/* step_graph.h: a GPU step captured once and then replayed (--cuda-graph).
 *
 * After a few plain steps the next step's work is captured; later steps replay it in one call
 * instead of a thousand. Values that change between steps are outside the graph: the batch
 * (batch_input.h) and the optimizer's numbers (optimizer_begin_step). A global batch of another
 * size runs as a plain step. During replays the host's state (tape, gradients' state, the
 * strategy's counters) stays that of the captured step, so a component that decides on the host in
 * every step cannot be captured (Job.unrecordable).
 */
#ifndef COMMON_TRAIN_STEP_GRAPH_H
#define COMMON_TRAIN_STEP_GRAPH_H

#include "common/train/job.h"
#include "common/train/step.h"

typedef struct StepGraph StepGraph;

// Returns a graph without a captured step. step and job must outlive it.
StepGraph *step_graph_open(Step *step, const Job *job);
void step_graph_close(StepGraph *graph); // NULL is fine

// Returns the tape for a plain step (train_step) on the last sent batch, or NULL if the step is to
// be replayed.
Tape *step_graph_tape(StepGraph *graph);
// Replays the step on that batch; captures it first if its slot has no captured step. Returns 0
// when the step is enqueued, or -1 with err filled.
int step_graph_replay(StepGraph *graph, double lr, Error *err);
// Bytes that replayed steps moved between devices, which Job.moved_bytes does not count; 0 if graph
// is NULL.
uint64_t step_graph_moved_bytes(const StepGraph *graph);

#endif
