/* record.c: the formats of the records. bench/compare.sh and other programs depend on the columns
 * and keys.
 */
#include "common/train/record.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/build.h"
#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/json.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/device/link.h"
#include "common/tensor_files/safetensors.h"
#include "common/train/setup.h"

// Steps excluded from percentiles: warm-up of caches, arena and DDP's buckets.
enum { WARMUP_STEPS = 2 };

// Maximum number of step times kept for the percentiles: a long run's first.
enum { MOST_STEPS = 1 << 20 };

static double ms(uint64_t ns) {
    return (double)ns / 1e6;
}

// ---- JSON in --out ----------------------------------------------------------------------------

typedef struct JsonFile {
    AtomicFile file;
    Json json;
} JsonFile;

// Opens the file `name` in --out and begins its JSON object. 0, or -1 with err filled.
static int json_file_begin(JsonFile *file, const Record *record, const char *name, Error *err) {
    char *path = memory_format("%s/%s", record->config->out, name);
    int failed = file_begin(&file->file, path, err);
    free(path);
    if (failed) return failed;
    file->json = (Json){.file = file->file.file};
    json_begin_object(&file->json, NULL);
    return 0;
}

static int json_file_end(JsonFile *file, Error *err) {
    json_end_object(&file->json);
    return file_commit(&file->file, err);
}

// ---- config.json ------------------------------------------------------------------------------

static void write_pair(Json *json, const char *name, const double pair[2]) {
    json_begin_array(json, name);
    json_number(json, NULL, pair[0]);
    json_number(json, NULL, pair[1]);
    json_end_array(json);
}

static void write_option(Json *json, const Option *option) {
    char word[64];
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
    case OPTION_U64:
        json_integer(json, option->name, (int64_t) * (const uint64_t *)option->value);
        break;
    case OPTION_FLOAT:
        json_number(json, option->name, *(const double *)option->value);
        break;
    case OPTION_PAIR:
        write_pair(json, option->name, option->value);
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

// Writes program, host and start time.
static void write_origin(Json *json) {
    char host[256], date[32];
    time_t now = time(NULL);
    struct tm utc;
    machine_name(host, sizeof host);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_string(json, "commit", *build_commit ? build_commit : NULL);
    json_string(json, "host", host);
    json_string(json, "date", date);
}

static void write_machine(Json *json, const Job *job) {
    char blas[160];
    job->strategy->device->kernels->describe(blas, sizeof blas);
    json_string(json, "blas", blas);
    json_string(json, "compiler", __VERSION__);
    json_string(json, "openblas_coretype", getenv("OPENBLAS_CORETYPE"));
}

// Writes the emulated link, on which the file's times depend.
static void write_link(Json *json, const Job *job) {
    char text[LINK_TEXT_MAX];
    if (!job->strategy->device->link) return;
    json_string(json, "link", link_describe(link_speed(job->strategy->device->link), text));
}

static int write_config(const Record *record, const Options *options, Error *err) {
    JsonFile file;
    if (json_file_begin(&file, record, "config.json", err) != 0) return -1;
    Json *json = &file.json;
    json_string(json, "program", options->program);
    json_string(json, "strategy", record->job->name);
    json_string(json, "backend", record->job->backend);
    json_integer(json, "world_size", record->job->devices);
    json_bool(json, "fake_hosts", record->job->fake_hosts);
    write_link(json, record->job);
    write_origin(json);
    write_machine(json, record->job);
    write_options(json, options, record->config);
    return json_file_end(&file, err);
}

// ---- steps.csv --------------------------------------------------------------------------------

// Removes the rows from first_step on, and an incomplete row at the end. 0, or -1 with err filled.
static int drop_rows(const char *path, uint64_t first_step, Error *err) {
    AtomicFile file;
    if (access(path, F_OK) != 0 && errno == ENOENT) return 0;
    FILE *old = file_open_stream(path, NULL, err);
    if (!old) return -1;
    int failed = file_begin(&file, path, err);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; !failed && (n = getline(&line, &room, old)) > 0;) {
        bool is_row = line[0] >= '0' && line[0] <= '9';
        bool keep = line[n - 1] == '\n' && (!is_row || strtoull(line, NULL, 10) < first_step);
        if (keep) fwrite(line, 1, (size_t)n, file.file);
    }
    free(line);
    fclose(old);
    return failed ? failed : file_commit(&file, err);
}

