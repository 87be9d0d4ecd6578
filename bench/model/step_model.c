/* step_model.c: the algebra of bench/model/README.md. step_model.js has the same lines in
 * JavaScript: change both, in the same order of operations.
 */
#include "bench/model/step_model.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/memory.h"
#include "ddp/buckets.h"

static const double MEBIBYTE = 1048576, GBIT = 1e9 / 8;

Cluster cluster_default(void) {
    return (Cluster){.devices = 2,
                     .link = {10 * GBIT, 10e-6},
                     .inside = {200 * GBIT, 3e-6},
                     .node_size = 1,
                     .rows = 64,
                     .bucket_cap_mb = -1,
                     .straggler = 1,
                     .overlap = true};
}

double model_row_time(RowTime time, double rows) {
    return time.fixed + time.per_row * rows;
}

// The seconds of one message.
static double model_message(ModelLink link, double bytes) {
    return link.latency_s + bytes / link.bytes_per_s;
}

// ---- all-reduce --------------------------------------------------------------------------------

// The time of half of a ring's all-reduce (a reduce-scatter, or an all-gather): count - 1 rounds.
static double half_ring(ModelLink link, double bytes, double count) {
    return (count - 1) * model_message(link, bytes / count);
}

// The time of all messages of an all-reduce on several devices.
static double move_bucket(const Cluster *cluster, double bytes) {
    double devices = cluster->devices, inside = fmin(cluster->node_size, devices);
    if (cluster->algorithm == ALGORITHM_TREE)
        return 2 * ceil(log2(devices)) * model_message(cluster->link, bytes);
    if (cluster->algorithm == ALGORITHM_RING) return 2 * half_ring(cluster->link, bytes, devices);
    double nodes = ceil(devices / inside);
    return 2 * half_ring(cluster->inside, bytes, inside) +
           2 * half_ring(cluster->link, bytes / inside, nodes);
}

// The time of a gather, or of a reduction that scatters: half of an all-reduce, by rings.
static double move_shards(const Cluster *cluster, double bytes) {
    Cluster rings = *cluster;
    if (cluster->devices == 1) return 0;
    if (cluster->algorithm == ALGORITHM_TREE) rings.algorithm = ALGORITHM_RING;
    return cluster->call_s + move_bucket(&rings, bytes) / 2;
}

// The seconds of one bucket's all-reduce.
static double model_all_reduce(const Cluster *cluster, double bytes) {
    return cluster->devices == 1 ? 0 : cluster->call_s + move_bucket(cluster, bytes);
}

// ---- buckets -----------------------------------------------------------------------------------

// The limits that the Reducer has for such a cap.
static BucketPlan plan_buckets(const StepProfile *profile, double cap_mb) {
    const size_t limits[] = {(size_t)((cap_mb < 0 ? 1 : cap_mb) * MEBIBYTE),
                             (size_t)((cap_mb < 0 ? 25 : cap_mb) * MEBIBYTE)};
    BucketTensor *tensors = memory_zalloc(profile->tensor_count * sizeof *tensors);
    size_t *ready_order = memory_zalloc(profile->tensor_count * sizeof *ready_order);
    for (size_t k = 0; k < profile->tensor_count; k++) {
        tensors[k].bytes = (size_t)profile->tensors[k].bytes;
        ready_order[k] = k;
    }
    BucketPlan plan = buckets_assign(tensors, profile->tensor_count, limits, 2, ready_order);
    free(tensors);
    free(ready_order);
    return plan;
}

// The seconds that the core which computes spends on summing a bucket.
static double model_sum(const Cluster *cluster, double bytes) {
    return cluster->devices == 1 ? 0 : cluster->sum_s * bytes;
}

// Sets when each bucket is ready, and when its all-reduce begins and ends.
static void time_buckets(const StepProfile *profile, const Cluster *cluster, BucketTime *buckets,
                         size_t count) {
    double backward = model_row_time(profile->backward, cluster->rows) * cluster->straggler;
    double free_at = 0, summed = 0; // seconds of backward's core spent on buckets before `next`
    size_t next = 0;
    for (size_t b = 0; b < count; b++) {
        BucketTime *bucket = &buckets[b];
        double computed = cluster->overlap ? bucket->share * backward : backward;
        for (; next < b && buckets[next].begin < computed + summed; next++)
            summed += model_sum(cluster, buckets[next].bytes);
        bucket->ready = computed + summed;
        bucket->begin = fmax(bucket->ready, free_at);
        bucket->end = free_at = bucket->begin + fmax(model_all_reduce(cluster, bucket->bytes),
                                                     model_sum(cluster, bucket->bytes));
    }
}

size_t model_buckets(const StepProfile *profile, const Cluster *cluster, BucketTime *buckets) {
    BucketPlan plan = plan_buckets(profile, cluster->bucket_cap_mb);
    const size_t count = plan.bucket_count;
    for (size_t b = 0; b < count; b++) {
        buckets[b] = (BucketTime){.tensors = plan.start[b + 1] - plan.start[b]};
        for (size_t i = plan.start[b]; i < plan.start[b + 1]; i++)
            buckets[b].bytes += profile->tensors[plan.order[i]].bytes;
        buckets[b].share = profile->tensors[plan.order[plan.start[b + 1] - 1]].ready;
    }
    buckets_free(&plan);
    time_buckets(profile, cluster, buckets, count);
    return count;
}

