/* bench_fit.c: which network and which slow-down make the model fit measured steps.
 *
 * Reads lines "devices,seconds" or "devices,seconds,bucket_mb" and looks for three numbers: the
 * width of every device's link; the cost of an all-reduce apart from its bytes; and how many times
 * as long a device computes beside others (bench/model's straggler). --cost says how that cost
 * grows: `message`: with the messages, so with the devices (their latency); `call`: not at all;
 * `both`: two numbers. Sought is the smallest largest relative error over all points. Then each
 * point is held out in turn, and the prediction from the others is printed beside it: the first
 * error judges the fit, the second its predictions.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/model/profile_file.h"
#include "common/base/file.h"
#include "common/base/memory.h"
#include "common/base/options.h"

enum { MAX_POINTS = 64, GRID = 10, ZOOMED_GRID = 2, HALVINGS = 17, NO_POINT = -1 };
typedef enum Number { LATENCY_US, CALL_US, SLOWDOWN, GBIT, NUMBERS } Number;

typedef enum Cost { COST_MESSAGE, COST_CALL, COST_BOTH } Cost;

// Bounds of the search: physically plausible values. (A slow-down of 1 is none; below it the
// devices are faster than the profile's.)
static const double lowest[NUMBERS] = {1, 1, 0.25, 0.1}, highest[NUMBERS] = {5000, 20000, 2, 400};

typedef struct Point {
    int devices;
    double seconds, bucket_cap_mb;
    BucketTime *buckets; // [bucket_count], assigned once for all predictions
    size_t bucket_count;
} Point;

typedef struct Points {
    StepProfile profile; // of one device
    Point at[MAX_POINTS];
    int count, node_size, left_out; // left_out: the index of the held-out point, or NO_POINT
    Cost cost;
} Points;

// The sought numbers.
typedef struct Fit {
    double number[NUMBERS];
    double error; // the largest relative one
} Fit;

static double predict(const Points *points, const Fit *fit, const Point *point) {
    Cluster cluster = cluster_default();
    cluster.devices = point->devices;
    cluster.rows = 1;
    cluster.algorithm = ALGORITHM_HIERARCHICAL;
    cluster.node_size = points->node_size;
    cluster.link = (ModelLink){fit->number[GBIT] * 1e9 / 8, fit->number[LATENCY_US] * 1e-6};
    cluster.inside = cluster.link;
    cluster.call_s = fit->number[CALL_US] * 1e-6;
    cluster.straggler = point->devices > 1 ? fit->number[SLOWDOWN] : 1;
    return model_ddp(&points->profile, &cluster, point->buckets, point->bucket_count).step;
}

// ---- the search --------------------------------------------------------------------------------

// Numbers are searched on scales of powers: at 0 is the lowest, at 1 the highest.
static double number_at(Number k, double place) {
    const double inside = place < 0 ? 0 : place > 1 ? 1 : place;
    return lowest[k] * pow(highest[k] / lowest[k], inside);
}

// Finds the width at which the largest relative error is least, and sets error to that. A wider
// link makes every step shorter, so the best width is where the largest error above the points
// equals the largest one below. On the way there the smaller of the two only grows: once it is
// `most`, so is the least error, and the search ends.
static void fit_width(const Points *points, Fit *fit, double most) {
    double narrow = 0, wide = 1, above = 0, below = 0;
    for (int h = 0; h < HALVINGS; h++) {
        const double middle = (narrow + wide) / 2;
        fit->number[GBIT] = number_at(GBIT, middle);
        above = below = -INFINITY;
        for (int i = 0; i < points->count; i++) {
            if (i == points->left_out) continue;
            const double off = predict(points, fit, &points->at[i]) / points->at[i].seconds - 1;
            above = off > above ? off : above;
            below = -off > below ? -off : below;
        }
        if (fmin(above, below) >= most) break;
        if (above > below)
            narrow = middle;
        else
            wide = middle;
    }
    fit->error = above > below ? above : below;
}

// The place of every number but the width on its scale.
typedef struct Place {
    double of[GBIT];
} Place;

// Tries a place: where its error is less than that of *fit, *fit and *best become it.
static void try_place(const Points *points, const Place *place, Fit *fit, Place *best) {
    Fit tried = {0};
    for (int k = 0; k < GBIT; k++) tried.number[k] = number_at(k, place->of[k]);
    if (points->cost == COST_MESSAGE) tried.number[CALL_US] = 0;
    if (points->cost == COST_CALL) tried.number[LATENCY_US] = 0;
    fit_width(points, &tried, fit->error);
    if (tried.error >= fit->error) return;
    *fit = tried;
    *best = *place;
}

// Tries a grid of numbers, of `steps` to each side of *best and up to `reach` away.
static void try_grid(const Points *points, double reach, int steps, Fit *fit, Place *best) {
    const Place middle = *best;
    const int side = 2 * steps + 1, costs = points->cost == COST_BOTH ? side : 1;
    for (int i = 0; i < side * side * costs; i++) {
        const int one = i % side - steps, other = costs > 1 ? i / side / side - steps : one;
        const int at[GBIT] = {one, other, i / side % side - steps};
        Place place;
        for (int k = 0; k < GBIT; k++) place.of[k] = middle.of[k] + reach * at[k] / steps;
        try_place(points, &place, fit, best);
    }
}

// A grid over everything that is plausible, then ever smaller ones around the best place so far.
static Fit find_fit(const Points *points) {
    Fit fit = {.error = INFINITY};
    Place best = {{0.5, 0.5, 0.5}};
    const bool both = points->cost == COST_BOTH; // one number more: a coarser search
    const int steps = both ? GRID / 2 : GRID;
    double reach = 2.0 / steps;
    try_grid(points, 0.5, steps, &fit, &best);
    while (reach > 1e-4) {
        try_grid(points, reach, ZOOMED_GRID, &fit, &best);
        reach *= both ? 0.6 : 0.8;
    }
    return fit;
}

// ---- in and out --------------------------------------------------------------------------------

static void assign_buckets(const StepProfile *profile, Point *point) {
    Cluster cluster = cluster_default();
    cluster.bucket_cap_mb = point->bucket_cap_mb;
    point->buckets = memory_zalloc(profile->tensor_count * sizeof *point->buckets);
    point->bucket_count = model_buckets(profile, &cluster, point->buckets);
}

static bool read_point(Points *points, const char *line) {
    int end = 0;
    Point point = {.bucket_cap_mb = -1};
    if (points->count == MAX_POINTS) return false;
    (void)sscanf(line, "%d,%lf%n,%lf%n", &point.devices, &point.seconds, &end, &point.bucket_cap_mb,
                 &end);
    points->at[points->count++] = point;
    return end > 0 && (line[end] == '\n' || line[end] == '\0') && point.devices > 0 &&
           point.devices <= 4096 && point.seconds > 0 && point.bucket_cap_mb >= -1 &&
           point.bucket_cap_mb <= 1e6;
}

static int read_points(Points *points, const char *path, Error *err) {
    FILE *file = file_open_stream(path, NULL, err);
    if (!file) return -1;
    bool good = true;
    char line[256];
    while (good && fgets(line, sizeof line, file)) good = read_point(points, line);
    fclose(file);
    if (!good)
        return error_set(err, STATUS_USAGE,
                         "%s: expected at most %d lines like 8,0.195 or 8,0.195,25", path,
                         MAX_POINTS);
    const int sought = points->cost == COST_BOTH ? 4 : 3;
    if (points->count > sought) return 0;
    return error_set(err, STATUS_USAGE, "%s: expected more than %d points", path, sought);
}

static void print_fit(const Fit *fit) {
    const char *names[] = {"latency_us", "call_us", "slowdown", "gbit"};
    printf("gbit=%.4g latency_us=%.4g call_us=%.4g slowdown=%.4g largest_error=%.4f",
           fit->number[GBIT], fit->number[LATENCY_US], fit->number[CALL_US], fit->number[SLOWDOWN],
           fit->error);
    for (int k = 0; k < NUMBERS; k++)
        if (fit->number[k] >= highest[k] / 1.001 ||
            (fit->number[k] > 0 && fit->number[k] <= lowest[k] * 1.001))
            printf(" at_its_limit=%s", names[k]);
    printf("\n");
}

static void print_points(Points *points, const Fit *fit) {
    printf("devices,seconds,bucket_mb,fitted,held_out\n");
    for (int i = 0; i < points->count; i++) {
        const Point *point = &points->at[i];
        points->left_out = i;
        const Fit others = find_fit(points);
        printf("%d,%.6g,%.6g,%.6g,%.6g\n", point->devices, point->seconds, point->bucket_cap_mb,
               predict(points, fit, point), predict(points, &others, point));
    }
}

int main(int argc, char **argv) {
    const char *profile_path = NULL, *points_path = NULL;
    Points points = {.node_size = 8, .left_out = NO_POINT};
    Options options = {.program = "bench_fit",
                       .summary = "Fits a network and a slow-down to measured steps of many "
                                  "devices.\n"
                                  "Example: bench_fit --profile profile.json --points points.csv"};
    options_add_string(&options, "profile", &profile_path, "FILE", "what bench_profile saved");
    options_add_string(&options, "points", &points_path, "FILE",
                       "lines: devices,seconds or devices,seconds,bucket_mb");
    options_add_int(&options, "node-size", &points.node_size, 1, 4096, "devices in a node");
    options_add_enum(&options, "cost", &points.cost, "message|call|both",
                     "what an all-reduce costs besides its bytes");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    if (!profile_path || !points_path) {
        must_do(error_set(&err, STATUS_USAGE, "--profile FILE and --points FILE are needed"), &err);
        return STATUS_USAGE;
    }
    must_do(read_points(&points, points_path, &err), &err);
    must_do(profile_file_read(&points.profile, profile_path, &err), &err);
    for (int i = 0; i < points.count; i++) assign_buckets(&points.profile, &points.at[i]);
    const Fit fit = find_fit(&points);
    print_fit(&fit);
    print_points(&points, &fit);
    for (int i = 0; i < points.count; i++) free(points.at[i].buckets);
    step_profile_free(&points.profile);
    return STATUS_OK;
}
