/* 01-issue-step.h: a step of DistributedDataParallel, put into the two streams of a GPU.
 *
 * Backward goes through the layers from the last to the first, in the stream COMPUTE. The gradient
 * of a layer is averaged over the ranks (ALL_REDUCE) in the stream COMMUNICATE, and as soon as it
 * is ready, while COMPUTE continues with the layer before. When all are averaged, the optimizer
 * steps in COMPUTE, once; then the loss is copied to the host (COPY, in COMPUTE), and the
 * function returns when it is there. Only for that does the host wait.
 *
 * In one stream everything is done in order, between two streams nothing is, unless one waits for
 * an event that was recorded in the other.
 */
#ifndef TUTORIALS_ISSUE_STEP_H
#define TUTORIALS_ISSUE_STEP_H

typedef enum StreamName { COMPUTE, COMMUNICATE } StreamName;
typedef enum Operation { BACKWARD, ALL_REDUCE, OPTIMIZER, COPY } Operation;

// What the host can ask of the GPU. All of it returns at once, but for synchronize.
typedef struct Streams {
    void *context; // to be handed to each of them
    // layer: of BACKWARD and ALL_REDUCE; 0 for the others.
    void (*launch)(void *context, StreamName stream, Operation operation, int layer);
    int (*record)(void *context, StreamName stream); // a mark behind all that is in it: an event
    void (*wait)(void *context, StreamName stream, int event); // what is launched there from now on
    void (*synchronize)(void *context, StreamName stream);     // the host waits until it is empty
} Streams;

void issue_step(const Streams *gpu, int layers);

#endif