static int open_steps(Record *record, const char *path, uint64_t first_step, Error *err) {
    if (first_step > 0 && drop_rows(path, first_step, err) != 0) return -1;
    record->steps = fopen(path, first_step > 0 ? "a" : "w");
    if (!record->steps) return error_set(err, STATUS_USAGE, "%s: %s", path, strerror(errno));
    if (ftell(record->steps) > 0) return 0; // a resumed run appends to its rows
    fprintf(record->steps, "step,epoch,lr,loss,step_ms,samples_per_s");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        fprintf(record->steps, ",%s_ms", phase_name(phase));
    fprintf(record->steps, ",scale,communication_ms,accuracy,mean_iou,perplexity,bits%s\n",
            record->config->link ? ",link" : "");
    return 0;
}

int record_start(Record *record, uint64_t first_step, Error *err) {
    if (!record->main || !record->config->out) return 0;
    char *path = memory_format("%s/steps.csv", record->config->out);
    int failed = open_steps(record, path, first_step, err);
    free(path);
    return failed;
}

int record_open(Record *record, const TrainConfig *config, const Options *options, const Job *job,
                size_t total_steps, Error *err) {
    *record = (Record){.config = config,
                       .job = job,
                       .main = strategy_is_main(job->strategy),
                       .log = log_open(!strategy_is_main(job->strategy)),
                       .final_loss = NAN,
                       .final_score = SCORE_NONE};
    record->step_capacity = total_steps < MOST_STEPS ? total_steps : MOST_STEPS;
    record->step_ns = memory_zalloc((record->step_capacity + 1) * sizeof *record->step_ns);
    if (!record->main || !config->out) return 0;
    return write_config(record, options, err);
}

void record_close(Record *record) {
    log_close(&record->log);
    if (record->steps) fclose(record->steps);
    free(record->step_ns);
    *record = (Record){0};
}

void record_step_time(Record *record, uint64_t ns) {
    if (record->step_count < record->step_capacity) record->step_ns[record->step_count++] = ns;
}

enum { SCORE_ROOM = 160 };

// " accuracy=0.9735 miou=0.8113", each name after the prefix. Omits undefined scores.
static void score_text(char text[SCORE_ROOM], const char *prefix, Score score) {
    text[0] = '\0';
    if (!isnan(score.accuracy))
        format_append(text, SCORE_ROOM, " %saccuracy=%.4f", prefix, score.accuracy);
    if (!isnan(score.mean_iou))
        format_append(text, SCORE_ROOM, " %smiou=%.4f", prefix, score.mean_iou);
    if (!isnan(score.bits))
        format_append(text, SCORE_ROOM, " %sperplexity=%.4g %sbits=%.4f", prefix,
                      hits_perplexity(score), prefix, score.bits);
}

void record_step(Record *record, const StepRecord *step, const Profile *profile) {
    record->final_loss = step->loss;
    record->final_score = step->score;
    if (!record->main) return;
    double samples_per_s = (double)step->samples / ((double)step->ns / 1e9);
    char score[SCORE_ROOM], scale[32] = ""; // with a GradScaler
    score_text(score, "", step->score);
    if (record->config->amp == PRECISION_F16)
        snprintf(scale, sizeof scale, " scale=%.9g", step->scale);
    log_data(&record->log,
             "step=%" PRIu64 " epoch=%" PRIu64
             " loss=%.6f%s lr=%.6g step_ms=%.3f samples_per_s=%.0f%s%s",
             step->step, step->epoch, step->loss, score, step->lr, ms(step->ns), samples_per_s,
             scale, record->config->link ? " link=emulated" : "");
    if (!record->steps) return;
    fprintf(record->steps, "%" PRIu64 ",%" PRIu64 ",%.9g,%.9g,%.6f,%.3f", step->step, step->epoch,
            step->lr, step->loss, ms(step->ns), samples_per_s);
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        fprintf(record->steps, ",%.6f", ms(profile->step[phase]));
    fprintf(record->steps, ",%.9g,%.6f,%.9g,%.9g,%.9g,%.9g%s\n", step->scale,
            ms(profile->step_communication), step->score.accuracy, step->score.mean_iou,
            hits_perplexity(step->score), step->score.bits,
            record->config->link ? ",emulated" : "");
    if (fflush(record->steps) != 0 && !record->lost) record->lost = errno;
}

