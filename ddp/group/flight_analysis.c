/* flight_analysis.c: see flight_analysis.h. */
#include "ddp/group/flight_analysis.h"

#include <cjson/cJSON.h>
#include <glob.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/memory.h"

enum { FILE_MAX = 64 << 20 };

typedef struct Entry { // a collective of one rank
    uint64_t sequence;
    const char *call; // "all_reduce(F32, 1000, sum)", the JSON's
    bool started, completed;
    double started_ns;
} Entry;

typedef struct Dump { // what one rank of one group wrote
    cJSON *json;
    const char *group, *error; // error: NULL if the group was sound
    int rank;
    const cJSON *ranks;
    double dumped_ns;
    Entry *entries; // [count], by sequence
    size_t count;
} Dump;

typedef struct Dumps {
    Dump *all;
    size_t count;
} Dumps;

// ---- reading --------------------------------------------------------------------------------

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *string(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

// Sends and receives have no common order; they are left out.
static void read_entries(Dump *dump, const cJSON *entries) {
    const cJSON *item;
    dump->entries = memory_zalloc((size_t)cJSON_GetArraySize(entries) * sizeof *dump->entries);
    cJSON_ArrayForEach(item, entries) {
        const char *state = string(item, "state"), *call = string(item, "call");
        double sequence = number(item, "collective_seq_id");
        if (!state || !call || !(sequence >= 1)) continue;
        dump->entries[dump->count++] =
            (Entry){.sequence = (uint64_t)sequence,
                    .call = call,
                    .completed = strcmp(state, "completed") == 0,
                    .started = strcmp(state, "scheduled") != 0,
                    .started_ns = number(item, "time_discovered_started_ns")};
    }
}

// NULL if the file cannot be read or is no JSON.
static cJSON *read_json(const char *path) {
    FILE *file = fopen(path, "re");
    struct stat about;
    if (!file) return NULL;
    size_t bytes = fstat(fileno(file), &about) == 0 ? (size_t)about.st_size : 0;
    if (bytes > FILE_MAX) bytes = FILE_MAX;
    char *text = memory_zalloc(bytes + 1);
    bytes = fread(text, 1, bytes, file);
    fclose(file);
    cJSON *json = cJSON_ParseWithLength(text, bytes);
    free(text);
    return json;
}

static int read_dump(Dump *dump, const char *path, Error *err) {
    dump->json = read_json(path);
    dump->group = string(dump->json, "process_group");
    dump->ranks = cJSON_GetObjectItemCaseSensitive(dump->json, "ranks");
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(dump->json, "entries");
    if (!dump->group || !cJSON_IsArray(dump->ranks) || !cJSON_IsArray(entries))
        return error_set(err, STATUS_USAGE, "%s holds no flight records", path);
    dump->error = string(dump->json, "error");
    dump->rank = (int)number(dump->json, "rank");
    dump->dumped_ns = number(dump->json, "dumped_ns");
    read_entries(dump, entries);
    return 0;
}

static int read_folder(Dumps *dumps, const char *folder, Error *err) {
    glob_t found;
    char *pattern = memory_format("%s/flight_*.json", folder);
    int status = glob(pattern, 0, NULL, &found);
    free(pattern);
    if (status != 0)
        return error_set(err, STATUS_USAGE, "%s: there are no flight records (flight_*.json)",
                         folder);
    dumps->all = memory_zalloc(found.gl_pathc * sizeof *dumps->all);
    for (size_t i = 0; i < found.gl_pathc && status == 0; i++)
        status = read_dump(&dumps->all[dumps->count++], found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

static void free_dumps(Dumps *dumps) {
    for (size_t i = 0; i < dumps->count; i++) {
        cJSON_Delete(dumps->all[i].json);
        free(dumps->all[i].entries);
    }
    free(dumps->all);
}

// ---- one collective of one group ------------------------------------------------------------

typedef enum Standing { // of a rank
    NO_RECORDS,
    NOT_STARTED,
    TOO_LATE, // started when the others had given up
    OTHER_CALL,
    WAITS, // started, and not completed
    DONE,
} Standing;

typedef struct Group {
    const char *name;
    int size, *ranks;   // [size], their numbers in the job
    const Dump **dumps; // [size]; NULL: none
    double broke_ns;    // when the first rank gave up; 0: none has
    uint64_t sequence;  // the collective that is looked at,
    const char *call;   // what most ranks do there, and
    Standing *standing; // [size], what each does
} Group;

static int compare_sequence(const void *key, const void *entry) {
    uint64_t a = *(const uint64_t *)key, b = ((const Entry *)entry)->sequence;
    return (a > b) - (a < b);
}

static const Entry *find_entry(const Dump *dump, uint64_t sequence) {
    if (!dump) return NULL;
    return bsearch(&sequence, dump->entries, dump->count, sizeof(Entry), compare_sequence);
}

static const char *most_common_call(const Group *g) {
    const char *best = NULL;
    int most = 0;
    for (int p = 0; p < g->size; p++) {
        const Entry *entry = find_entry(g->dumps[p], g->sequence);
        int votes = 0;
        for (int q = 0; entry && q < g->size; q++) {
            const Entry *other = find_entry(g->dumps[q], g->sequence);
            votes += other && strcmp(other->call, entry->call) == 0;
        }
        if (votes > most) best = entry->call;
        if (votes > most) most = votes;
    }
    return best;
}

static Standing judge(const Group *g, const Dump *dump) {
    const Entry *entry = find_entry(dump, g->sequence);
    if (!dump) return NO_RECORDS;
    if (!entry || !entry->started) return NOT_STARTED;
    if (entry->completed) return DONE;
    if (strcmp(entry->call, g->call) != 0) return OTHER_CALL;
    return g->broke_ns > 0 && entry->started_ns > g->broke_ns ? TOO_LATE : WAITS;
}

static bool any(const Group *g, Standing standing) {
    for (int p = 0; p < g->size; p++)
        if (g->standing[p] == standing) return true;
    return false;
}

static void look_at(Group *g, uint64_t sequence) {
    g->sequence = sequence;
    g->call = most_common_call(g);
    for (int p = 0; p < g->size; p++) g->standing[p] = judge(g, g->dumps[p]);
}

// A collective is complete on one rank only if all ranks have come to it. (Who does not have it in
// its records has then written them earlier than the others.) So trouble is where some rank is and
// none got through.
static bool is_trouble(const Group *g) {
    return !any(g, DONE) && (any(g, WAITS) || any(g, OTHER_CALL) || any(g, TOO_LATE));
}

// Looks at the first collective with trouble, from the first that all dumps still hold.
static bool find_trouble(Group *g) {
    uint64_t first = 1, last = 0;
    for (int p = 0; p < g->size; p++) {
        const Dump *dump = g->dumps[p];
        if (!dump || dump->count == 0) continue;
        if (dump->entries[0].sequence > first) first = dump->entries[0].sequence;
        if (dump->entries[dump->count - 1].sequence > last)
            last = dump->entries[dump->count - 1].sequence;
    }
    for (uint64_t sequence = first; sequence <= last; sequence++) {
        look_at(g, sequence);
        if (is_trouble(g)) return true;
    }
    return false;
}

// ---- what is said ---------------------------------------------------------------------------

// "rank 2" or "ranks 0, 1, 3": those with this standing. Returns how many.
static int print_ranks(FILE *out, const Group *g, Standing standing) {
    int count = 0;
    for (int p = 0; p < g->size; p++) count += g->standing[p] == standing;
    fputs(count == 1 ? "rank" : "ranks", out);
    const char *separator = " ";
    for (int p = 0; p < g->size; p++) {
        if (g->standing[p] != standing) continue;
        fprintf(out, "%s%d", separator, g->ranks[p]);
        separator = ", ";
    }
    return count;
}

// One line if there are such ranks: WHO WHAT collective N CALL[; WAITING wait in it].
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
    for (int p = 0; p < g->size; p++) {
        if (g->standing[p] != OTHER_CALL) continue;
        fprintf(out, ", but rank %d %s", g->ranks[p], find_entry(g->dumps[p], g->sequence)->call);
    }
    fputc('\n', out);
}

static void print_last(FILE *out, const Group *g, int place) {
    const Dump *dump = g->dumps[place];
    if (g->standing[place] != NOT_STARTED || !dump) return;
    const Entry *last = NULL;
    for (size_t i = 0; i < dump->count; i++)
        if (dump->entries[i].started) last = &dump->entries[i];
    if (last)
        fprintf(out, "group %s: rank %d last %s collective %ju %s\n", g->name, g->ranks[place],
                last->completed ? "completed" : "started", (uintmax_t)last->sequence, last->call);
    else
        fprintf(out, "group %s: rank %d started no collective\n", g->name, g->ranks[place]);
}

static void print_error(FILE *out, const Group *g) {
    const Dump *first = NULL;
    for (int p = 0; p < g->size; p++) {
        const Dump *dump = g->dumps[p];
        if (dump && dump->error && (!first || dump->dumped_ns < first->dumped_ns)) first = dump;
    }
    if (first)
        fprintf(out, "group %s: rank %d wrote first, because: %s\n", g->name, first->rank,
                first->error);
}

// Returns whether some rank departed from the others.
static bool report_group(FILE *out, Group *g) {
    if (!find_trouble(g)) {
        fprintf(out, "group %s: no rank departed from the others in what was recorded\n", g->name);
        print_error(out, g);
        return false;
    }
    print_absent(out, g, NO_RECORDS, "left no records; the others are at");
    print_absent(out, g, NOT_STARTED, "did not start");
    print_absent(out, g, TOO_LATE, "came too late, when the others had given up, to");
    if (any(g, OTHER_CALL)) print_disagreement(out, g);
    for (int p = 0; p < g->size; p++) print_last(out, g, p);
    bool departed =
        any(g, NO_RECORDS) || any(g, NOT_STARTED) || any(g, TOO_LATE) || any(g, OTHER_CALL);
    if (!departed) print_absent(out, g, WAITS, "started and did not complete");
    print_error(out, g);
    return departed;
}

// ---- all groups -----------------------------------------------------------------------------

// The group of dumps[first]: all dumps with its name and its ranks.
static bool analyse_group(const Dumps *dumps, size_t first, FILE *out) {
    const Dump *any_dump = &dumps->all[first];
    int size = cJSON_GetArraySize(any_dump->ranks);
    Group g = {.name = any_dump->group, .size = size};
    g.ranks = memory_zalloc((size_t)size * sizeof *g.ranks);
    g.dumps = memory_zalloc((size_t)size * sizeof *g.dumps);
    g.standing = memory_zalloc((size_t)size * sizeof *g.standing);
    for (int p = 0; p < size; p++) {
        g.ranks[p] = cJSON_GetArrayItem(any_dump->ranks, p)->valueint;
        for (size_t i = first; i < dumps->count; i++) {
            const Dump *dump = &dumps->all[i];
            if (strcmp(dump->group, g.name) != 0 || dump->rank != g.ranks[p]) continue;
            g.dumps[p] = dump;
            if (dump->error && (g.broke_ns == 0 || dump->dumped_ns < g.broke_ns))
                g.broke_ns = dump->dumped_ns;
        }
    }
    bool departed = report_group(out, &g);
    free(g.standing);
    free(g.dumps);
    free(g.ranks);
    return departed;
}

static bool is_new_group(const Dumps *dumps, size_t i) {
    for (size_t j = 0; j < i; j++)
        if (strcmp(dumps->all[i].group, dumps->all[j].group) == 0 &&
            cJSON_Compare(dumps->all[i].ranks, dumps->all[j].ranks, true))
            return false;
    return true;
}

int flight_analyse(const char *folder, FILE *out, bool *departed, Error *err) {
    Dumps dumps = {0};
    int status = read_folder(&dumps, folder, err);
    *departed = false;
    for (size_t i = 0; i < dumps.count && status == 0; i++)
        if (is_new_group(&dumps, i) && analyse_group(&dumps, i, out)) *departed = true;
    free_dumps(&dumps);
    return status;
}
