/* bench_fit.c: which network and which slow-down make the model fit measured steps.
 *
 * Reads lines "devices,seconds" and looks for three numbers: the width and the latency of every
 * device's link, and how many times as long a device computes when it is not alone (bench/model's
 * straggler). Sought is the smallest largest relative error over all points. Then each point is
 * left out in turn, and what the others say of it is printed beside it: the one error judges the
 * three numbers, the other what they predict.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/profile_file.h"
#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/base/options.h"

enum {
    MAX_POINTS = 64,
    NUMBERS = 3,
    GRID = 12,
    ZOOMED_GRID = 2,
    ZOOMS = 21,
    HALVINGS = 24,
    NOBODY = -1
};
enum { GBIT, LATENCY_US, SLOWDOWN };

// What is physically plausible, and the search ends there. (A slow-down of 1 is none.)
static const double lowest[NUMBERS] = {0.1, 1, 1}, highest[NUMBERS] = {400, 5000, 2};

typedef struct Points {
    int devices[MAX_POINTS], count;
    double seconds[MAX_POINTS];
    int node_size, left_out; // left_out: the index of the held-out point, or -1
    const StepProfile *profile;
} Points;

static double predict(const Points *points, const double numbers[NUMBERS], int devices) {
    Cluster cluster = cluster_default();
    cluster.devices = devices;
    cluster.rows = 1;
    cluster.algorithm = ALGORITHM_HIERARCHICAL;
    cluster.node_size = points->node_size;
    cluster.link = (ModelLink){numbers[GBIT] * 1e9 / 8, numbers[LATENCY_US] * 1e-6};
    cluster.inside = cluster.link;
    cluster.bucket_cap_mb = 0; // its tensors are buckets already
    cluster.straggler = devices > 1 ? numbers[SLOWDOWN] : 1;
    return model_ddp(points->profile, &cluster).step;
}

// How far the model's steps lie from the points that take part, as shares of these.
typedef struct Errors {
    double above, below; // of the point that lies farthest above, or below; may be negative
} Errors;

static Errors errors_of(const Points *points, const double numbers[NUMBERS]) {
    Errors errors = {-INFINITY, -INFINITY};
    for (int i = 0; i < points->count; i++) {
        if (i == points->left_out) continue;
        double off = predict(points, numbers, points->devices[i]) / points->seconds[i] - 1;
        if (off > errors.above) errors.above = off;
        if (-off > errors.below) errors.below = -off;
    }
    return errors;
}

// ---- the search --------------------------------------------------------------------------------

// Numbers are searched on scales of powers: at 0 is the lowest, at 1 the highest.
static double number_at(int k, double place) {
    double inside = place < 0 ? 0 : place > 1 ? 1 : place;
    return lowest[k] * pow(highest[k] / lowest[k], inside);
}

// Finds the width at which the largest relative error is least, and returns that error. A wider
// link makes every step shorter, so the best width is where the largest error above the points
// equals the largest one below.
static double fit_width(const Points *points, double numbers[NUMBERS]) {
    double narrow = 0, wide = 1;
    Errors errors = {0};
    for (int i = 0; i < HALVINGS; i++) {
        double middle = (narrow + wide) / 2;
        numbers[GBIT] = number_at(GBIT, middle);
        errors = errors_of(points, numbers);
        if (errors.above > errors.below)
            narrow = middle;
        else
            wide = middle;
    }
    return errors.above > errors.below ? errors.above : errors.below;
}

// Tries a grid of latencies and slow-downs, of `steps` to each side of best and up to `reach` away,
// each with its best width. Where the error is less than *least, numbers and best become these.
static void try_grid(const Points *points, double numbers[NUMBERS], double best[NUMBERS],
                     double reach, int steps, double *least) {
    const double middle[NUMBERS] = {0, best[LATENCY_US], best[SLOWDOWN]};
    for (int i = 0; i < (2 * steps + 1) * (2 * steps + 1); i++) {
        const int at[NUMBERS] = {0, i % (2 * steps + 1) - steps, i / (2 * steps + 1) - steps};
        double place[NUMBERS] = {0}, tried[NUMBERS];
        for (int k = LATENCY_US; k <= SLOWDOWN; k++) {
            place[k] = middle[k] + reach * at[k] / steps;
            tried[k] = number_at(k, place[k]);
        }
        double error = fit_width(points, tried);
        if (error >= *least) continue;
        *least = error;
        memcpy(best, place, sizeof place);
        memcpy(numbers, tried, sizeof tried);
    }
}

// A grid over everything that is plausible, then ever smaller ones around the best place so far.
static double fit(const Points *points, double numbers[NUMBERS]) {
    double best[NUMBERS] = {0, 0.5, 0.5}, least = INFINITY;
    try_grid(points, numbers, best, 0.5, GRID, &least);
    double reach = 2.0 / GRID;
    for (int zoom = 0; zoom < ZOOMS; zoom++, reach *= 0.7)
        try_grid(points, numbers, best, reach, ZOOMED_GRID, &least);
    return least;
}

// Makes the profile's tensors of its buckets, which are the same on every network.
static void put_in_buckets(StepProfile *profile) {
    const Cluster cluster = cluster_default();
    const double backward = model_row_time(profile->backward, cluster.rows);
    BucketTime *buckets = memory_zalloc(profile->tensor_count * sizeof *buckets);
    profile->tensor_count = model_buckets(profile, &cluster, buckets);
    for (size_t b = 0; b < profile->tensor_count; b++)
        profile->tensors[b] = (ModelTensor){buckets[b].bytes, buckets[b].ready / backward};
    free(buckets);
}

// ---- in and out --------------------------------------------------------------------------------

static int read_points(Points *points, const char *path, Error *err) {
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return -1;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        int n = points->count;
        if (n < MAX_POINTS &&
            sscanf(line, "%d,%lf", &points->devices[n], &points->seconds[n]) == 2 &&
            points->devices[n] > 0 && points->devices[n] <= 4096 && points->seconds[n] > 0) {
            points->count++;
            continue;
        }
        fclose(file);
        return error_set(err, STATUS_USAGE, "%s: expected at most %d lines like 8,0.195", path,
                         MAX_POINTS);
    }
    fclose(file);
    if (points->count > NUMBERS) return 0;
    return error_set(err, STATUS_USAGE, "%s: expected more than %d points", path, NUMBERS);
}

static void print_numbers(const double numbers[NUMBERS], double error) {
    printf("gbit=%.4g latency_us=%.4g slowdown=%.4g largest_error=%.4f", numbers[GBIT],
           numbers[LATENCY_US], numbers[SLOWDOWN], error);
    const char *names[] = {"gbit", "latency_us", "slowdown"};
    for (int k = 0; k < NUMBERS; k++)
        if (numbers[k] <= lowest[k] * 1.001 || numbers[k] >= highest[k] / 1.001)
            printf(" at_its_limit=%s", names[k]);
    printf("\n");
}

static void print_points(Points *points, const double fitted[NUMBERS]) {
    printf("devices,seconds,fitted,held_out\n");
    for (int i = 0; i < points->count; i++) {
        double others[NUMBERS];
        points->left_out = i;
        fit(points, others);
        printf("%d,%.6g,%.6g,%.6g\n", points->devices[i], points->seconds[i],
               predict(points, fitted, points->devices[i]),
               predict(points, others, points->devices[i]));
    }
}

int main(int argc, char **argv) {
    const char *profile_path = NULL, *points_path = NULL;
    Points points = {.node_size = 8, .left_out = NOBODY};
    Options options = {.program = "bench_fit",
                       .summary = "Fits a network and a slow-down to measured steps of many "
                                  "devices.\n"
                                  "Example: bench_fit --profile profile.json --points points.csv"};
    options_add_string(&options, "profile", &profile_path, "FILE", "what bench_profile saved");
    options_add_string(&options, "points", &points_path, "FILE", "lines: devices,seconds");
    options_add_int(&options, "node-size", &points.node_size, 1, 4096, "devices in a node");
    Error err = {0};
    StepProfile profile = {0};
    double numbers[NUMBERS];
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (!profile_path || !points_path) {
        must_do(error_set(&err, STATUS_USAGE, "--profile FILE and --points FILE are needed"), &err);
        return STATUS_USAGE;
    }
    must_do(read_points(&points, points_path, &err), &err);
    must_do(profile_file_read(&profile, profile_path, &err), &err);
    put_in_buckets(&profile);
    points.profile = &profile;
    double error = fit(&points, numbers);
    print_numbers(numbers, error);
    print_points(&points, numbers);
    step_profile_free(&profile);
    return STATUS_OK;
}
