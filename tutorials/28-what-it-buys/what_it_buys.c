/* what_it_buys.c: step 28: how long a step takes on W devices, before there are W devices.
 *
 * A message of n bytes takes alpha + n / bandwidth seconds: the latency, and the transfer time
 * (Hockney's model). With that, and the time that one device computes, the steps of DataParallel
 * and DistributedDataParallel are a few lines of algebra. Each device has the same number of rows,
 * so W devices compute W times as many in a step (weak scaling).
 */
#include <stdio.h>
#include <string.h>

#include "common/base/options.h"

static const char SUMMARY[] = "Step 28: predicts the steps of DataParallel and of DDP.\n"
                              "Example: tutorial_28 --gbit 10 --latency-us 20";

enum { MOST_DEVICES = 4096, MOST_BUCKETS = 1024 };

typedef struct Job {
    double bytes;       // of all parameters, and so of all gradients
    int tensors;        // parameters: DataParallel sends each as a message
    int buckets;        // DDP's messages, all of one size
    double forward_s;   // on one device, of its rows
    double backward_s;  // on one device; after a third of it a third of the buckets is ready
    double alpha_s;     // of a message
    double bytes_per_s; // of a device's link, in each direction
} Job;

// ANCHOR: model
static double message(const Job *job, double bytes) {
    return job->alpha_s + bytes / job->bytes_per_s;
}

// Device 0 sends all weights to each other device, and receives all gradients from each, in
// sequence over its one link.
static double dp_step(const Job *job, int devices) {
    double each = job->tensors * message(job, job->bytes / job->tensors);
    return (devices - 1) * 2 * each + job->forward_s + job->backward_s;
}

// A ring: 2 (W - 1) rounds, in each of which every device sends one part of W to its neighbour.
static double all_reduce(const Job *job, int devices, double bytes) {
    return 2 * (devices - 1) * message(job, bytes / devices);
}

// A bucket's all-reduce begins when its gradients are ready and the previous bucket's is done.
static double ddp_step(const Job *job, int devices, bool overlap) {
    double end = 0, one = all_reduce(job, devices, job->bytes / job->buckets);
    for (int b = 0; b < job->buckets; b++) {
        double ready = overlap ? job->backward_s * (b + 1) / job->buckets : job->backward_s;
        end = (ready > end ? ready : end) + one;
    }
    return job->forward_s + end;
}
// ANCHOR_END: model

static void print_row(const Job *job, int devices) {
    double work = devices * (job->forward_s + job->backward_s); // time of a single device
    double dp = dp_step(job, devices), serial = ddp_step(job, devices, false);
    double ddp = ddp_step(job, devices, true);
    printf("%7d %10.2f %12.2f %10.2f %10.2f %10.2f\n", devices, 1e3 * dp, 1e3 * serial, 1e3 * ddp,
           work / dp, work / ddp);
}

int main(int argc, char **argv) {
    Error err = {0};
    Job job = {.bytes = 203304, .tensors = 6, .buckets = 1}; // the network of the other steps
    double compute_ms = 0.3, gbit = 10, latency_us = 20;
    int only = 0;
    const char *broken = "none";
    Options options = {.program = "tutorial_28", .summary = SUMMARY};
    const Option table[] = {
        {"bytes", OPTION_FLOAT, &job.bytes, "N", 1, 1e13, "of all parameters"},
        {"tensors", OPTION_INT, &job.tensors, "N", 1, 100000, "number of parameter tensors"},
        {"buckets", OPTION_INT, &job.buckets, "N", 1, MOST_BUCKETS, "number of DDP's buckets"},
        {"compute-ms", OPTION_FLOAT, &compute_ms, "MS", 0, 1e7, "forward and backward, one device"},
        {"gbit", OPTION_FLOAT, &gbit, "N", 1e-6, 1e6, "Gbit/s of each device's link"},
        {"latency-us", OPTION_FLOAT, &latency_us, "US", 0, 1e7, "of a message"},
        {"devices", OPTION_INT, &only, "N", 0, MOST_DEVICES, "only N (0: 1, 2, 4, ... 4096)"},
        {"break", OPTION_CHOICE, &broken, "none|no-latency", 0, 0, "make this mistake"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) options_add(&options, table[i]);
    if (options_parse(&options, argc, argv, &err) != 0) error_exit(&err);
    job.forward_s = 1e-3 * compute_ms / 3; // backward computes twice as much as forward
    job.backward_s = 1e-3 * compute_ms * 2 / 3;
    job.bytes_per_s = gbit * 1e9 / 8;
    job.alpha_s = strcmp(broken, "no-latency") == 0 ? 0 : 1e-6 * latency_us;
    printf("devices      dp_ms   ddp_late_ms     ddp_ms   dp_times  ddp_times\n");
    for (int devices = 1; only == 0 && devices <= MOST_DEVICES; devices *= 2)
        print_row(&job, devices);
    if (only > 0) print_row(&job, only);
    return STATUS_OK;
}
