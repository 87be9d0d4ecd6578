/* checks_ranks.c: checks that all ranks have the same files (checks.h).
 *
 * Machines with separate disks may have different files under one name. Each rank fills its row of
 * a zero table with numbers that describe its files; the sum over the ranks is the complete table,
 * from which every rank derives the same error.
 */
#include <string.h>

#include "common/base/format.h"
#include "common/base/hash.h"
#include "common/base/memory.h"
#include "common/train/checks.h"

enum {
    SAMPLED_BYTES = 4 << 20, // approximate number of hashed bytes of a split
    SAMPLED_LEAST = 16,      // minimum number of hashed samples
    RANKS_NAMED = 8,
};

// ---- facts and the ranks that differ ----------------------------------------------------------

// A number that must be equal on all ranks, and its name: "number of", " training samples".
typedef struct RankFact {
    const char *what, *of;
    double value;
    bool is_hash; // the error omits the value of a hash
} RankFact;

// Writes "ranks 1, 3 and 4 others do" or "rank 1 does": the ranks that differ from rank 0.
// column: [ranks], every stride-th number.
static void name_ranks(const double *column, size_t stride, size_t ranks, char *text, size_t room) {
    size_t count = 0;
    for (size_t r = 1; r < ranks; r++) count += column[r * stride] != column[0];
    size_t named = 0;
    snprintf(text, room, count == 1 ? "rank" : "ranks");
    for (size_t r = 1; r < ranks && named < RANKS_NAMED; r++) {
        if (column[r * stride] == column[0]) continue;
        format_append(text, room, "%s%zu", named++ ? ", " : " ", r);
    }
    if (count > named) format_append(text, room, " and %zu others", count - named);
    format_append(text, room, count == 1 ? " does" : " do");
}

// Returns -1 with err naming the first fact that differs between ranks. table: [ranks, count].
static int compare_ranks(const double *table, size_t ranks, const char *where,
                         const RankFact *facts, size_t count, Error *err) {
    for (size_t i = 0; i < count; i++) {
        size_t other = 0; // the first rank that differs from rank 0; 0: none
        for (size_t r = 1; r < ranks && other == 0; r++)
            if (table[r * count + i] != table[i]) other = r;
        if (other == 0) continue;
        char names[32 * (RANKS_NAMED + 2)], values[64] = "";
        name_ranks(table + i, count, ranks, names, sizeof names);
        if (!facts[i].is_hash)
            snprintf(values, sizeof values, ": %.15g, not %.15g", table[other * count + i],
                     table[i]);
        return error_set(err, STATUS_USAGE, "%s: %s not see the same %s%s as rank 0%s", where,
                         names, facts[i].what, facts[i].of, values);
    }
    return 0;
}

// Checks that all ranks have the same numbers. The error names the ranks that differ from rank 0,
// and the option with its value: "--data digits", "--resume out".
static int check_facts(Job *job, const char *option, const char *value, const RankFact *facts,
                       size_t count, Error *err) {
    size_t ranks = (size_t)job->devices;
    double *table = memory_zalloc(ranks * count * sizeof *table); // [ranks, count]
    for (int own = 0; own < job->all_count; own++) {
        double *row = table + (size_t)(job->rank + own) * count;
        for (size_t i = 0; i < count; i++) row[i] = facts[i].value;
    }
    int failed = strategy_sum(job->strategy, table, ranks * count, err);
    char *where = memory_format("%s %s", option, value);
    if (!failed) failed = compare_ranks(table, ranks, where, facts, count, err);
    free(where);
    free(table);
    return failed;
}

// Truncates a hash to a number that a double represents exactly.
static double hash_value(uint64_t hash) {
    return (double)((hash ^ (hash >> 32)) & UINT32_MAX);
}

// ---- data -------------------------------------------------------------------------------------

