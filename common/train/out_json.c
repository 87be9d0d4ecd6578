/* out_json.c: config.json and summary.json in --out. bench/compare.sh and other programs depend on
 * the keys.
 */
#include <math.h>
#include <time.h>

#include "common/base/build.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "common/device/link.h"
#include "common/train/run.h"
#include "common/train/setup.h"

// Steps excluded from percentiles: warm-up of caches, arena and DDP's buckets.
enum { WARMUP_STEPS = 2 };

// Begins the JSON object of the file `name` in --out. 0, or -1 with err filled.
static int begin_file(AtomicFile *file, Json *json, const Run *run, const char *name, Error *err) {
    char *path = memory_format("%s/%s", run->config->out, name);
    int failed = file_begin(file, path, err);
    free(path);
    if (failed) return -1;
    *json = (Json){.file = file->file};
    json_begin_object(json, NULL);
    return 0;
}

static int end_file(AtomicFile *file, Json *json, Error *err) {
    json_end_object(json);
    return file_commit(file, err);
}

// Writes the devices, and the emulated link, on which the file's times depend.
static void write_devices(Json *json, const Job *job) {
    char text[LINK_TEXT_MAX];
    const DeviceLink *link = job->strategy->device->link;
    json_integer(json, "world_size", job->devices);
    json_bool(json, "fake_hosts", job->fake_hosts);
    if (link) json_string(json, "link", link_describe(link_speed(link), text));
}

// ---- config.json ------------------------------------------------------------------------------

static void write_option(Json *json, const Option *option) {
    char word[64];
    const double *pair = option->value;
    switch (option->type) {
    case OPTION_FLAG:
        json_bool(json, option->name, *(const bool *)option->value);
        break;
    case OPTION_INT:
        json_integer(json, option->name, *(const int *)option->value);
        break;
    case OPTION_SIZE:
        json_integer(json, option->name, (int64_t) * (const size_t *)option->value);
        break;
    case OPTION_FLOAT:
        json_number(json, option->name, *(const double *)option->value);
        break;
    case OPTION_PAIR:
        json_begin_array(json, option->name);
        for (int i = 0; i < 2; i++) json_number(json, NULL, pair[i]);
        json_end_array(json);
        break;
    case OPTION_STRING:
    case OPTION_CHOICE:
    case OPTION_ENUM:
        json_string(json, option->name, option_text(option, word, sizeof word));
        break;
    case OPTION_TITLE:
        break;
    }
}

static void write_options(Json *json, const Options *options, const TrainConfig *config) {
    json_begin_object(json, "options");
    for (size_t i = 0; i < options->count; i++) {
        const Option *option = &options->table[i];
        if (option->value == &config->data)
            json_string(json, option->name, train_data_name(config)); // also the default
        else
            write_option(json, option);
    }
    json_end_object(json);
}

int out_json_config(const Run *run, Error *err) {
    AtomicFile file;
    Json json;
    char host[256], date[32], blas[160];
    time_t now = time(NULL);
    struct tm utc;
    if (begin_file(&file, &json, run, "config.json", err) != 0) return -1;
    machine_name(host, sizeof host);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    run->strategy->device->kernels->describe(blas, sizeof blas);
    json_string(&json, "program", run->options->program);
    json_string(&json, "strategy", run->job->name);
    json_string(&json, "backend", run->job->backend);
    write_devices(&json, run->job);
    json_string(&json, "commit", *build_commit ? build_commit : NULL);
    json_string(&json, "host", host);
    json_string(&json, "date", date);
    json_string(&json, "blas", blas);
    json_string(&json, "compiler", __VERSION__);
    json_string(&json, "openblas_coretype", getenv("OPENBLAS_CORETYPE"));
    write_options(&json, run->options, run->config);
    return end_file(&file, &json, err);
}

