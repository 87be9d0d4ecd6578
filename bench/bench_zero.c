/* bench_zero.c: the time of exchanging gradients and stepping, in DistributedDataParallel and with
 * the optimizer divided over the ranks (ZeRO-1). By hand:
 *
 *     ddprun --bind cores --nproc-per-node 2 bench_zero
 *
 * Nothing is computed: each rank declares its gradients ready; timed is the rest of the step, up to
 * equal new weights on all ranks. Four ways take turns, in another order each round, so that all of
 * them see the same machine: ddp (all-reduce, every rank steps all weights), whole (all-reduce, a
 * part of the step, the weights to all: what --amp fp16 needs), scattered (reduce_scatter, a part
 * of the step, all_gather) and fused (one pass). A turn counts by its median step, so that a
 * step that something else disturbed does not count. A ratio is a way's turn to ddp's in the same
 * round; its quartiles over the rounds say how sure it is. In the end all weights must be equal,
 * byte for byte.
 */
#include <string.h>

#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "common/nn/models.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/features/zero_optimizer.h"
#include "ddp/reducer.h"
#include "ddp/rendezvous/init.h"

enum { DDP, WHOLE, SCATTERED, FUSED, WAYS };
enum { CLASSES = 10, INPUTS = 784 };
enum { TURNS_MAX = 1000 }; // the most turns of a way, and the most steps of a turn
static const char *const NAMES[WAYS] = {"ddp", "whole", "scattered", "fused"};

typedef struct Settings {
    const char *hidden;
    OptimizerKind optimizer;
    size_t rounds, steps;
} Settings;

typedef struct Way {
    Device *device;
    Module *wrapper;
    Optimizer *optimizer;
    double ms[TURNS_MAX]; // [rounds], the median of the turn's steps, milliseconds
} Way;

static void open_way(Way *way, int which, const Settings *settings, ProcessGroup *group) {
    Error err = {0};
    const ModelConfig model = {.name = "mlp",
                               .hidden = settings->hidden,
                               .input = {INPUTS, 1, 1},
                               .outputs = CLASSES,
                               .seed = 1};
    const DdpConfig config = ddp_config_default();
    OptimizerConfig optimizer = {.kind = settings->optimizer,
                                 .momentum = 0.9,
                                 .weight_decay = 0.01,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8};
    Module *module = must_get(model_create(&model, way->device, &err), &err);
    way->wrapper = must_get(distributed_data_parallel(module, group, &config, &err), &err);
    if (which != DDP) {
        const ZeroConfig zero = {.apart = which == SCATTERED};
        must_do(ddp_zero_optimizer(way->wrapper, &zero, &err), &err);
        optimizer.sharding = zero_optimizer_sharding(way->wrapper);
        optimizer.sharding->whole_gradients = which == WHOLE;
    }
    way->optimizer = optimizer_create(module, &optimizer);
}

// Writes gradients that differ from rank to rank, and that are small enough for any number of
// steps. The order is that of backward, because the gradients written last are still in the caches.
static void fill_gradients(const Way *way, int rank) {
    const NamedTensors *parameters = &ddp_reducer(way->wrapper)->slab.parameters;
    for (size_t i = parameters->count; i-- > 0;) {
        const Tensor *tensor = parameters->items[i].tensor;
        for (size_t k = 0; k < tensor_count(tensor); k++)
            tensor->grad[k] = 1e-3f * (float)((k + (size_t)rank) % 7);
    }
}

// Goes from gradients that are ready to new weights, which are equal on all ranks: this is timed.
static void take_step(const Way *way) {
    Error err = {0};
    Reducer *reducer = ddp_reducer(way->wrapper);
    const NamedTensors *parameters = &reducer->slab.parameters;
    must_do(reducer_prepare(reducer, true, &err), &err);
    for (size_t i = parameters->count; i-- > 0;) {
        parameters->items[i].tensor->has_grad = true;
        reducer_mark_ready(reducer, i);
    }
    must_do(reducer_finish(reducer, NULL, &err), &err);
    optimizer_step(way->optimizer, 1e-3);
}

// Returns the q-quantile of the ratios values[k] / base[k], or of the values themselves if base is
// NULL.
static double quantile(const double *values, const double *base, size_t count, double q) {
    double ratios[TURNS_MAX] = {0};
    for (size_t k = 0; k < count; k++) ratios[k] = values[k] / (base ? base[k] : 1);
    return bench_quantile(ratios, count, q);
}

