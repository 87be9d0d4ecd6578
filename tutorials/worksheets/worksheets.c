/* worksheets.c: tutorial_worksheets: the answers of communication.md, by its formulas.
 *
 * One table for each question: volume (bytes that a device sends and receives in a step), messages,
 * memory (bytes per device), time (of an exchange of all gradients, by latency and bandwidth).
 */
#include <math.h>
#include <string.h>

#include "common/base/options.h"

static const char SUMMARY[] =
    "Answers the worksheets of tutorials/communication.md.\n"
    "Example: tutorial_worksheets --ask volume --parameters 50826 --devices 4";

typedef struct Sheet {
    const char *ask;
    size_t parameters, tensors, devices, rows, inputs, outputs, states, units;
    double bucket_mb, latency_us, gbytes;
} Sheet;

static double weights(const Sheet *s) { // P, in bytes
    return 4.0 * (double)s->parameters;
}

// ceil(log2 n): the rounds in which one that knows something can tell n - 1 others.
static double rounds(size_t n) {
    double count = 0;
    for (size_t reached = 1; reached < n; reached *= 2) count++;
    return count;
}

static double ceiling(double a, double b) {
    double whole = (double)(size_t)(a / b);
    return whole * b < a ? whole + 1 : whole;
}

// ---- volume -------------------------------------------------------------------------------------

static void volume(const Sheet *s) {
    double n = (double)s->devices, p = weights(s);
    size_t chunk = (s->rows + s->devices - 1) / s->devices; // rows of each device but the last ones
    double away = (double)(s->rows - (chunk < s->rows ? chunk : s->rows)); // rows of the others
    double in = 4.0 * (double)s->inputs, out = 4.0 * (double)s->outputs;
    double one = (double)(chunk < s->rows ? chunk : 0); // rows of device 1, if there is one
    printf("bytes in a step                  sends        receives\n");
    printf("DP, device 0            %14.0f  %14.0f\n", (n - 1) * p + away * (in + out),
           (n - 1) * p + away * out);
    if (s->devices > 1) { // NCCL's broadcast and reduce pass each byte on: once through a link
        printf("DP by NCCL, device 0    %14.0f  %14.0f\n", p + away * (in + out), p + away * out);
        printf("DP, device 1            %14.0f  %14.0f\n", p + one * out, p + one * (in + out));
    }
    printf("DDP, ring, each         %14.0f  %14.0f\n", 2 * p * (n - 1) / n, 2 * p * (n - 1) / n);
    printf("DDP, tree, its root     %14.0f  %14.0f\n", rounds(s->devices) * p,
           rounds(s->devices) * p);
    printf("ZeRO-1, ring, each      %14.0f  %14.0f\n", 2 * p * (n - 1) / n, 2 * p * (n - 1) / n);
    printf("fully sharded, each     %14.0f  %14.0f\n", 3 * p * (n - 1) / n, 3 * p * (n - 1) / n);
}

// ---- messages -----------------------------------------------------------------------------------

static void messages(const Sheet *s) {
    double n = (double)s->devices, tensors = (double)s->tensors;
    double buckets = ceiling(weights(s), s->bucket_mb * 1048576);
    printf("messages sent in a step               by one\n");
    printf("DP, device 0: a tensor each   %14.0f\n", tensors * (n - 1));
    printf("DDP, ring, a tensor each      %14.0f\n", tensors * 2 * (n - 1));
    printf("DDP, ring, %4.0f buckets       %14.0f\n", buckets, buckets * 2 * (n - 1));
    printf("DDP, ring, all in one         %14.0f\n", 2 * (n - 1));
    printf("DDP, tree's root, all in one  %14.0f\n", rounds(s->devices));
    printf("fully sharded, %4zu units     %14.0f\n", s->units, (double)s->units * 3 * (n - 1));
}

// ---- memory -------------------------------------------------------------------------------------

// Weights, gradients and the optimizer's state; of the activations only DataParallel's gathered
// outputs.
static void memory(const Sheet *s) {
    double n = (double)s->devices, p = weights(s), state = p * (double)s->states;
    double gathered = 2 * 4.0 * (double)s->outputs * (double)s->rows; // and their gradients
    printf("bytes on a device             weights       gradients  optimizer       outputs\n");
    printf("one device             %14.0f  %14.0f %14.0f\n", p, p, state);
    printf("DP, device 0           %14.0f  %14.0f %14.0f %9.0f\n", p, p, state, gathered);
    printf("DP, others             %14.0f  %14.0f %14.0f\n", p, p, 0.0);
    printf("DDP, each              %14.0f  %14.0f %14.0f\n", p, p, state);
    printf("ZeRO-1, each           %14.0f  %14.0f %14.0f\n", p, p, state / n);
    double whole = (s->units > 1 ? 2 : 1) * p / (double)s->units; // of equal units
    printf("fully sharded, each    %14.0f  %14.0f %14.0f\n", p / n + whole, p / n + whole,
           state / n);
}