// ---- summary.json -----------------------------------------------------------------------------

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Writes the throughput and the quantiles (nearest rank) of the step times, which it sorts.
static void write_times(Json *json, Record *record) {
    static const struct {
        const char *key;
        double p;
    } QUANTILES[] = {
        {"step_ms_p25", 0.25}, {"step_ms_p50", 0.5}, {"step_ms_p75", 0.75}, {"step_ms_p90", 0.9}};
    size_t skip = record->step_count > (size_t)2 * WARMUP_STEPS ? WARMUP_STEPS : 0;
    uint64_t *times = record->step_ns + skip;
    size_t count = record->step_count - skip;
    qsort(times, count, sizeof *times, compare_u64);
    double median = count ? record_ms(times[count / 2]) : NAN;
    json_number(json, "samples_per_s_p50", (double)record->config->global_batch / (median / 1e3));
    for (size_t i = 0; i < sizeof QUANTILES / sizeof *QUANTILES; i++) {
        size_t rank = (size_t)(QUANTILES[i].p * ((double)count - 1) + 0.5);
        json_number(json, QUANTILES[i].key, count ? record_ms(times[rank]) : NAN);
    }
}

// Writes the scores of the last recorded step and of the test split.
static void write_scores(Json *json, const Run *run, const Evaluation *test) {
    const Dataset *set = &run->data->test;
    const Record *record = &run->record;
    const Score *final = &record->final_score;
    const double best = run->progress.best; // -INFINITY, thus null, without an evaluation
    const bool has_accuracy = set->classes > 0 && !set->dense && !set->tokens;
    json_number(json, "final_loss", record->final_loss);
    json_number(json, "final_accuracy", final->accuracy);
    json_number(json, "test_loss", test->loss);
    json_number(json, "test_accuracy", test->score.accuracy);
    json_number(json, "best_test_accuracy", has_accuracy ? best : NAN);
    if (set->dense) {
        json_number(json, "final_miou", final->mean_iou);
        json_number(json, "test_miou", test->score.mean_iou);
        json_number(json, "best_test_miou", best);
    }
    if (set->tokens) {
        json_number(json, "final_perplexity", hits_perplexity(*final));
        json_number(json, "final_bits", final->bits);
        json_number(json, "test_perplexity", hits_perplexity(test->score));
        json_number(json, "test_bits", test->score.bits);
    }
}

int out_json_summary(Run *run, const Evaluation *test, const double *totals, Error *err) {
    AtomicFile file;
    Json json;
    const Job *job = run->job;
    const Profile *profile = &run->profile;
    const double steps = profile->steps ? (double)profile->steps : 1;
    double other = job->devices > 1 ? 0 : NAN;
    for (int i = 1; i < job->devices; i++) other = fmax(other, totals[i]);
    if (begin_file(&file, &json, run, "summary.json", err) != 0) return -1;
    json_string(&json, "strategy", job->name);
    json_string(&json, "backend", job->backend);
    json_string(&json, "model", run->config->model);
    json_string(&json, "device", run->strategy->device->kernels->name);
    write_devices(&json, job);
    json_integer(&json, "global_batch", (int64_t)run->config->global_batch);
    json_string(&json, "amp", train_amp_name(run->config->amp));
    json_integer(&json, "steps", (int64_t)profile->steps);
    json_integer(&json, "skipped_steps", (int64_t)run->step->skipped);
    json_number(&json, "scale", run->step->scale);
    json_integer(&json, "parameters",
                 (int64_t)module_count(run->strategy->model, MODULE_PARAMETERS));
    write_times(&json, &run->record);
    json_number(&json, "peak_bytes_device0", totals[0]);
    json_number(&json, "peak_bytes_other", other);
    json_number(&json, "moved_bytes_per_step", totals[job->devices] / steps);
    write_scores(&json, run, test);
    json_begin_object(&json, "phase_ms");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        json_number(&json, phase_name(phase), record_ms(profile->total[phase]) / steps);
    json_end_object(&json);
    json_number(&json, "communication_ms", record_ms(profile->total_communication) / steps);
    return end_file(&file, &json, err);
}
