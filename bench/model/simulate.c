/* simulate.c: see simulate.h. SimGrid can run once in a process, so each simulation is a child. */
#include "bench/model/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>

#include "common/base/memory.h"

// Shared by all actors. It needs no lock, because SimGrid runs one actor at a time.
typedef struct Simulation {
    const StepProfile *profile;
    const Cluster *cluster;
    BucketTime *buckets;
    size_t bucket_count;
    sg_host_t *outer, *inner; // [devices] a device's host in that network
    double messages, end;     // sent so far; when the last device was done
} Simulation;

typedef struct SimDevice {
    Simulation *simulation;
    int number;
} SimDevice;

// ---- messages ----------------------------------------------------------------------------------

static sg_mailbox_t mailbox(int from, int to) {
    char name[32];
    snprintf(name, sizeof name, "%d>%d", from, to);
    return sg_mailbox_by_name(name);
}

static sg_comm_t start_send(const SimDevice *me, int to, double bytes) {
    static char something;
    me->simulation->messages++;
    return sg_mailbox_put_async(mailbox(me->number, to), &something, lround(bytes));
}

static void receive(const SimDevice *me, int from) {
    sg_mailbox_get(mailbox(from, me->number));
}

static void send(const SimDevice *me, int to, double bytes) {
    sg_comm_wait(start_send(me, to, bytes));
}

// Does half of an all-reduce: count - 1 rounds around the ring of the devices first, first +
// stride, and so on.
static void half_ring(const SimDevice *me, int first, int stride, int count, double bytes) {
    int place = (me->number - first) / stride;
    int next = first + (place + 1) % count * stride;
    int previous = first + (place + count - 1) % count * stride;
    for (int round = 1; round < count; round++) {
        sg_comm_t sent = start_send(me, next, bytes / count);
        receive(me, previous);
        sg_comm_wait(sent);
    }
}

static void up_and_down_the_tree(const SimDevice *me, double bytes) {
    int devices = me->simulation->cluster->devices, top = 1;
    for (int step = 1; step < devices; step *= 2, top = step) {
        if (me->number % (2 * step) == step) {
            send(me, me->number - step, bytes);
            top = step;
            break;
        }
        if (me->number + step < devices) receive(me, me->number + step);
    }
    if (me->number > 0) receive(me, me->number - top);
    for (int step = top; step > 0; step /= 2)
        if (me->number % (2 * step) == 0 && me->number + step < devices)
            send(me, me->number + step, bytes);
}

static void rings_of_rings(const SimDevice *me, double bytes) {
    const Simulation *s = me->simulation;
    int devices = s->cluster->devices, inside = (int)fmin(s->cluster->node_size, devices);
    int first = me->number / inside * inside, nodes = devices / inside;
    sg_actor_set_host(sg_actor_self(), s->inner[me->number]);
    half_ring(me, first, 1, inside, bytes);
    sg_actor_set_host(sg_actor_self(), s->outer[me->number]);
    half_ring(me, me->number - first, inside, nodes, bytes / inside);
    half_ring(me, me->number - first, inside, nodes, bytes / inside);
    sg_actor_set_host(sg_actor_self(), s->inner[me->number]);
    half_ring(me, first, 1, inside, bytes);
}

static void all_reduce(const SimDevice *me, double bytes) {
    const Cluster *cluster = me->simulation->cluster;
    if (cluster->devices == 1) return;
    sg_actor_sleep_for(cluster->call_s);
    if (cluster->algorithm == ALGORITHM_TREE) {
        up_and_down_the_tree(me, bytes);
    } else if (cluster->algorithm == ALGORITHM_HIERARCHICAL) {
        rings_of_rings(me, bytes);
    } else {
        half_ring(me, 0, 1, cluster->devices, bytes);
        half_ring(me, 0, 1, cluster->devices, bytes);
    }
}

// ---- a device's step ---------------------------------------------------------------------------

// Only the last device is slow: the others are ready early and wait for it.
static double slowness(const SimDevice *me) {
    const Cluster *cluster = me->simulation->cluster;
    return me->number == cluster->devices - 1 ? cluster->straggler : 1;
}

static void done(const SimDevice *me) {
    if (simgrid_get_clock() > me->simulation->end) me->simulation->end = simgrid_get_clock();
}

