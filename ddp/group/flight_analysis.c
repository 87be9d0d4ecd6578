/* flight_analysis.c: see flight_analysis.h. */
#include "ddp/group/flight_analysis.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"
#include "ddp/group/flight_dump.h"

// ---- one collective of one group ------------------------------------------------------------

typedef enum Standing { // of a rank
    NO_RECORDS,
    NOT_STARTED,
    TOO_LATE, // started after the others had timed out
    OTHER_CALL,
    WAITS, // started, and not completed
    DONE,
} Standing;

typedef struct Group {
    const char *name;
    const int *ranks;         // [size], their numbers in the job
    const FlightDump **dumps; // [size]; NULL: none
    size_t size;
    size_t *present; // [count], the places of those with a dump
    size_t count;
    uint64_t broke_ns;  // when the first rank broke the group; UINT64_MAX: none has
    uint64_t sequence;  // of the collective under analysis
    const char *call;   // the call of most ranks there
    Standing *standing; // [size], of each rank
} Group;

static int compare_sequence(const void *key, const void *entry) {
    uint64_t a = *(const uint64_t *)key, b = ((const FlightEntry *)entry)->sequence;
    return (a > b) - (a < b);
}

static const FlightEntry *find_entry(const FlightDump *dump, uint64_t sequence) {
    return bsearch(&sequence, dump->entries, dump->count, sizeof(FlightEntry), compare_sequence);
}

static size_t count_calls(const Group *g, const char *call) {
    size_t votes = 0;
    for (size_t i = 0; i < g->count; i++) {
        const FlightEntry *entry = find_entry(g->dumps[g->present[i]], g->sequence);
        votes += entry && strcmp(entry->call, call) == 0;
    }
    return votes;
}

static const char *most_common_call(const Group *g) {
    const char *best = NULL;
    size_t most = 0;
    for (size_t i = 0; i < g->count && most <= g->count / 2; i++) {
        const FlightEntry *entry = find_entry(g->dumps[g->present[i]], g->sequence);
        size_t votes = entry ? count_calls(g, entry->call) : 0;
        if (votes <= most) continue;
        best = entry->call;
        most = votes;
    }
    return best;
}

static Standing judge(const Group *g, const FlightDump *dump) {
    const FlightEntry *entry = find_entry(dump, g->sequence);
    if (!entry || !entry->started) return NOT_STARTED;
    if (entry->completed) return DONE;
    if (strcmp(entry->call, g->call) != 0) return OTHER_CALL;
    return entry->started_ns > g->broke_ns ? TOO_LATE : WAITS;
}

static bool any(const Group *g, Standing standing) {
    if (standing == NO_RECORDS) return g->count < g->size;
    for (size_t i = 0; i < g->count; i++)
        if (g->standing[g->present[i]] == standing) return true;
    return false;
}

// Finds the smallest sequence number >= `least` in any dump. Returns false if there is none.
static bool next_sequence(const Group *g, size_t *cursors, uint64_t least, uint64_t *sequence) {
    bool found = false;
    for (size_t i = 0; i < g->count; i++) {
        const FlightDump *dump = g->dumps[g->present[i]];
        size_t *at = &cursors[i];
        while (*at < dump->count && dump->entries[*at].sequence < least) ++*at;
        if (*at == dump->count) continue;
        if (!found || dump->entries[*at].sequence < *sequence)
            *sequence = dump->entries[*at].sequence;
        found = true;
    }
    return found;
}

// Finds the first failed collective, starting at the first that all dumps still hold: some rank
// started it, none completed it. (It completes on a rank only after all ranks have started it. A
// rank without a record of it then wrote its records earlier than the others.) Advances by recorded
// numbers: in a hostile file their range does not bound their count.
static bool find_trouble(Group *g) {
    uint64_t sequence = 1;
    for (size_t i = 0; i < g->count; i++) {
        const FlightDump *dump = g->dumps[g->present[i]];
        if (dump->count > 0 && dump->entries[0].sequence > sequence)
            sequence = dump->entries[0].sequence;
    }
    size_t *cursors = memory_zalloc(g->count * sizeof *cursors);
    bool trouble = false;
    while (!trouble && next_sequence(g, cursors, sequence, &sequence)) {
        g->sequence = sequence++;
        g->call = most_common_call(g);
        for (size_t i = 0; i < g->count; i++)
            g->standing[g->present[i]] = judge(g, g->dumps[g->present[i]]);
        trouble = !any(g, DONE) && (any(g, WAITS) || any(g, OTHER_CALL) || any(g, TOO_LATE));
    }
    free(cursors);
    return trouble;
}

// ---- output ---------------------------------------------------------------------------

// Prints "rank 2" or "ranks 0, 1, 3": the ranks with this standing. Returns their number.
static int print_ranks(FILE *out, const Group *g, Standing standing) {
    int count = 0;
    for (size_t p = 0; p < g->size; p++) count += g->standing[p] == standing;
    fputs(count == 1 ? "rank" : "ranks", out);
    const char *separator = " ";
    for (size_t p = 0; p < g->size; p++) {
        if (g->standing[p] != standing) continue;
        fprintf(out, "%s%d", separator, g->ranks[p]);
        separator = ", ";
    }
    return count;
}

