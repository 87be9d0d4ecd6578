/* bench_ladder.c: from DataParallel to DistributedDataParallel, one ingredient at a time: the time
 * that each saves, and that none changes the weights. bench/ablation.sh starts it, by hand it is
 *
 *     ddprun --nproc-per-node 2 bench_ladder --link 10gbe
 *
 * ladder/rungs.c has the rungs. Rungs whose devices are threads run in rank 0's process while the
 * other ranks sleep; then all ranks do the rungs whose devices are processes. A round takes all
 * rungs once, a few steps each, so that all of them see the same machine. The time that a rung
 * saves is the median over the rounds of the rung below minus this one, in the same round.
 * --csv has every round: bench/report/ladder.py puts those of several calls together.
 *
 * In the end the weights of every rung are compared with those of the first one, byte for byte.
 */
#include <math.h>
#include <string.h>

#include "bench/ladder/rungs.h"
#include "bench/workload.h"
#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/device/link.h"
#include "common/nn/models.h"
#include "common/tensor_files/safetensors.h"
#include "common/train/setup.h"
#include "ddp/rendezvous/init.h"

static const double TIMEOUT_S = 300;

typedef struct Settings {
    size_t rounds, steps, warmup;
    const char *csv, *save;
} Settings;

typedef struct Ladder {
    const Settings *settings;
    Course course;
    Device *device;        // this rank's
    ProcessGroup *control; // of all ranks, for the barriers around the timed steps
    ProcessGroup *group;   // of the same ranks, for training: it has the emulated link
    cpu_set_t all, share;  // the cores of this process, and this rank's share of them
    Rung *rungs[RUNGS];    // NULL on the other ranks than 0 if the rung's devices are threads
    double *ms[RUNGS];     // [rounds], milliseconds per step; of rank 0
} Ladder;

static bool is_first(const Ladder *ladder) {
    return pg_rank(ladder->control) == 0;
}

static void barrier(const Ladder *ladder) {
    Error err = {0};
    must_do(pg_run(ladder->control, pg_barrier(), &err), &err);
}

// ---- measuring ----------------------------------------------------------------------------------

// Binds this thread to the cores that the rung's devices may use. A rank has a share of them; while
// the devices are threads of rank 0, these have all cores.
static void take_cores(const Ladder *ladder, Ingredient i) {
    const cpu_set_t *cores = ingredient_is_rank(i) ? &ladder->share : &ladder->all;
    (void)sched_setaffinity(0, sizeof *cores, cores);
}

// Takes so many steps of a rung. Returns how many milliseconds the median one took: the first ones
// find the caches full of another rung's.
static double run_rung(const Ladder *ladder, Ingredient i, size_t steps) {
    double *ms = memory_zalloc(steps * sizeof *ms);
    take_cores(ladder, i);
    barrier(ladder);
    for (size_t s = 0; s < steps && ladder->rungs[i]; s++) {
        const uint64_t begin = clock_ns();
        rung_step(ladder->rungs[i]);
        ms[s] = (double)(clock_ns() - begin) / 1e6;
    }
    barrier(ladder);
    const double median = bench_median(ms, steps);
    free(ms);
    return median;
}

static void run_rounds(Ladder *ladder) {
    const Settings *s = ladder->settings;
    RunLog log = log_open(!is_first(ladder));
    for (Ingredient i = 0; i < RUNGS; i++) (void)run_rung(ladder, i, s->warmup);
    for (size_t round = 0; round < s->rounds; round++) {
        for (Ingredient i = 0; i < RUNGS; i++) ladder->ms[i][round] = run_rung(ladder, i, s->steps);
        log_progress(&log, round + 1, s->rounds, "rounds", 0);
    }
    log_close(&log);
}

// Returns the median over the rounds of the milliseconds per step of a rung. With `below`, the
// rounds of another rung, it is the median of the milliseconds that rung i saves over it.
static double median_ms(const Ladder *ladder, Ingredient i, const double *below) {
    const size_t rounds = ladder->settings->rounds;
    double *values = memory_zalloc(rounds * sizeof *values);
    for (size_t r = 0; r < rounds; r++)
        values[r] = below ? below[r] - ladder->ms[i][r] : ladder->ms[i][r];
    const double median = bench_median(values, rounds);
    free(values);
    return median;
}