static void ddp_device(int argc, char **argv) {
    (void)argc, (void)argv;
    const SimDevice *me = sg_actor_self_get_data();
    const Simulation *s = me->simulation;
    const Cluster *cluster = s->cluster;
    double slow = slowness(me), backward = model_row_time(s->profile->backward, cluster->rows);
    sg_actor_sleep_for(slow * (model_row_time(s->profile->forward, cluster->rows) +
                               model_row_time(s->profile->loss, cluster->rows)));
    double begin = simgrid_get_clock();
    for (size_t b = 0; b < s->bucket_count; b++) {
        double ready = cluster->overlap ? s->buckets[b].ready / cluster->straggler : backward;
        if (begin + slow * ready > simgrid_get_clock()) sg_actor_sleep_until(begin + slow * ready);
        all_reduce(me, s->buckets[b].bytes);
    }
    double over = begin + slow * backward;
    if (over > simgrid_get_clock()) sg_actor_sleep_until(over);
    sg_actor_sleep_for(slow * s->profile->optimizer);
    done(me);
}

// The step of a device other than the first in DataParallel: it receives rows and weights,
// sends its outputs, receives their gradients, and sends the gradients of the weights.
static void dp_worker(const SimDevice *me, double compute[2]) {
    double slow = slowness(me);
    int copies = (int)me->simulation->profile->messages;
    for (int i = 0; i < 1 + copies; i++) receive(me, 0);
    sg_actor_sleep_for(slow * compute[0]);
    send(me, 0, me->simulation->cluster->rows * me->simulation->profile->output_bytes);
    receive(me, 0);
    sg_actor_sleep_for(slow * compute[1]);
    double weights = 0;
    for (size_t k = 0; k < me->simulation->profile->tensor_count; k++)
        weights += me->simulation->profile->tensors[k].bytes;
    for (int i = 0; i < copies; i++) send(me, 0, weights / copies);
}

static void dp_send_to_all(const SimDevice *me, int copies, double bytes) {
    for (int to = 1; to < me->simulation->cluster->devices; to++)
        for (int i = 0; i < copies; i++) send(me, to, bytes / copies);
}

static void dp_receive_from_all(const SimDevice *me, int copies) {
    for (int from = 1; from < me->simulation->cluster->devices; from++)
        for (int i = 0; i < copies; i++) receive(me, from);
}

static void dp_device(int argc, char **argv) {
    (void)argc, (void)argv;
    const SimDevice *me = sg_actor_self_get_data();
    const StepProfile *p = me->simulation->profile;
    const Cluster *cluster = me->simulation->cluster;
    double compute[2] = {model_row_time(p->forward, cluster->rows),
                         model_row_time(p->backward, cluster->rows)};
    if (me->number > 0) {
        dp_worker(me, compute);
        return;
    }
    double weights = 0, slow = slowness(me);
    for (size_t k = 0; k < p->tensor_count; k++) weights += p->tensors[k].bytes;
    dp_send_to_all(me, 1, cluster->rows * p->sample_bytes);
    dp_send_to_all(me, (int)p->messages, weights);
    sg_actor_sleep_for(slow * compute[0]);
    dp_receive_from_all(me, 1);
    sg_actor_sleep_for(model_row_time(p->loss, cluster->rows * cluster->devices));
    dp_send_to_all(me, 1, cluster->rows * p->output_bytes);
    sg_actor_sleep_for(slow * compute[1]);
    dp_receive_from_all(me, (int)p->messages);
    sg_actor_sleep_for(p->optimizer);
    done(me);
}

// Does half of an all-reduce by rings; between nodes on a device's part of the bytes.
static void move_shards(const SimDevice *me, double bytes) {
    const Simulation *s = me->simulation;
    int devices = s->cluster->devices, inside = (int)fmin(s->cluster->node_size, devices);
    sg_actor_sleep_for(s->cluster->call_s);
    if (s->cluster->algorithm != ALGORITHM_HIERARCHICAL) {
        half_ring(me, 0, 1, devices, bytes);
        return;
    }
    const int first = me->number / inside * inside;
    sg_actor_set_host(sg_actor_self(), s->inner[me->number]);
    half_ring(me, first, 1, inside, bytes);
    sg_actor_set_host(sg_actor_self(), s->outer[me->number]);
    half_ring(me, me->number - first, inside, devices / inside, bytes / inside);
}

// An FsdpMove. Each depends on those before it alone, so that one actor computes and moves.
static double fsdp_move(void *context, double start, double bytes) {
    const SimDevice *me = context;
    if (start > simgrid_get_clock()) sg_actor_sleep_until(start);
    if (me->simulation->cluster->devices > 1) move_shards(me, bytes);
    return simgrid_get_clock();
}

static void fsdp_device(int argc, char **argv) {
    (void)argc, (void)argv;
    SimDevice *me = sg_actor_self_get_data();
    const StepProfile *p = me->simulation->profile;
    const Cluster *cluster = me->simulation->cluster;
    const double slow = slowness(me);
    double end = model_fsdp_exposed(p, cluster, slow, fsdp_move, me);
    end += slow *
           (model_single(p, cluster->rows).step - p->optimizer + p->optimizer / cluster->devices);
    if (end > simgrid_get_clock()) sg_actor_sleep_until(end);
    done(me);
}

