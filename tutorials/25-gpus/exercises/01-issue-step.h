/* 01-issue-step.h: a step of DistributedDataParallel, enqueued in two streams of a GPU.
 *
 * Backward goes through the layers from the last to the first, in the stream COMPUTE. The gradient
 * of a layer is averaged over the ranks (ALL_REDUCE) in the stream COMMUNICATE, and as soon as it
 * is ready, while COMPUTE continues with the layer before. When all are averaged, the optimizer
 * steps in COMPUTE, once; then the loss is copied to the host (COPY, in COMPUTE), and the function
 * returns when the copy has completed. The host waits for nothing else.
 *
 * Operations of one stream run in order. Operations of two streams have no order, unless one stream
 * waits for an event that was recorded in the other.
 */
#ifndef TUTORIALS_ISSUE_STEP_H
#define TUTORIALS_ISSUE_STEP_H

typedef enum StreamName { COMPUTE, COMMUNICATE } StreamName;
typedef enum Operation { BACKWARD, ALL_REDUCE, OPTIMIZER, COPY } Operation;

// The host's calls to the GPU. All return at once, except synchronize.
typedef struct Streams {
    void *context; // the first argument of each
    // layer: of BACKWARD and ALL_REDUCE; 0 for the others.
    void (*launch)(void *context, StreamName stream, Operation operation, int layer);
    // Returns an event that happens when all work enqueued in the stream so far has completed.
    int (*record)(void *context, StreamName stream);
    // Work that is launched in the stream from now on waits for the event.
    void (*wait)(void *context, StreamName stream, int event);
    void (*synchronize)(void *context, StreamName stream); // the host waits for all work in it
} Streams;

void issue_step(const Streams *gpu, int layers);

#endif