// Hashes one sample, with its pixels' labels if dense. hash_set hashes the labels of all samples.
static uint64_t hash_sample(uint64_t hash, const Dataset *set, size_t index) {
    size_t size = dataset_sample_size(set), pixels = dataset_label_size(set);
    if (set->bytes) hash = hash_bytes(hash, set->bytes + index * size, size);
    if (set->floats)
        hash = hash_bytes(hash, set->floats + index * size, size * sizeof *set->floats);
    if (set->tokens)
        hash = hash_bytes(hash, set->tokens + index * size, size * sizeof *set->tokens);
    if (set->labels && set->dense)
        hash = hash_bytes(hash, set->labels + index * pixels, pixels * sizeof *set->labels);
    return hash;
}

// Hashes a set: all samples, or of a large set equidistant ones including the first and the last.
static uint64_t hash_set(const Dataset *set) {
    uint64_t hash = HASH_START;
    size_t sample = dataset_sample_size(set) * (set->bytes ? 1 : sizeof *set->floats) +
                    (set->dense ? dataset_label_size(set) * sizeof *set->labels : 0);
    size_t wanted = SAMPLED_BYTES / (sample + 1) + SAMPLED_LEAST;
    if (wanted > set->count) wanted = set->count;
    for (size_t i = 0; i < wanted; i++) {
        size_t last = set->count - 1, steps = wanted > 1 ? wanted - 1 : 1;
        hash = hash_sample(hash, set, (size_t)((double)last * (double)i / (double)steps));
    }
    if (set->labels && !set->dense)
        hash = hash_bytes(hash, set->labels, set->count * sizeof *set->labels);
    if (set->targets) {
        size_t floats = set->count * set->target_size;
        hash = hash_bytes(hash, set->targets, floats * sizeof *set->targets);
    }
    return hash;
}

uint64_t checks_hash_text(const DataSource *data) {
    const Dataset *set = &data->train;
    uint64_t hash = hash_set(set);
    hash = hash_bytes(hash, data->characters, data->character_count * sizeof *data->characters);
    return hash_bytes(hash, set->shape, sizeof set->shape);
}

enum { SHAPE_FACTS = 6, SET_FACTS = SHAPE_FACTS + 2 };

// Writes to facts[count] the facts of the samples' shape, or all facts.
static void describe_set(const Dataset *set, const char *samples, RankFact *facts, size_t count) {
    const RankFact of_set[SET_FACTS] = {
        {"channels of", samples, (double)set->shape[0], false},
        {"height of", samples, (double)set->shape[1], false},
        {"width of", samples, (double)set->shape[2], false},
        {"number of classes of", samples, (double)set->classes, false},
        {"targets of", samples, (double)set->target_size, false},
        {"labels of pixels (1: there are some) of", samples, set->dense, false},
        {"number of", samples, (double)set->count, false},
        {"contents of the", samples, count == SET_FACTS ? hash_value(hash_set(set)) : 0, true},
    };
    memcpy(facts, of_set, count * sizeof *facts);
}

int checks_same_shapes(Job *job, const TrainConfig *config, const DataSource *data, Error *err) {
    RankFact facts[SHAPE_FACTS];
    describe_set(&data->train, " training samples", facts, SHAPE_FACTS);
    return check_facts(job, "--data", config->data ? config->data : data->name, facts, SHAPE_FACTS,
                       err);
}

int checks_same_data(Job *job, const TrainConfig *config, const DataSource *data, Error *err) {
    RankFact facts[2 * SET_FACTS];
    if (job->devices == job->all_count) return 0; // this process has all ranks
    describe_set(&data->train, " training samples", facts, SET_FACTS);
    describe_set(&data->test, " test samples", facts + SET_FACTS, SET_FACTS);
    return check_facts(job, "--data", config->data ? config->data : data->name, facts,
                       (size_t)2 * SET_FACTS, err);
}

// ---- checkpoints ------------------------------------------------------------------------------

int checks_same_checkpoint(Job *job, const char *resume, const Progress *progress, Error *err) {
    const RankFact facts[] = {{"step to continue at", "", (double)progress->step, false},
                              {"checkpoint", "", (double)progress->checksum, true}};
    return check_facts(job, "--resume", resume, facts, sizeof facts / sizeof *facts, err);
}