// ---- a simulation ------------------------------------------------------------------------------

// Two networks that never meet: one between all devices, one inside the nodes. A message crosses
// two links, the sender's and the receiver's, and each has half of the latency.
static int write_platform(FILE *file, const Cluster *cluster) {
    const ModelLink links[] = {cluster->link, cluster->inside};
    fprintf(file, "<?xml version='1.0'?>\n"
                  "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                  "<platform version=\"4.1\"><zone id=\"all\" routing=\"Full\">\n");
    for (int i = 0; i < 2; i++)
        fprintf(file,
                "<cluster id=\"net%d\" prefix=\"n%d_\" suffix=\"\" radical=\"0-%d\" speed=\"1Gf\" "
                "bw=\"%.9gBps\" lat=\"%.9gs\"/>\n",
                i, i, cluster->devices - 1, links[i].bytes_per_s, links[i].latency_s / 2);
    fprintf(file, "</zone></platform>\n");
    return fclose(file);
}

static void start_simgrid(char *platform) {
    char *arguments[] = {"bench_scale",
                         "--log=root.thres:error",
                         "--cfg=network/model:CM02",
                         "--cfg=network/TCP-gamma:1e18",
                         "--cfg=network/crosstraffic:0",
                         "--cfg=contexts/stack-size:256",
                         NULL};
    int count = sizeof arguments / sizeof arguments[0] - 1;
    simgrid_init(&count, arguments);
    simgrid_load_platform(platform);
    unlink(platform);
}

static double run(const StepProfile *profile, const Cluster *cluster, char *platform,
                  ModelStrategy strategy) {
    void (*const devices_do[])(int, char **) = {dp_device, ddp_device, fsdp_device};
    Simulation s = {.profile = profile, .cluster = cluster};
    s.buckets = memory_zalloc((profile->tensor_count + 1) * sizeof *s.buckets);
    s.bucket_count = model_buckets(profile, cluster, s.buckets);
    size_t devices = (size_t)cluster->devices;
    s.outer = memory_zalloc(devices * sizeof *s.outer);
    s.inner = memory_zalloc(devices * sizeof *s.inner);
    SimDevice *all = memory_zalloc(devices * sizeof *all);
    start_simgrid(platform);
    for (int i = 0; i < cluster->devices; i++) {
        char name[32];
        snprintf(name, sizeof name, "n0_%d", i);
        s.outer[i] = sg_host_by_name(name);
        snprintf(name, sizeof name, "n1_%d", i);
        s.inner[i] = sg_host_by_name(name);
        all[i] = (SimDevice){&s, i};
        sg_actor_t actor = sg_actor_init("device", s.outer[i]);
        sg_actor_set_data(actor, &all[i]);
        sg_actor_start(actor, devices_do[strategy], 0, NULL);
    }
    simgrid_run();
    const double most = model_messages(profile, cluster, strategy);
    CHECK(strategy == MODEL_FSDP ? s.messages <= most : s.messages == most,
          "a step of %.0f messages sends %.0f", most, s.messages);
    return s.end; // the child ends now, and its memory with it
}

static void child(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                  int out) {
    char platform[] = "/tmp/ddpc-platform-XXXXXX.xml";
    int fd = mkstemps(platform, 4);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file || write_platform(file, cluster) != 0) _exit(1);
    double seconds = run(profile, cluster, platform, strategy);
    _exit(write(out, &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
}

static int simulate(const StepProfile *profile, const Cluster *cluster, ModelStrategy strategy,
                    double *seconds, Error *err) {
    if (cluster->devices > cluster->node_size && cluster->devices % cluster->node_size != 0)
        return error_set(err, STATUS_USAGE, "%d devices do not fill nodes of %d", cluster->devices,
                         cluster->node_size);
    int pipe_ends[2], status = 0;
    CHECK(pipe(pipe_ends) == 0, "no pipe for a simulation");
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0, "cannot fork a simulation");
    if (pid == 0) child(profile, cluster, strategy, pipe_ends[1]);
    close(pipe_ends[1]);
    const bool whole = read(pipe_ends[0], seconds, sizeof *seconds) == sizeof *seconds;
    close(pipe_ends[0]);
    waitpid(pid, &status, 0);
    if (whole && status == 0) return 0;
    return error_set(err, STATUS_FAILED, "the simulation of %d devices ended with status %d",
                     cluster->devices, status);
}

SimulateStep *const simulate_by_simgrid = simulate;
