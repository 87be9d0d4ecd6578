/* bits.c: see bits.h. The reasons are rows of bits_table.c. */
#include "common/train/bits.h"

#include <string.h>

#include "common/base/format.h"
#include "common/train/bits_table.h"

enum { TEXT_MAX = 1024 };

#define EQUAL "bits: weights, buffers and optimizer state equal"

// A rank's gradients are W times DataParallel's, then divided by W. Scaling by a power of two is
// exact except for subnormal numbers (below 2^-126).
#define UNLESS ", unless a gradient leaves float32's normal range"

// The texts of all rows that break the promise.
typedef struct Verdict {
    char reasons[TEXT_MAX];   // "reason: remedy; reason"
    char remedies[TEXT_MAX];  // each once, " --sampler blocked --normalize global"
    char obstacles[TEXT_MAX]; // the reasons without remedy
} Verdict;

static void add(char text[TEXT_MAX], const char *reason) {
    format_append(text, TEXT_MAX, "%s%s", *text ? "; " : "", reason);
}

static void add_row(Verdict *verdict, const BitsRow *row) {
    add(verdict->reasons, row->reason);
    if (!row->remedy) {
        add(verdict->obstacles, row->reason);
        return;
    }
    format_append(verdict->reasons, TEXT_MAX, ": %s", row->remedy);
    if (!strstr(verdict->remedies, row->remedy))
        format_append(verdict->remedies, TEXT_MAX, " %s", row->remedy);
}

static void judge(Verdict *verdict, const Run *run) {
    size_t count;
    const BitsRow *rows = bits_table(&count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].breaks && rows[i].breaks(run)) add_row(verdict, &rows[i]);
}

static void announce_dp(Log *log, const Verdict *verdict, int devices) {
    bool averages = !strstr(verdict->remedies, "--normalize global");
    if (verdict->obstacles[0])
        log_say(log, "bits: not promised against DistributedDataParallel (%s)", verdict->obstacles);
    else
        log_say(log, EQUAL " DistributedDataParallel's on %d ranks with%s%s", devices,
                verdict->remedies, averages ? UNLESS : "");
}

static void announce_ddp(Log *log, const Verdict *verdict, const Job *job) {
    if (verdict->reasons[0])
        log_say(log, "bits: not promised against DataParallel (%s)", verdict->reasons);
    else
        log_say(log, EQUAL " DataParallel's on %d devices%s", job->devices,
                job->strategy->global_mean ? "" : UNLESS);
}

void bits_announce(Run *run) {
    const Job *job = run->job;
    if (job->devices == 1 || run->config->evaluate || run->config->dry_run) return;
    Verdict verdict = {.reasons = ""};
    judge(&verdict, run);
    if (strategy_processes(run->strategy) == 1)
        announce_dp(&run->record.log, &verdict, job->devices);
    else
        announce_ddp(&run->record.log, &verdict, job);
}
