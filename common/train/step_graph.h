/* step_graph.h: steps on a GPU that are captured once and then replayed (--cuda-graph).
 *
 * After a few plain steps the work of one is captured, and from then on replayed in one call, which
 * saves the host the thousand calls that it consists of. What changes between steps is no part of
 * it: the batch (batch_input.h) and the optimizer's numbers (optimizer_begin_step). A global batch
 * of another size takes a plain step. In between, the host's view (tape, gradients' state, the
 * strategy's counters) stays as the captured step left it: what decides in every step anew cannot
 * be captured (Strategy.unrecordable).
 */
#ifndef COMMON_TRAIN_STEP_GRAPH_H
#define COMMON_TRAIN_STEP_GRAPH_H

#include "common/train/step.h"

typedef struct StepGraph StepGraph;

StepGraph *step_graph_open(Step *step);  // which must outlive it
void step_graph_close(StepGraph *graph); // NULL is fine

// Takes a step as step_run does, by a replay if that is possible.
int step_graph_run(StepGraph *graph, double lr, Error *err);
// The bytes that replayed steps moved between devices, which the strategy has not counted; 0 if
// graph is NULL.
uint64_t step_graph_moved_bytes(const StepGraph *graph);

#endif
