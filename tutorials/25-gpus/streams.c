/* streams.c: step 25: a GPU executes the host's calls later, in one of many orders.
 *
 * A GPU executes calls from queues, which are called streams. The host enqueues a call in a stream
 * and continues at once. The calls of one stream run in order. Between two streams only an event
 * imposes an order: a mark in one stream, for which the other waits.
 *
 * This program simulates a GPU with two streams, one that computes and one that communicates, and
 * runs a training step in many of the allowed orders. A program is right if all orders give the
 * same weights.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/options.h"
#include "common/base/rng.h"

static const char SUMMARY[] = "Step 25: simulates the streams of a GPU, in many orders.\n"
                              "Example: tutorial_25 --break=no-ready";

enum { LAYERS = 4, MOST_CALLS = 32, MOST_RESULTS = 64 };

typedef enum Stream { COMPUTE, COMMUNICATE, STREAMS } Stream;
typedef enum Kind { BACKWARD, ALL_REDUCE, OPTIMIZER, COPY, RECORD, WAIT } Kind;

typedef struct Call { // an entry of a stream
    Kind kind;
    int number; // the layer, or the event
} Call;

typedef struct Gpu {
    Call queues[STREAMS][MOST_CALLS];
    int issued[STREAMS], done[STREAMS];    // of each queue
    bool happened[MOST_CALLS];             // of each event
    double weights[LAYERS], grads[LAYERS]; // the GPU's memory
    double host[LAYERS];                   // the host's: a copy of the weights
    uint64_t order, choices;               // seed of the order; random choices so far
} Gpu;

// ---- the GPU ------------------------------------------------------------------------------------

static void carry_out(Gpu *gpu, Call call) {
    int l = call.number;
    double other = 4 * l + 3; // the gradient of the other rank
    if (call.kind == BACKWARD) gpu->grads[l] = 2 * l + 1;
    if (call.kind == ALL_REDUCE) gpu->grads[l] = (gpu->grads[l] + other) / 2;
    if (call.kind == RECORD) gpu->happened[l] = true;
    for (int k = 0; k < LAYERS && call.kind == OPTIMIZER; k++) gpu->weights[k] -= gpu->grads[k];
    if (call.kind == COPY) memcpy(gpu->host, gpu->weights, sizeof gpu->host);
}

static bool can_go_on(const Gpu *gpu, Stream stream) {
    if (gpu->done[stream] == gpu->issued[stream]) return false;
    Call next = gpu->queues[stream][gpu->done[stream]];
    return next.kind != WAIT || gpu->happened[next.number];
}

// Takes one call from a random stream that can continue. Returns false if none can.
static bool advance(Gpu *gpu) {
    Stream stream = rng_u64(gpu->order, 0, gpu->choices++) % STREAMS;
    if (!can_go_on(gpu, stream)) stream = (stream + 1) % STREAMS;
    if (!can_go_on(gpu, stream)) return false;
    carry_out(gpu, gpu->queues[stream][gpu->done[stream]++]);
    return true;
}

// ---- the calls of a program --------------------------------------------------------------------

// Enqueues a call in a stream, and returns at once. Meanwhile the GPU executes any number of calls.
static void launch(Gpu *gpu, Stream stream, Kind kind, int number) {
    gpu->queues[stream][gpu->issued[stream]++] = (Call){kind, number};
    while (rng_u64(gpu->order, 1, gpu->choices++) % 4 == 0) advance(gpu);
}

static void synchronize(Gpu *gpu) { // waits until all streams are empty
    while (advance(gpu)) continue;
}

// ANCHOR: step
// A step of DistributedDataParallel, as the host issues it. Event l: the gradient of layer l is
// ready; event LAYERS: all of them are averaged.
static void issue_step(Gpu *gpu, const char *broken) {
    for (int l = LAYERS - 1; l >= 0; l--) {
        launch(gpu, COMPUTE, BACKWARD, l);
        launch(gpu, COMPUTE, RECORD, l);
        if (strcmp(broken, "no-ready") != 0) launch(gpu, COMMUNICATE, WAIT, l);
        launch(gpu, COMMUNICATE, ALL_REDUCE, l);
    }
    launch(gpu, COMMUNICATE, RECORD, LAYERS);
    if (strcmp(broken, "no-done") != 0) launch(gpu, COMPUTE, WAIT, LAYERS);
    launch(gpu, COMPUTE, OPTIMIZER, 0);
    launch(gpu, COMPUTE, COPY, 0); // the weights, to the host
    if (strcmp(broken, "early-read") != 0) synchronize(gpu);
}
// ANCHOR_END: step

// Runs a step in this order, and returns the host's copy of the weights in `weights`.
static void run_step(uint64_t order, const char *broken, double weights[LAYERS]) {
    Gpu gpu = {.order = order};
    issue_step(&gpu, broken);
    memcpy(weights, gpu.host, sizeof gpu.host);
}

int main(int argc, char **argv) {
    Error err = {0};
    size_t orders = 10000, count = 0, found[MOST_RESULTS] = {0};
    double results[MOST_RESULTS][LAYERS], weights[LAYERS];
    const char *broken = "none";
    Options options = {.program = "tutorial_25", .summary = SUMMARY};
    options_add(&options, (Option){"orders", OPTION_SIZE, &orders, "N", 1, 1e7, "orders to try"});
    options_add(&options,
                (Option){"break", OPTION_CHOICE, &broken, "none|no-ready|no-done|early-read", 0, 0,
                         "make this mistake, to see what it does"});
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);

    for (size_t order = 0; order < orders; order++) {
        size_t k = 0;
        run_step(order, broken, weights);
        while (k < count && memcmp(results[k], weights, sizeof weights) != 0) k++;
        CHECK(k < MOST_RESULTS, "more than %d results", MOST_RESULTS);
        if (k == count) memcpy(results[count++], weights, sizeof weights);
        found[k]++;
    }

    printf("%zu orders, %zu different results\n", orders, count);
    for (size_t k = 0; k < count && count <= 5; k++)
        printf("%5zu times: weights %g %g %g %g\n", found[k], results[k][0], results[k][1],
               results[k][2], results[k][3]);
    return STATUS_OK;
}