// ---- time ---------------------------------------------------------------------------------------

static void print_time(const char *what, double latencies, double bytes, const Sheet *s) {
    double alpha = latencies * s->latency_us / 1e3, beta = bytes / s->gbytes / 1e6;
    printf("%-24s %10.3f = %9.3f + %10.3f\n", what, alpha + beta, alpha, beta);
}

// Two trees carry a half of the bytes each, in k pieces that follow each other up and down. In a
// round a rank passes on a piece as an inner node of one tree (to or from three others) and as a
// leaf of the other: four halves of x/k bytes, each way. The best k balances filling and passing.
static void print_pipelined(const Sheet *s) {
    double levels = rounds(s->devices), p = weights(s);
    double message = s->latency_us * s->gbytes * 1e3; // bytes that travel during a latency
    double best = round(sqrt(fmax(2 * levels - 1, 0) * 2 * p / message));
    double pieces = fmax(1, fmin(best, p / 4)), passes = levels > 0 ? 2 * levels + pieces - 1 : 0;
    print_time("two trees, pipelined", passes, passes * 2 * p / pieces, s);
}

static void time_of(const Sheet *s) {
    double n = (double)s->devices, p = weights(s), up = rounds(s->devices);
    double buckets = ceiling(p, s->bucket_mb * 1048576);
    printf("ms to exchange all           time =   latency +  bandwidth\n");
    print_time("DP, through device 0", 2 * (n - 1), 2 * (n - 1) * p, s);
    print_time("DP by NCCL", 2 * (n - 1), 2 * p, s);
    print_time("tree, all in one", 2 * up, 2 * up * p, s);
    print_pipelined(s);
    print_time("ring, all in one", 2 * (n - 1), 2 * p * (n - 1) / n, s);
    print_time("ring, in buckets", buckets * 2 * (n - 1), 2 * p * (n - 1) / n, s);
    // 2 (n-1) a + 2 (n-1)/n x/b = 2 up (a + x/b)
    double gain = up - (n - 1) / n, cost = n - 1 - up;
    if (gain > 0 && cost > 0)
        printf("the ring wins from %.0f bytes on\n", cost / gain * s->latency_us * s->gbytes * 1e3);
}

int main(int argc, char **argv) {
    Error err = {0};
    Sheet s = {"volume", 50826, 6, 4, 60, 64, 10, 1, 3, 25, 50, 1.25};
    Options options = {.program = "tutorial_worksheets", .summary = SUMMARY};
    options_add_choice(&options, "ask", &s.ask, "volume|messages|memory|time", "which worksheet");
    options_add_count(&options, "parameters", &s.parameters, 1, 1e13, "of the model, 4 bytes each");
    options_add_count(&options, "tensors", &s.tensors, 1, 1e6, "in which they lie");
    options_add_count(&options, "devices", &s.devices, 1, 1e6, "or ranks");
    options_add_count(&options, "rows", &s.rows, 1, 1e9, "of the global batch");
    options_add_count(&options, "inputs", &s.inputs, 0, 1e9, "numbers in a row of the input");
    options_add_count(&options, "outputs", &s.outputs, 0, 1e9, "numbers in a row of the output");
    options_add_count(&options, "states", &s.states, 0, 8,
                      "the optimizer's numbers per parameter: SGD with momentum 1, Adam 2");
    options_add_count(&options, "units", &s.units, 1, 1e6, "of fully sharded training, equal");
    options_add_float(&options, "bucket-cap-mb", &s.bucket_mb, 0.001, 1e6, "MiB in a bucket");
    options_add_float(&options, "latency-us", &s.latency_us, 0, 1e9, "of a message");
    options_add_float(&options, "gbytes", &s.gbytes, 0.001, 1e6, "GB a second of a link");
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (strcmp(s.ask, "volume") == 0) volume(&s);
    if (strcmp(s.ask, "messages") == 0) messages(&s);
    if (strcmp(s.ask, "memory") == 0) memory(&s);
    if (strcmp(s.ask, "time") == 0) time_of(&s);
    return STATUS_OK;
}