// ---- comparing ----------------------------------------------------------------------------------

// Finds the first parameter whose bytes differ from the first rung's, and writes its name into
// name[room]; "" if none differs.
static void find_difference(const Ladder *ladder, Ingredient i, char *name, size_t room) {
    NamedTensors first = module_tensors(rung_model(ladder->rungs[0]), MODULE_PARAMETERS);
    NamedTensors other = module_tensors(rung_model(ladder->rungs[i]), MODULE_PARAMETERS);
    name[0] = '\0';
    for (size_t k = 0; k < first.count && !name[0]; k++) {
        const Tensor *a = first.items[k].tensor, *b = other.items[k].tensor;
        if (memcmp(a->data, b->data, tensor_bytes(a)) != 0)
            snprintf(name, room, "%s", first.items[k].name);
    }
    named_tensors_free(&first);
    named_tensors_free(&other);
}

// Whether training has changed every weight: equal weights that never moved would show nothing.
static bool has_trained(const Ladder *ladder) {
    Error err = {0};
    const Course *c = &ladder->course;
    Device *device = must_get(device_open("cpu:0", &err), &err);
    Module *fresh = must_get(train_create_model(c->config, c->data, device, 0, &err), &err);
    NamedTensors now = module_tensors(rung_model(ladder->rungs[0]), MODULE_PARAMETERS);
    NamedTensors then = module_tensors(fresh, MODULE_PARAMETERS);
    bool moved = true;
    for (size_t k = 0; k < now.count; k++) {
        const Tensor *a = now.items[k].tensor, *b = then.items[k].tensor;
        moved = moved && memcmp(a->data, b->data, tensor_bytes(a)) != 0;
    }
    for (size_t j = 0; j < tensor_count(now.items[0].tensor); j++)
        moved = moved && isfinite(tensor_f32(now.items[0].tensor)[j]);
    named_tensors_free(&now);
    named_tensors_free(&then);
    module_close(fresh);
    device_close(device);
    return moved;
}

// ---- reporting ----------------------------------------------------------------------------------

static const char *link_text(const Ladder *ladder, char text[LINK_TEXT_MAX]) {
    LinkSpeed speed;
    Error err = {0};
    if (!ladder->course.config->link) return "memory";
    must_do(link_parse(ladder->course.config->link, &speed, &err), &err);
    return link_describe(speed, text);
}

static FILE *open_csv(const Ladder *ladder) {
    Error err = {0};
    if (!ladder->settings->csv) return NULL;
    FILE *csv = fopen(ladder->settings->csv, "w");
    if (!csv)
        must_do(error_set(&err, STATUS_USAGE, "--csv %s: cannot be written", ladder->settings->csv),
                &err);
    // cppcheck-suppress nullPointerRedundantCheck; must_do does not return from a failure
    fprintf(csv, "rung,says,devices,link,round,ms,weights\n");
    return csv;
}

// Prints a rung's line, of at most 80 columns, and writes its rounds into the CSV file. Returns 1
// if its weights differ from the first rung's, otherwise 0.
static int report_rung(const Ladder *ladder, Ingredient i, FILE *csv) {
    char difference[MODULE_PATH], link[LINK_TEXT_MAX], saved[16] = "";
    find_difference(ladder, i, difference, sizeof difference);
    const char *weights = difference[0] ? difference : "equal";
    if (i > 0) snprintf(saved, sizeof saved, "%+.3f", median_ms(ladder, i, ladder->ms[i - 1]));
    printf("%-14s %-40s %7.3f %9s %s\n", ingredient_name(i), ingredient_says(i),
           median_ms(ladder, i, NULL), saved, difference[0] ? "DIFFER" : "equal");
    for (size_t r = 0; csv && r < ladder->settings->rounds; r++)
        fprintf(csv, "%s,%s,%s,%s,%zu,%.6f,%s\n", ingredient_name(i), ingredient_says(i),
                ingredient_is_rank(i) ? "processes" : "threads", link_text(ladder, link), r + 1,
                ladder->ms[i][r], weights);
    return difference[0] != '\0';
}