// ---- units of fully sharded training -----------------------------------------------------------

// Tensors of one unit that become ready one after the other.
typedef struct ModelUnit {
    double bytes, share; // of backward, and of forward
    bool root;
} ModelUnit;

// The units in the order of backward, [*count], the caller's; the root may have several.
static ModelUnit *list_units(const StepProfile *profile, int *count) {
    ModelUnit *units = memory_zalloc(profile->tensor_count * sizeof *units);
    double before = 0;
    *count = 0;
    for (size_t k = 0; k < profile->tensor_count; k++) {
        const ModelTensor *tensor = &profile->tensors[k];
        const bool same = k > 0 && tensor->unit >= 0 && tensor->unit == tensor[-1].unit;
        ModelUnit *unit = &units[same ? *count - 1 : (*count)++];
        unit->root = tensor->unit == 0;
        unit->bytes += tensor->bytes;
        unit->share += tensor->ready - before;
        before = tensor->ready;
    }
    return units;
}

static double root_bytes(const ModelUnit *units, int count) {
    double bytes = 0;
    for (int k = 0; k < count; k++) bytes += units[k].root ? units[k].bytes : 0;
    return bytes;
}

// A rank's time in its step, in seconds, and the moves that it has enqueued.
typedef struct FsdpWalk {
    const Cluster *cluster;
    const ModelUnit *units;
    int count;
    double now, exposed, arrives, reduced; // when the gather, and the reduction in flight end
    FsdpMove *move;
    void *context;
} FsdpWalk;

// Waits until a move has ended, then copies its bytes.
static void wait_and_copy(FsdpWalk *w, double end, double bytes) {
    double copied = fmax(w->now, end) + (w->cluster->devices > 1 ? w->cluster->shard_s * bytes : 0);
    w->exposed += copied - w->now;
    w->now = copied;
}

// Starts to gather the first unit from k on, in the direction `way`, that is not the root's.
static void gather_next(FsdpWalk *w, int k, int way) {
    while (k >= 0 && k < w->count && w->units[k].root) k += way;
    if (k >= 0 && k < w->count) w->arrives = w->move(w->context, w->now, w->units[k].bytes);
}

// Computes all units: way is -1 in forward, which takes `seconds`, and 1 in backward. With overlap
// the first one's gather has been started.
static void walk_units(FsdpWalk *w, int way, double seconds) {
    for (int k = way > 0 ? 0 : w->count - 1; k >= 0 && k < w->count; k += way) {
        const ModelUnit *unit = &w->units[k];
        if (!unit->root) {
            if (!w->cluster->overlap) gather_next(w, k, way);
            wait_and_copy(w, w->arrives, unit->bytes);
            if (w->cluster->overlap) gather_next(w, k + way, way);
        }
        w->now += seconds * unit->share;
        if (unit->root || way < 0) continue;
        wait_and_copy(w, w->reduced, unit->bytes);
        w->reduced = w->move(w->context, w->now, unit->bytes);
        if (!w->cluster->overlap) wait_and_copy(w, w->reduced, 0);
    }
}

double model_fsdp_exposed(const StepProfile *profile, const Cluster *cluster, double slow,
                          FsdpMove *move, void *context) {
    FsdpWalk w = {.cluster = cluster, .move = move, .context = context};
    ModelUnit *units = list_units(profile, &w.count);
    const double root = root_bytes(units, w.count), rows = cluster->rows;
    w.units = units;
    if (root > 0) wait_and_copy(&w, move(context, 0, root), root);
    if (cluster->overlap) gather_next(&w, w.count - 1, -1);
    walk_units(&w, -1, model_row_time(profile->forward, rows) * slow);
    if (cluster->overlap) gather_next(&w, 0, 1); // beside the loss
    w.now += model_row_time(profile->loss, rows) * slow;
    walk_units(&w, 1, model_row_time(profile->backward, rows) * slow);
    wait_and_copy(&w, w.reduced, root);
    if (root > 0) wait_and_copy(&w, move(context, w.now, root), 0);
    free(units);
    return w.exposed;
}

// ---- messages ----------------------------------------------------------------------------------

double model_messages(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy) {
    double devices = cluster->devices, inside = fmin(cluster->node_size, devices), all;
    if (strategy == MODEL_DP) return (devices - 1) * (3 + 2 * profile->messages);
    if (cluster->algorithm == ALGORITHM_TREE && strategy == MODEL_DDP)
        all = 2 * (devices - 1);
    else if (cluster->algorithm != ALGORITHM_HIERARCHICAL)
        all = 2 * devices * (devices - 1);
    else
        all = 2 * devices * (inside - 1 + ceil(devices / inside) - 1);
    if (strategy == MODEL_FSDP) return (double)profile->tensor_count * 1.5 * all;
    BucketTime *buckets = memory_zalloc(profile->tensor_count * sizeof *buckets);
    const double count = (double)model_buckets(profile, cluster, buckets);
    free(buckets);
    return count * all;
}

