/* bench_scale.c: the step of DataParallel, DistributedDataParallel and fully sharded training on up
 * to thousands of devices.
 *
 * Predicts from a profile (bench_profile) by the algebra of bench/model/README.md and, with
 * --simulate, message by message with SimGrid beside it. Prints CSV: a row for each number of
 * devices and strategy, times in milliseconds.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/profile_file.h"
#include "bench/model/simulate.h"
#include "common/base/memory.h"
#include "common/base/options.h"

enum { MAX_WORLDS = 64, MAX_DEVICES = 4096 };

typedef struct Settings {
    const char *profile, *devices;
    double gbit, latency_us, inside_gbit, inside_latency_us, call_us, copy_us, sum_us, shard_us;
    bool no_overlap, simulate, buckets;
    Cluster cluster;
} Settings;

static const char *const NAMES[] = {"dp", "ddp", "fsdp"}; // by ModelStrategy

// Reads "1,2,4" into worlds: {1, 2, 4}. Returns how many there are, or -1 with err filled.
static int parse_devices(const char *text, int worlds[MAX_WORLDS], Error *err) {
    int count = 0;
    for (const char *at = text;; at++) {
        char *end;
        long devices = strtol(at, &end, 10);
        if (end == at || devices < 1 || devices > MAX_DEVICES || count == MAX_WORLDS)
            return error_set(err, STATUS_USAGE,
                             "--devices %s: expected at most %d numbers from 1 to %d, with commas",
                             text, MAX_WORLDS, MAX_DEVICES);
        worlds[count++] = (int)devices;
        if (*end == '\0') return count;
        if (*end != ',') return error_set(err, STATUS_USAGE, "--devices %s: expected commas", text);
        at = end;
    }
}

static void print_row(const StepProfile *profile, const Settings *s, const Cluster *cluster,
                      ModelStrategy strategy) {
    StepParts p = model_step(profile, cluster, strategy);
    double one = model_single(profile, cluster->rows).step;
    printf("%d,%s", cluster->devices, NAMES[strategy]);
    const double parts[] = {p.scatter,  p.replicate, p.forward, p.gather,    p.loss,
                            p.backward, p.reduce,    p.exposed, p.optimizer, p.step};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) printf(",%.9g", 1e3 * parts[i]);
    printf(",%.9g,%.9g", cluster->devices * cluster->rows / p.step, one / p.step);
    double seconds = 0;
    Error err = {0};
    if (s->simulate) {
        if (model_messages(profile, cluster, strategy) > SIMULATED_MESSAGES_MAX) {
            printf(",not simulated,not simulated");
        } else {
            must_do(simulate_step(profile, cluster, strategy, &seconds, &err), &err);
            printf(",%.9g,%.4f", 1e3 * seconds, p.step / seconds);
        }
    }
    printf("\n");
    fflush(stdout); // a simulation takes a while
}

static void print_buckets(const StepProfile *profile, const Cluster *cluster) {
    BucketTime *buckets = memory_zalloc(profile->tensor_count * sizeof *buckets);
    size_t count = model_buckets(profile, cluster, buckets);
    printf("bucket,tensors,bytes,ready_ms,begin_ms,end_ms\n");
    for (size_t b = 0; b < count; b++)
        printf("%zu,%zu,%.0f,%.9g,%.9g,%.9g\n", b, buckets[b].tensors, buckets[b].bytes,
               1e3 * buckets[b].ready, 1e3 * buckets[b].begin, 1e3 * buckets[b].end);
    free(buckets);
}

static void print_break_even(const StepProfile *profile, const Cluster *cluster) {
    for (int k = 0; k < MODEL_STRATEGIES; k++) {
        double gbit = model_break_even(profile, cluster, (ModelStrategy)k);
        if (gbit == 0)
            printf("# %s on %d devices is faster than one device on any network\n", NAMES[k],
                   cluster->devices);
        else if (isinf(gbit))
            printf("# %s on %d devices is slower than one device on every network\n", NAMES[k],
                   cluster->devices);
        else
            printf("# %s on %d devices is faster than one device from %.6g Gbit/s on\n", NAMES[k],
                   cluster->devices, gbit);
    }
}

static void print_all(const StepProfile *profile, Settings *s, const int *worlds, int count) {
    Cluster *cluster = &s->cluster;
    printf("# %s: %.9g rows a device, %.9g Gbit/s, %.9g us, bucket cap %.9g MiB\n", profile->name,
           cluster->rows, s->gbit, s->latency_us, cluster->bucket_cap_mb);
    printf("devices,strategy,scatter,replicate,forward,gather,loss,backward,reduce,exposed,"
           "optimizer,step,rows_per_s,efficiency%s\n",
           s->simulate ? ",simulated,model_over_simulated" : "");
    for (int i = 0; i < count; i++) {
        cluster->devices = worlds[i]; // count were parsed: NOLINT(*uninitialized.Assign)
        for (int k = 0; k < MODEL_STRATEGIES; k++) print_row(profile, s, cluster, (ModelStrategy)k);
    }
    if (s->simulate)
        printf("# not simulated: steps of more than %.0f messages, which would take minutes\n",
               (double)SIMULATED_MESSAGES_MAX);
    if (s->buckets) print_buckets(profile, cluster);
    print_break_even(profile, cluster);
}

static void add_options(Options *options, Settings *s) {
    options_add_string(options, "profile", &s->profile, "FILE", "what bench_profile saved");
    options_add_string(options, "devices", &s->devices, "LIST", "numbers of devices, up to 4096");
    options_add_float(options, "rows", &s->cluster.rows, 1, 1e9, "rows of a device in a step");
    options_add_float(options, "gbit", &s->gbit, 1e-6, 1e6, "width of the network, Gbit/s");
    options_add_float(options, "latency-us", &s->latency_us, 0, 1e6, "of a message, microseconds");
    options_add_enum(options, "algorithm", &s->cluster.algorithm, ALGORITHM_NAMES,
                     "of DDP's all-reduce; FSDP's halves of one are by rings");
    options_add_int(options, "node-size", &s->cluster.node_size, 1, MAX_DEVICES,
                    "devices in a node, for hierarchical");
    options_add_float(options, "inside-gbit", &s->inside_gbit, 1e-6, 1e6, "inside a node, Gbit/s");
    options_add_float(options, "inside-latency-us", &s->inside_latency_us, 0, 1e6,
                      "inside a node, microseconds");
    options_add_float(options, "bucket-cap-mb", &s->cluster.bucket_cap_mb, -1, 1e6,
                      "as DDP's; -1: a first of 1, then 25");
    options_add_float(options, "straggler", &s->cluster.straggler, 0.01, 1000,
                      "one device computes so many times as long");
    options_add_float(options, "call-us", &s->call_us, 0, 1e6,
                      "of an all-reduce besides its messages, microseconds");
    options_add_float(options, "copy-us", &s->copy_us, 0, 1e9,
                      "a core's time for a million bytes that DP copies");
    options_add_float(options, "sum-us", &s->sum_us, 0, 1e9,
                      "a core's time for a million bytes that DDP sums");
    options_add_float(options, "shard-us", &s->shard_us, 0, 1e9,
                      "a core's time for a million bytes that FSDP gathers or reduces");
    options_add_flag(options, "no-overlap", &s->no_overlap,
                     "reduce after backward only, gather nothing ahead");
    options_add_flag(options, "buckets", &s->buckets, "also the buckets of the last row");
    options_add_flag(options, "simulate", &s->simulate, "also with SimGrid");
}

int main(int argc, char **argv) {
    Settings s = {.devices = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096",
                  .gbit = 10,
                  .latency_us = 10,
                  .inside_gbit = 200,
                  .inside_latency_us = 3,
                  .cluster = cluster_default()};
    Options options = {
        .program = "bench_scale",
        .summary = "Predicts the step of DP, DDP and FSDP on many devices.\n"
                   "Example: bench_scale --profile profile.json --devices 2,8,64 --gbit 25"};
    add_options(&options, &s);
    Error err = {0};
    int worlds[MAX_WORLDS];
    StepProfile profile = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (!s.profile)
        must_do(
            error_set(&err, STATUS_USAGE, "--profile FILE is needed (bench_profile --save FILE)"),
            &err);
    if (s.simulate && (s.copy_us > 0 || s.sum_us > 0 || s.shard_us > 0))
        must_do(error_set(&err, STATUS_USAGE,
                          "--simulate knows neither --copy-us nor --sum-us nor --shard-us"),
                &err);
    const int count = must_do(parse_devices(s.devices, worlds, &err), &err);
    must_do(profile_file_read(&profile, s.profile, &err), &err);
    s.cluster.link = (ModelLink){s.gbit * 1e9 / 8, s.latency_us * 1e-6};
    s.cluster.inside = (ModelLink){s.inside_gbit * 1e9 / 8, s.inside_latency_us * 1e-6};
    s.cluster.call_s = s.call_us * 1e-6;
    s.cluster.copy_s = s.copy_us * 1e-12;
    s.cluster.sum_s = s.sum_us * 1e-12;
    s.cluster.shard_s = s.shard_us * 1e-12;
    s.cluster.overlap = !s.no_overlap;
    print_all(&profile, &s, worlds, count);
    step_profile_free(&profile);
    return STATUS_OK;
}