// Returns how many rungs have other weights than the first one.
static int report(const Ladder *ladder) {
    char link[LINK_TEXT_MAX], text[160];
    int different = 0;
    const Course *c = &ladder->course;
    FILE *csv = open_csv(ladder);
    device_kernels(ladder->device)->describe(text, sizeof text);
    printf("%s on %s, global batch %zu, %d devices\n", c->config->model, c->data->name, c->rows,
           c->devices);
    printf("over %s\n", link_text(ladder, link));
    printf("%s\n", text);
    printf("%-14s %-40s %7s %9s %s\n", "ingredient", "", "ms", "saves", "bits");
    for (Ingredient i = 0; i < RUNGS; i++) different += report_rung(ladder, i, csv);
    if (csv) fclose(csv);
    for (Ingredient i = 0; i < RUNGS; i++) {
        find_difference(ladder, i, text, sizeof text);
        if (text[0])
            printf("%s: %s is the first parameter that differs from the first rung's. All rungs\n"
                   "add up in the order of the devices: a difference is a mistake, not rounding.\n",
                   ingredient_name(i), text);
    }
    return different;
}

// Writes the first rung's weights if --save asks for them: bench/ablation.sh compares them with
// those of train_dp and train_ddp.
static void save_weights(const Ladder *ladder) {
    Error err = {0};
    if (!ladder->settings->save) return;
    must_do(safetensors_save_module(ladder->settings->save, rung_model(ladder->rungs[0]), NULL, 0,
                                    &err),
            &err);
}

// ---- the course ---------------------------------------------------------------------------------

// Reads all whole batches of an epoch, in the order in which the trainers with --no-shuffle take
// them.
static Course open_course(const TrainConfig *config, int devices, double bucket_cap_mb) {
    Error err = {0};
    const DataSource *data = must_get(train_open_data(config, &err), &err);
    const Dataset *set = &data->train;
    const size_t rows = config->global_batch, sample = dataset_sample_size(set);
    if (!set->labels || set->dense)
        must_do(error_set(&err, STATUS_USAGE, "--data %s: samples with a class each are needed",
                          data->name),
                &err);
    Sampler *whole = must_get(sampler_whole(set->count, rows, false, true, 0, &err), &err);
    const size_t batches = whole->batch_count;
    float *samples = memory_zalloc(batches * rows * sample * sizeof *samples);
    int64_t *labels = memory_zalloc(batches * rows * sizeof *labels);
    for (size_t i = 0; i < batches * rows; i++) {
        dataset_sample(set, whole->indices[i], NULL, 0, samples + i * sample);
        dataset_sample_labels(set, whole->indices[i], NULL, 0, labels + i);
    }
    sampler_close(whole);
    return (Course){.config = config,
                    .data = data,
                    .samples = samples,
                    .labels = labels,
                    .batches = batches,
                    .rows = rows,
                    .sample = sample,
                    .devices = devices,
                    .bucket_cap_mb = bucket_cap_mb};
}

static void close_course(Course *course) {
    free((void *)course->samples);
    free((void *)course->labels);
    dataset_close((DataSource *)course->data);
}

// ---- the program --------------------------------------------------------------------------------

static void add_options(Options *options, TrainConfig *config, Settings *s, double *cap) {
    Options *o = options;
    options_add_choice(o, "model", &config->model, model_names(), "the network");
    options_add_string(o, "hidden", &config->hidden, "N,N", "mlp: sizes of the hidden layers");
    options_add_string(o, "data", &config->data, "NAME|DIR", "samples with a class each");
    options_add_count(o, "global-batch", &config->global_batch, 1, 1 << 20, "rows of all devices");
    options_add_float(o, "lr", &config->schedule.lr, 0, 1e6, "learning rate");
    options_add_float(o, "bucket-cap-mb", cap, -1, 1e6, "as train_ddp's");
    options_add_string(o, "link", &config->link, "GBIT,LATENCY_US|NAME", "as the trainers'");
    options_add_count(o, "rounds", &s->rounds, 1, 1e6, "each of them takes all rungs");
    options_add_count(o, "steps", &s->steps, 1, 1e6, "of a rung in a round");
    options_add_count(o, "warmup", &s->warmup, 1, 1e6, "steps of each rung before the first round");
    options_add_string(o, "csv", &s->csv, "FILE", "write every round as CSV");
    options_add_string(o, "save", &s->save, "FILE", "write the first rung's weights");
}