// ---- steps -------------------------------------------------------------------------------------

static double add_up(const StepParts *p) {
    return p->scatter + p->replicate + p->forward + p->gather + p->loss + p->backward + p->reduce +
           p->exposed + p->optimizer;
}

StepParts model_single(const StepProfile *profile, double rows) {
    StepParts p = {.forward = model_row_time(profile->forward, rows),
                   .loss = model_row_time(profile->loss, rows),
                   .backward = model_row_time(profile->backward, rows),
                   .optimizer = profile->optimizer};
    p.step = add_up(&p);
    return p;
}

// Device 0's link carries all messages, to one device after the other.
static StepParts model_dp(const StepProfile *profile, const Cluster *cluster) {
    double others = cluster->devices - 1, rows = cluster->rows, weights = 0;
    for (size_t k = 0; k < profile->tensor_count; k++) weights += profile->tensors[k].bytes;
    double sent = profile->messages * cluster->link.latency_s + weights / cluster->link.bytes_per_s;
    double all_weights = fmax(sent, cluster->copy_s * weights);
    double outputs = model_message(cluster->link, rows * profile->output_bytes);
    StepParts p = {.scatter = others * model_message(cluster->link, rows * profile->sample_bytes),
                   .replicate = others * all_weights,
                   .forward = model_row_time(profile->forward, rows) * cluster->straggler,
                   .gather = 2 * others * outputs, // the outputs there, their gradients back
                   .loss = model_row_time(profile->loss, rows * cluster->devices),
                   .backward = model_row_time(profile->backward, rows) * cluster->straggler,
                   .reduce = others * all_weights,
                   .optimizer = profile->optimizer};
    p.step = add_up(&p);
    return p;
}

StepParts model_ddp(const StepProfile *profile, const Cluster *cluster, BucketTime *buckets,
                    size_t count) {
    time_buckets(profile, cluster, buckets, count);
    StepParts p = {.forward = model_row_time(profile->forward, cluster->rows) * cluster->straggler,
                   .loss = model_row_time(profile->loss, cluster->rows) * cluster->straggler,
                   .backward =
                       model_row_time(profile->backward, cluster->rows) * cluster->straggler,
                   .optimizer = profile->optimizer * cluster->straggler};
    p.exposed = fmax(0, buckets[count - 1].end - p.backward);
    p.step = add_up(&p);
    return p;
}

static StepParts assign_and_step(const StepProfile *profile, const Cluster *cluster) {
    BucketTime *buckets = memory_zalloc(profile->tensor_count * sizeof *buckets);
    const size_t count = model_buckets(profile, cluster, buckets);
    const StepParts p = model_ddp(profile, cluster, buckets, count);
    free(buckets);
    return p;
}

// The algebra's FsdpMove: one after the other.
typedef struct MoveQueue {
    const Cluster *cluster;
    double free_at;
} MoveQueue;

static double queue_move(void *context, double start, double bytes) {
    MoveQueue *queue = context;
    return queue->free_at = fmax(start, queue->free_at) + move_shards(queue->cluster, bytes);
}

static StepParts model_fsdp(const StepProfile *profile, const Cluster *cluster) {
    MoveQueue queue = {.cluster = cluster};
    const double slow = cluster->straggler;
    StepParts p = {.forward = model_row_time(profile->forward, cluster->rows) * slow,
                   .loss = model_row_time(profile->loss, cluster->rows) * slow,
                   .backward = model_row_time(profile->backward, cluster->rows) * slow,
                   .exposed = model_fsdp_exposed(profile, cluster, slow, queue_move, &queue),
                   .optimizer = profile->optimizer * slow / cluster->devices}; // of its shards
    p.step = add_up(&p);
    return p;
}

StepParts model_step(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy) {
    if (strategy == MODEL_DP) return model_dp(profile, cluster);
    return strategy == MODEL_DDP ? assign_and_step(profile, cluster) : model_fsdp(profile, cluster);
}

// ---- break-even --------------------------------------------------------------------------------

// Whether the cluster's devices, over links of `gbit` Gbit/s, train more rows per second than one
// device.
static bool pays(const StepProfile *profile, Cluster cluster, double gbit, ModelStrategy strategy) {
    cluster.link.bytes_per_s = gbit * GBIT;
    return model_step(profile, &cluster, strategy).step <
           cluster.devices * model_single(profile, cluster.rows).step;
}

double model_break_even(const StepProfile *profile, const Cluster *cluster,
                        ModelStrategy strategy) {
    double slow = 1e-6, fast = 1e6;
    if (pays(profile, *cluster, slow, strategy)) return 0;
    if (!pays(profile, *cluster, fast, strategy)) return INFINITY;
    for (int i = 0; i < 100; i++) {
        double middle = sqrt(slow * fast);
        if (pays(profile, *cluster, middle, strategy))
            fast = middle;
        else
            slow = middle;
    }
    return fast;
}

void step_profile_free(StepProfile *profile) {
    free(profile->tensors);
    *profile = (StepProfile){0};
}