// Takes a turn of so many steps. Returns the median of their times, in milliseconds. Writing the
// gradients, which is backward's work, does not count.
static double time_steps(const Way *way, size_t steps, ProcessGroup *group) {
    Error err = {0};
    double ms[TURNS_MAX];
    for (size_t s = 0; s < steps; s++) {
        fill_gradients(way, pg_rank(group));
        must_do(pg_run(group, pg_barrier(), &err), &err);
        const uint64_t begin = clock_ns();
        take_step(way);
        must_do(pg_run(group, pg_barrier(), &err), &err);
        ms[s] = (double)(clock_ns() - begin) / 1e6;
    }
    return bench_median(ms, steps);
}

// ---- comparing and telling ----------------------------------------------------------------------

static bool same_weights(const Way *a, const Way *b) {
    const NamedTensors *one = &a->optimizer->parameters, *two = &b->optimizer->parameters;
    for (size_t i = 0; i < one->count; i++)
        if (memcmp(one->items[i].tensor->data, two->items[i].tensor->data,
                   tensor_bytes(one->items[i].tensor)) != 0)
            return false;
    return true;
}

static void tell(const Way *ways, size_t rounds, size_t parameters, int world) {
    for (int w = 0; w < WAYS; w++) {
        const double *ms = ways[w].ms, *ddp = ways[DDP].ms;
        printf("way=%s optimizer=%s world_size=%d parameters=%zu ms=%.4f best_ms=%.4f ratio=%.4f "
               "ratio_p25=%.4f ratio_p75=%.4f bytes=%zu weights=%s\n",
               NAMES[w], optimizer_name(ways[w].optimizer), world, parameters,
               quantile(ms, NULL, rounds, 0.5), quantile(ms, NULL, rounds, 0),
               quantile(ms, ddp, rounds, 0.5), quantile(ms, ddp, rounds, 0.25),
               quantile(ms, ddp, rounds, 0.75), ways[w].device->bytes,
               same_weights(&ways[DDP], &ways[w]) ? "equal" : "DIFFER");
    }
}

static Way *run_rounds(const Settings *settings, ProcessGroup *group) {
    Error err = {0};
    Way *ways = memory_zalloc(WAYS * sizeof *ways);
    for (int w = 0; w < WAYS; w++) {
        ways[w].device = must_get(device_open("cpu:0", &err), &err);
        open_way(&ways[w], w, settings, group);
        (void)time_steps(&ways[w], 2, group); // buckets are rebuilt, and memory is touched
    }
    for (size_t round = 0; round < settings->rounds; round++)
        for (size_t turn = 0; turn < WAYS; turn++) {
            Way *way = &ways[(round + turn) % WAYS];
            way->ms[round] = time_steps(way, settings->steps, group);
        }
    return ways;
}

int main(int argc, char **argv) {
    Settings settings = {.hidden = "1024,1024,1024,1024", .optimizer = OPTIMIZER_ADAMW};
    settings.rounds = 40;
    settings.steps = 5;
    Options options = {.program = "bench_zero",
                       .summary = "Exchange and step: DDP's, and with the optimizer divided."};
    options_add_string(&options, "hidden", &settings.hidden, "N,...", "widths of the mlp");
    options_add_enum(&options, "optimizer", &settings.optimizer, OPTIMIZER_WORDS, "");
    options_add_count(&options, "rounds", &settings.rounds, 1, TURNS_MAX, "turns of each way");
    options_add_count(&options, "steps", &settings.steps, 1, TURNS_MAX, "steps in a turn");
    Error err = {0};
    must_do(options_parse(&options, argc, argv, &err), &err);
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    ProcessGroup *group = must_get(init_process_group("shm", &me, NULL, 300, &err), &err);
    Way *ways = run_rounds(&settings, group);
    size_t parameters = 0;
    bool same = true;
    for (size_t i = 0; i < ways->optimizer->parameters.count; i++)
        parameters += tensor_count(ways->optimizer->parameters.items[i].tensor);
    for (int w = 1; w < WAYS; w++) same = same && same_weights(&ways[0], &ways[w]);
    if (pg_rank(group) == 0) tell(ways, settings.rounds, parameters, pg_size(group));
    for (int w = 0; w < WAYS; w++) {
        optimizer_close(ways[w].optimizer);
        module_close(ways[w].wrapper);
        device_close(ways[w].device);
    }
    free(ways);
    pg_close(group);
    return same ? STATUS_OK : STATUS_FAILED;
}
