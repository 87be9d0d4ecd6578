/* record.c: the formats of steps.csv and of the lines on stdout. bench/compare.sh and other
 * programs depend on the columns and keys.
 */
#include "common/train/record.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/format.h"
#include "common/base/memory.h"
#include "common/tensor_files/safetensors.h"

// Maximum number of step times kept for the percentiles: a long run's first.
enum { MOST_STEPS = 1 << 20 };

// ---- steps.csv --------------------------------------------------------------------------------

// Removes the rows from first_step on, which is not 0, and an incomplete row at the end. 0, or -1
// with err filled.
static int drop_rows(const char *path, uint64_t first_step, Error *err) {
    AtomicFile file;
    if (access(path, F_OK) != 0 && errno == ENOENT) return 0;
    FILE *old = file_open_stream(path, NULL, err);
    if (!old) return -1;
    int failed = file_begin(&file, path, err);
    char *line = NULL;
    size_t room = 0;
    for (ssize_t n; !failed && (n = getline(&line, &room, old)) > 0;) {
        // The header's number is 0, as of any text without one.
        bool keep = line[n - 1] == '\n' && strtoull(line, NULL, 10) < first_step;
        if (keep) fwrite(line, 1, (size_t)n, file.file);
    }
    free(line);
    fclose(old);
    return failed ? failed : file_commit(&file, err);
}

int record_start(Record *record, uint64_t first_step, Error *err) {
    if (!record->main || !record->config->out) return 0;
    char *path = memory_format("%s/steps.csv", record->config->out);
    int failed = first_step > 0 ? drop_rows(path, first_step, err) : 0;
    if (!failed) record->steps = fopen(path, first_step > 0 ? "a" : "w");
    if (!failed && !record->steps)
        failed = error_set(err, STATUS_USAGE, "%s: %s", path, strerror(errno));
    free(path);
    if (failed || ftell(record->steps) > 0) return failed; // a resumed run appends to its rows
    fprintf(record->steps, "step,epoch,lr,loss,step_ms,samples_per_s");
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        fprintf(record->steps, ",%s_ms", phase_name(phase));
    fprintf(record->steps, ",scale,communication_ms,accuracy,mean_iou,perplexity,bits%s\n",
            record->config->link ? ",link" : "");
    return 0;
}

Record record_open(const TrainConfig *config, const Job *job, size_t total_steps) {
    const bool is_main = strategy_is_main(job->strategy);
    Record record = {.config = config,
                     .job = job,
                     .main = is_main,
                     .log = log_open(!is_main),
                     .step_capacity = total_steps < MOST_STEPS ? total_steps : MOST_STEPS,
                     .final_loss = NAN,
                     .final_score = SCORE_NONE};
    record.step_ns = memory_zalloc(record.step_capacity * sizeof *record.step_ns);
    return record;
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
    if (!record->main) return; // nothing to print
    double samples_per_s = (double)step->samples / ((double)step->ns / 1e9);
    char score[SCORE_ROOM], scale[32] = ""; // with a GradScaler
    score_text(score, "", step->score);
    if (record->config->amp == PRECISION_F16)
        snprintf(scale, sizeof scale, " scale=%.9g", step->scale);
    log_data(&record->log,
             "step=%" PRIu64 " epoch=%" PRIu64
             " loss=%.6f%s lr=%.6g step_ms=%.3f samples_per_s=%.0f%s%s",
             step->step, step->epoch, step->loss, score, step->lr, record_ms(step->ns),
             samples_per_s, scale, record->config->link ? " link=emulated" : "");
    if (!record->steps) return;
    fprintf(record->steps, "%" PRIu64 ",%" PRIu64 ",%.9g,%.9g,%.6f,%.3f", step->step, step->epoch,
            step->lr, step->loss, record_ms(step->ns), samples_per_s);
    for (Phase phase = 0; phase < PHASE_COUNT; phase++)
        fprintf(record->steps, ",%.6f", record_ms(profile->step[phase]));
    fprintf(record->steps, ",%.9g,%.6f,%.9g,%.9g,%.9g,%.9g%s\n", step->scale,
            record_ms(profile->step_communication), step->score.accuracy, step->score.mean_iou,
            hits_perplexity(step->score), step->score.bits,
            record->config->link ? ",emulated" : "");
    if (fflush(record->steps) != 0 && !record->lost) record->lost = errno;
}

void record_evaluation(Record *record, const char *of, const Evaluation *evaluation) {
    char score[SCORE_ROOM];
    score_text(score, "test_", evaluation->score);
    log_data(&record->log, "%s test_loss=%.6f%s", of, evaluation->loss, score);
}

// ---- gradients --------------------------------------------------------------------------------

bool record_wants_gradients(const Record *record, uint64_t step) {
    if (!record->config->dump_grads) return false;
    for (const char *at = record->config->dump_step; *at; at += strcspn(at, ","), at += *at == ',')
        if (strtoull(at, NULL, 10) == step) return true;
    return false;
}

int record_gradients(const Record *record, Module *model, const SafeTensors *whole, uint64_t step,
                     Error *err) {
    if (!record->main) return 0;
    const char *pattern = record->config->dump_grads;
    const char *mark = strstr(pattern, "{step}");
    char *path = mark ? memory_format("%.*s%" PRIu64 "%s", (int)(mark - pattern), pattern, step,
                                      mark + strlen("{step}"))
                      : memory_format("%s", pattern);
    int failed = safetensors_save_whole(path, model, true, whole, err);
    free(path);
    return failed;
}