static void tell_evaluation(Record *record, const char *of, const Evaluation *evaluation) {
    char score[SCORE_ROOM];
    score_text(score, "test_", evaluation->score);
    log_data(&record->log, "%s test_loss=%.6f%s", of, evaluation->loss, score);
}

void record_evaluation(Record *record, uint64_t epoch, const Evaluation *evaluation) {
    char of[32];
    snprintf(of, sizeof of, "epoch=%" PRIu64, epoch);
    tell_evaluation(record, of, evaluation);
}

void record_evaluation_of(Record *record, const char *path, const Evaluation *evaluation) {
    char *of = memory_format("evaluated=%s", path);
    tell_evaluation(record, of, evaluation);
    free(of);
}

// ---- summary.json -----------------------------------------------------------------------------

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

// Returns the p-quantile of the sorted step times in ms (nearest rank).
static double quantile_ms(const uint64_t *sorted, size_t count, double p) {
    if (count == 0) return NAN;
    return ms(sorted[(size_t)(p * (double)(count - 1) + 0.5)]);
}

// Writes the scores of the last recorded step and of the test split.
static void write_scores(Json *json, const Record *record, const Summary *s) {
    json_number(json, "final_loss", record->final_loss);
    json_number(json, "final_accuracy", record->final_score.accuracy);
    json_number(json, "test_loss", s->test.loss);
    json_number(json, "test_accuracy", s->test.score.accuracy);
    json_number(json, "best_test_accuracy", s->has_accuracy && isfinite(s->best) ? s->best : NAN);
    if (s->has_mean_iou) {
        json_number(json, "final_miou", record->final_score.mean_iou);
        json_number(json, "test_miou", s->test.score.mean_iou);
        json_number(json, "best_test_miou", isfinite(s->best) ? s->best : NAN);
    }
    if (s->has_bits) {
        json_number(json, "final_perplexity", hits_perplexity(record->final_score));
        json_number(json, "final_bits", record->final_score.bits);
        json_number(json, "test_perplexity", hits_perplexity(s->test.score));
        json_number(json, "test_bits", s->test.score.bits);
    }
}

static void write_summary(Json *json, Record *record, const Summary *s) {
    size_t skip = record->step_count > (size_t)2 * WARMUP_STEPS ? WARMUP_STEPS : 0;
    uint64_t *times = record->step_ns + skip;
    size_t count = record->step_count - skip;
    qsort(times, count, sizeof *times, compare_u64);
    double p50 = quantile_ms(times, count, 0.5);
    json_string(json, "strategy", record->job->name);
    json_string(json, "backend", record->job->backend);
    json_string(json, "model", record->config->model);
    json_string(json, "device", record->job->strategy->device->kernels->name);
    json_integer(json, "world_size", record->job->devices);
    json_bool(json, "fake_hosts", record->job->fake_hosts);
    write_link(json, record->job);
    json_integer(json, "global_batch", (int64_t)record->config->global_batch);
    json_string(json, "amp", train_amp_name(record->config->amp));
    json_integer(json, "steps", (int64_t)s->steps);
    json_integer(json, "skipped_steps", (int64_t)s->skipped_steps);
    json_number(json, "scale", s->scale);
    json_integer(json, "parameters", (int64_t)s->parameters);
    json_number(json, "samples_per_s_p50", (double)s->samples_per_step / (p50 / 1e3));
    json_number(json, "step_ms_p25", quantile_ms(times, count, 0.25));
    json_number(json, "step_ms_p50", p50);
    json_number(json, "step_ms_p75", quantile_ms(times, count, 0.75));
    json_number(json, "step_ms_p90", quantile_ms(times, count, 0.9));
    json_number(json, "peak_bytes_device0", s->peak_bytes_device0);
    json_number(json, "peak_bytes_other", s->peak_bytes_other);
    double steps = s->steps ? (double)s->steps : 1;
    json_number(json, "moved_bytes_per_step", s->moved_bytes / steps);
    write_scores(json, record, s);
    json_begin_object(json, "phase_ms");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        json_number(json, phase_name(phase), ms(s->profile->total[phase]) / steps);
    json_end_object(json);
    json_number(json, "communication_ms", ms(s->profile->total_communication) / steps);
}