// Prints one line if there are such ranks: WHO WHAT collective N CALL[; WAITING wait in it].
static void print_absent(FILE *out, const Group *g, Standing standing, const char *what) {
    if (!any(g, standing)) return;
    fprintf(out, "group %s: ", g->name);
    print_ranks(out, g, standing);
    fprintf(out, " %s collective %ju %s", what, (uintmax_t)g->sequence, g->call);
    if (standing != WAITS && any(g, WAITS)) {
        fputs("; ", out);
        int waiting = print_ranks(out, g, WAITS);
        fprintf(out, " wait%s in it", waiting == 1 ? "s" : "");
    }
    fputc('\n', out);
}

static void print_disagreement(FILE *out, const Group *g) {
    fprintf(out, "group %s: at collective %ju ", g->name, (uintmax_t)g->sequence);
    print_ranks(out, g, WAITS);
    fprintf(out, " started %s", g->call);
    for (size_t p = 0; p < g->size; p++) {
        if (g->standing[p] != OTHER_CALL) continue;
        fprintf(out, ", but rank %d %s", g->ranks[p], find_entry(g->dumps[p], g->sequence)->call);
    }
    fputc('\n', out);
}

static void print_last(FILE *out, const Group *g, size_t place) {
    const FlightDump *dump = g->dumps[place];
    if (g->standing[place] != NOT_STARTED || !dump) return;
    const FlightEntry *last = NULL;
    for (size_t i = 0; i < dump->count; i++)
        if (dump->entries[i].started) last = &dump->entries[i];
    if (last)
        fprintf(out, "group %s: rank %d last %s collective %ju %s\n", g->name, g->ranks[place],
                last->completed ? "completed" : "started", (uintmax_t)last->sequence, last->call);
    else
        fprintf(out, "group %s: rank %d started no collective\n", g->name, g->ranks[place]);
}

static void print_error(FILE *out, const Group *g) {
    const FlightDump *first = NULL;
    for (size_t p = 0; p < g->size; p++) {
        const FlightDump *dump = g->dumps[p];
        if (dump && dump->error && (!first || dump->dumped_ns < first->dumped_ns)) first = dump;
    }
    if (first)
        fprintf(out, "group %s: rank %d wrote first, because: %s\n", g->name, first->rank,
                first->error);
}

// Returns whether some rank departed from the others.
static bool report_group(FILE *out, Group *g) {
    if (!find_trouble(g)) {
        fprintf(out, "group %s: no rank departed from the others in the records\n", g->name);
        print_error(out, g);
        return false;
    }
    print_absent(out, g, NO_RECORDS, "left no records; the others are at");
    print_absent(out, g, NOT_STARTED, "did not start");
    print_absent(out, g, TOO_LATE, "came too late, when the others had given up, to");
    if (any(g, OTHER_CALL)) print_disagreement(out, g);
    for (size_t p = 0; p < g->size; p++) print_last(out, g, p);
    bool departed =
        any(g, NO_RECORDS) || any(g, NOT_STARTED) || any(g, TOO_LATE) || any(g, OTHER_CALL);
    if (!departed) print_absent(out, g, WAITS, "started and did not complete");
    print_error(out, g);
    return departed;
}

// ---- all groups -----------------------------------------------------------------------------

static bool same_group(const FlightDump *a, const FlightDump *b) {
    return a->size == b->size && strcmp(a->group, b->group) == 0 &&
           memcmp(a->ranks, b->ranks, a->size * sizeof *a->ranks) == 0;
}

// The group of dumps[first]: all dumps with its name and its ranks.
static bool analyse_group(const FlightDumps *dumps, size_t first, FILE *out) {
    const FlightDump *named = &dumps->all[first];
    Group g = {
        .name = named->group, .ranks = named->ranks, .size = named->size, .broke_ns = UINT64_MAX};
    g.dumps = memory_zalloc(g.size * sizeof *g.dumps);
    g.present = memory_zalloc(g.size * sizeof *g.present);
    g.standing = memory_zalloc(g.size * sizeof *g.standing); // NO_RECORDS
    for (size_t i = first; i < dumps->count; i++) {
        const FlightDump *dump = &dumps->all[i];
        if (!same_group(dump, named) || g.dumps[dump->place]) continue;
        g.dumps[dump->place] = dump;
        g.present[g.count++] = dump->place;
        if (dump->error && dump->dumped_ns < g.broke_ns) g.broke_ns = dump->dumped_ns;
    }
    bool departed = report_group(out, &g);
    free(g.standing);
    free(g.present);
    free(g.dumps);
    return departed;
}

int flight_analyse(const char *folder, FILE *out, bool *departed, Error *err) {
    FlightDumps dumps;
    int status = flight_dumps_read(&dumps, folder, err);
    *departed = false;
    for (size_t i = 0; i < dumps.count && status == 0; i++) {
        size_t first = 0; // dump of the group of dump i
        while (!same_group(&dumps.all[first], &dumps.all[i])) first++;
        if (first == i && analyse_group(&dumps, i, out)) *departed = true;
    }
    flight_dumps_free(&dumps);
    return status;
}