static void check(const TrainConfig *config, const Rendezvous *me, Error *err) {
    if (me->world_size < 2)
        must_do(error_set(err, STATUS_USAGE,
                          "one device has no ladder: ddprun --nproc-per-node 2 bench_ladder"),
                err);
    if (me->world_size > LADDER_DEVICES_MAX)
        must_do(error_set(err, STATUS_USAGE, "%d devices: a ladder has at most %d", me->world_size,
                          LADDER_DEVICES_MAX),
                err);
    if (config->global_batch < (size_t)me->world_size)
        must_do(error_set(err, STATUS_USAGE, "--global-batch %zu: %d devices need a row each",
                          config->global_batch, me->world_size),
                err);
}

static void open_ladder(Ladder *ladder, const Rendezvous *me) {
    Error err = {0};
    ladder->control = must_get(init_process_group("shm", me, NULL, TIMEOUT_S, &err), &err);
    int *ranks = memory_zalloc((size_t)me->world_size * sizeof *ranks);
    for (int r = 0; r < me->world_size; r++) ranks[r] = r;
    ladder->group = must_get(pg_new_subgroup(ladder->control, ranks, me->world_size, &err), &err);
    free(ranks);
    pg_emulate_link(ladder->group, ladder->device->link);
    if (sched_getaffinity(0, sizeof ladder->all, &ladder->all) != 0) CPU_ZERO(&ladder->all);
    cores_share(&ladder->all, me->rank, me->world_size, &ladder->share);
    for (Ingredient i = 0; i < RUNGS; i++) {
        take_cores(ladder, i);
        ladder->ms[i] = memory_zalloc(ladder->settings->rounds * sizeof *ladder->ms[i]);
        if (ingredient_is_rank(i) || me->rank == 0)
            ladder->rungs[i] = rung_open(&ladder->course, i, ladder->group, ladder->device);
    }
}

static void close_ladder(Ladder *ladder) {
    for (int i = RUNGS - 1; i >= 0; i--) {
        if (ladder->rungs[i]) rung_close(ladder->rungs[i]);
        free(ladder->ms[i]);
    }
    pg_close(ladder->group);
    pg_close(ladder->control);
    device_close(ladder->device);
    close_course(&ladder->course);
}

int main(int argc, char **argv) {
    Error err = {0};
    Settings settings = {.rounds = 20, .steps = 8, .warmup = 4};
    TrainConfig config = train_config_default();
    config.hidden = "512,512,512,512,512,512,512,512";
    config.data = "synthetic:1x28x28:10@4096";
    config.global_batch = 256;
    config.schedule.lr = 0.02;
    double cap = 1;
    Options options = {.program = "bench_ladder",
                       .summary = "What each ingredient between DP and DDP is worth."};
    add_options(&options, &config, &settings, &cap);
    must_do(options_parse(&options, argc, argv, &err), &err);
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    check(&config, &me, &err);
    Ladder ladder = {.settings = &settings,
                     .device = must_get(train_open_device(&config, me.local_rank, &err), &err),
                     .course = open_course(&config, me.world_size, cap)};
    open_ladder(&ladder, &me);
    run_rounds(&ladder);
    int failed = 0;
    if (is_first(&ladder)) {
        failed = report(&ladder);
        save_weights(&ladder);
        if (!has_trained(&ladder))
            failed = printf("the weights have not moved, or are not finite\n");
    }
    barrier(&ladder);
    close_ladder(&ladder);
    return failed ? STATUS_FAILED : STATUS_OK;
}