// Prints the time of DDP's all-reduces, which overlap backward and so are not a phase. The exposed
// part is PHASE_EXPOSED, which also includes other work: a negative hidden share counts as 0.
static void print_communication(Record *record, const Profile *profile) {
    double total = (double)profile->total_communication;
    double hidden = 100 * (1 - (double)profile->total[PHASE_EXPOSED] / total);
    log_say(&record->log, "%-12s %12.4f %7.1f%% of it hidden behind backward", "all-reduces",
            total / 1e6 / (double)profile->steps, hidden > 0 ? hidden : 0.0);
}

// Prints the phases' times (--profile).
static void print_profile(Record *record, const Profile *profile) {
    uint64_t total = 0;
    for (Phase phase = 0; phase < PHASE_COUNT; phase++) total += profile->total[phase];
    if (profile->steps == 0 || total == 0) return;
    log_say(&record->log, "%-12s %12s %8s%s", "phase", "ms per step", "share",
            record->config->link ? "  (over an emulated link)" : "");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        if (profile->total[phase] > 0)
            log_say(&record->log, "%-12s %12.4f %7.1f%%", phase_name(phase),
                    ms(profile->total[phase]) / (double)profile->steps,
                    100.0 * (double)profile->total[phase] / (double)total);
    log_say(&record->log, "%-12s %12.4f %7.1f%%", "step", ms(total) / (double)profile->steps,
            100.0);
    if (profile->total_communication > 0) print_communication(record, profile);
}

int record_summary(Record *record, const Summary *summary, Error *err) {
    if (!record->main) return 0;
    if (log_check_stdout(err) != 0) return -1;
    if (record->config->profile) print_profile(record, summary->profile);
    if (!record->config->out) return 0;
    char why[FILE_CAUSE_ROOM];
    if (ferror(record->steps))
        return error_set(err, STATUS_FAILED, "cannot write %s/steps.csv: rows are missing: %s",
                         record->config->out, file_cause(record->lost, why));
    JsonFile file;
    if (json_file_begin(&file, record, "summary.json", err) != 0) return -1;
    write_summary(&file.json, record, summary);
    return json_file_end(&file, err);
}

// ---- gradients --------------------------------------------------------------------------------

static bool step_is_listed(const char *list, uint64_t step) {
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
        if (strtoull(at, NULL, 10) == step) return true;
    return false;
}

bool record_wants_gradients(const Record *record, uint64_t step) {
    const TrainConfig *config = record->config;
    return record->main && config->dump_grads && step_is_listed(config->dump_step, step);
}

int record_gradients(const Record *record, Module *model, uint64_t step, Error *err) {
    const char *pattern = record->config->dump_grads;
    const char *mark = strstr(pattern, "{step}");
    char *path = mark ? memory_format("%.*s%" PRIu64 "%s", (int)(mark - pattern), pattern, step,
                                      mark + strlen("{step}"))
                      : memory_format("%s", pattern);
    int failed = safetensors_save_grads(path, model, err);
    free(path);
    return failed;
}
