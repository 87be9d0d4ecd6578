/* flight_recorder.c: see flight_recorder.h.
 *
 * Record id is at ring[id % FLIGHT_RECORDS]. The ring holds the newest FLIGHT_RECORDS records; a
 * slot whose id differs has been overwritten. One record is one cache line.
 */
#include "ddp/group/flight_recorder.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/sync.h"

enum { NAME_MAX_BYTES = 64, SAID = 8 };

typedef struct FlightRecord {
    uint64_t id, sequence, count;
    uint64_t created_ns, started_ns, completed_ns; // 0: not yet
    int32_t root;
    uint8_t operation, type, op;
} FlightRecord;

_Static_assert(sizeof(FlightRecord) <= CACHE_LINE, "a record is one cache line");

struct FlightRecorder {
    char name[NAME_MAX_BYTES];
    char folder[FLIGHT_PATH_MAX];
    bool say;
    uint64_t last_id, pairwise; // records so far, and sends and receives among them
    struct {
        _Alignas(CACHE_LINE) FlightRecord record;
    } ring[FLIGHT_RECORDS];
};

FlightRecorder *flight_recorder_open(const char *group_name, const char *folder, bool say,
                                     Error *err) {
    if (folder && strlen(folder) >= FLIGHT_PATH_MAX)
        return error_null(err, STATUS_USAGE,
                          "the folder for flight records: '%.40s...' is too long", folder);
    FlightRecorder *recorder = memory_zalloc(sizeof *recorder);
    snprintf(recorder->name, sizeof recorder->name, "%s", group_name);
    snprintf(recorder->folder, sizeof recorder->folder, "%s", folder ? folder : "");
    recorder->say = say;
    return recorder;
}

FlightRecorder *flight_recorder_open_inside(const FlightRecorder *parent, uint64_t sequence) {
    char name[NAME_MAX_BYTES];
    snprintf(name, sizeof name, "%.40s.%ju", parent->name, (uintmax_t)sequence);
    return flight_recorder_open(name, parent->folder, parent->say, NULL);
}

FlightRecorder *flight_recorder_copy(const FlightRecorder *recorder) {
    FlightRecorder *copy = memory_zalloc(sizeof *copy);
    memcpy(copy, recorder, sizeof *copy);
    return copy;
}

void flight_recorder_close(FlightRecorder *recorder) {
    free(recorder);
}

// ---- recording ------------------------------------------------------------------------------

uint64_t flight_schedule(FlightRecorder *recorder, int operation, const Collective *collective,
                         uint64_t sequence, uint64_t now_ns) {
    uint64_t id = ++recorder->last_id;
    if (pg_is_pairwise(operation)) sequence = ++recorder->pairwise;
    recorder->ring[id % FLIGHT_RECORDS].record = (FlightRecord){.id = id,
                                                                .sequence = sequence,
                                                                .count = collective->count,
                                                                .created_ns = now_ns,
                                                                .root = collective->root,
                                                                .operation = (uint8_t)operation,
                                                                .type = (uint8_t)collective->type,
                                                                .op = (uint8_t)collective->op};
    return id;
}

void flight_start(FlightRecorder *recorder, uint64_t id, uint64_t now_ns) {
    FlightRecord *record = &recorder->ring[id % FLIGHT_RECORDS].record;
    if (record->id == id) record->started_ns = now_ns;
}

void flight_complete(FlightRecorder *recorder, uint64_t id, uint64_t now_ns) {
    FlightRecord *record = &recorder->ring[id % FLIGHT_RECORDS].record;
    if (record->id == id) record->completed_ns = now_ns;
}

// ---- writing --------------------------------------------------------------------------------

static const char *state_of(const FlightRecord *record) {
    return record->completed_ns ? "completed" : record->started_ns ? "started" : "scheduled";
}

static Collective collective_of(const FlightRecord *record) {
    return (Collective){.kind = (CollectiveKind)record->operation,
                        .count = (size_t)record->count,
                        .type = (PgType)record->type,
                        .op = (ReduceOp)record->op,
                        .root = record->root};
}

// Writes the lists of sizes and of types for one buffer of `count` elements; they are empty for 0.
static void write_buffer(Json *json, const char *sizes_key, const char *types_key, uint64_t count,
                         const char *type) {
    json_begin_array(json, sizes_key);
    if (count > 0) {
        json_begin_array(json, NULL);
        json_integer(json, NULL, (int64_t)count);
        json_end_array(json);
    }
    json_end_array(json);
    json_begin_array(json, types_key);
    if (count > 0) json_string(json, NULL, type);
    json_end_array(json);
}

static void write_time(Json *json, const char *key, uint64_t ns) {
    if (ns)
        json_integer(json, key, (int64_t)ns);
    else
        json_string(json, key, NULL);
}

static void write_record(Json *json, const FlightRecord *record, const FlightAbout *about) {
    Collective collective = collective_of(record);
    char name[64], call[PG_DESCRIPTION_MAX];
    const char *type = pg_type_name((PgType)record->type);
    bool pairwise = pg_is_pairwise(record->operation);
    snprintf(name, sizeof name, "%s:%s", about->backend, pg_operation_name(record->operation));
    json_begin_object(json, NULL);
    json_integer(json, "record_id", (int64_t)record->id);
    json_integer(json, "collective_seq_id", pairwise ? 0 : (int64_t)record->sequence);
    json_integer(json, "p2p_seq_id", pairwise ? (int64_t)record->sequence : 0);
    json_string(json, "profiling_name", name);
    json_string(json, "call", pg_describe(record->operation, &collective, call));
    // Sizes of a collective with a root are the root's.
    write_buffer(json, "input_sizes", "input_dtypes",
                 pg_send_count(&collective, record->root, about->size), type);
    write_buffer(json, "output_sizes", "output_dtypes",
                 pg_receive_count(&collective, record->root, about->size), type);
    json_string(json, "state", state_of(record));
    json_integer(json, "time_created_ns", (int64_t)record->created_ns);
    write_time(json, "time_discovered_started_ns", record->started_ns);
    write_time(json, "time_discovered_completed_ns", record->completed_ns);
    if (record->completed_ns)
        json_number(json, "duration_ms",
                    (double)(record->completed_ns - record->started_ns) * 1e-6);
    json_bool(json, "retired", record->completed_ns != 0);
    json_bool(json, "is_p2p", pairwise);
    json_end_object(json);
}

// The id of the first of the last `count` records.
static uint64_t first_id(const FlightRecorder *recorder, uint64_t count) {
    return recorder->last_id < count ? 1 : recorder->last_id - count + 1;
}

static int global_rank(const FlightAbout *about, int rank) {
    return about->global ? about->global[rank] : rank;
}

static void write_group(Json *json, const FlightRecorder *recorder, const FlightAbout *about) {
    json_string(json, "version", "1");
    json_string(json, "process_group", recorder->name);
    json_string(json, "backend", about->backend);
    json_integer(json, "rank", global_rank(about, about->rank));
    json_begin_array(json, "ranks"); // of the group, by their numbers in the job
    for (int r = 0; r < about->size; r++) json_integer(json, NULL, global_rank(about, r));
    json_end_array(json);
    json_string(json, "error", about->error);
    json_integer(json, "dumped_ns", (int64_t)clock_ns());
}

static void write_all(FILE *file, const FlightRecorder *recorder, const FlightAbout *about) {
    Json json = {.file = file};
    json_begin_object(&json, NULL);
    write_group(&json, recorder, about);
    json_begin_array(&json, "entries");
    for (uint64_t id = first_id(recorder, FLIGHT_RECORDS); id <= recorder->last_id; id++)
        write_record(&json, &recorder->ring[id % FLIGHT_RECORDS].record, about);
    json_end_array(&json);
    json_end_object(&json);
}

// Written atomically, by rename, as all files, but without the fsync of base/file.h: the records
// must survive the process, not the machine, and the launcher grants a rank little time.
int flight_write(const FlightRecorder *recorder, const FlightAbout *about, const char *folder,
                 Error *err) {
    if (file_make_folder(folder, err) != 0) return -1;
    char *path = memory_format("%s/flight_%s_rank_%d.json", folder, recorder->name,
                               global_rank(about, about->rank));
    char *temporary =
        memory_format("%s.%d.tmp", path, (int)gettid()); // the trigger's thread may write, too
    FILE *file = fopen(temporary, "we");
    if (file) write_all(file, recorder, about);
    bool written = file && !ferror(file);
    if (file) written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) {
        error_set(err, STATUS_FAILED, "cannot write %s: %s", path, strerror(errno));
        unlink(temporary);
        written = false;
    }
    free(temporary);
    free(path);
    return written ? 0 : -1;
}

static void say_last(const FlightRecorder *recorder, const FlightAbout *about) {
    uint64_t now = clock_ns();
    for (uint64_t id = first_id(recorder, SAID); id <= recorder->last_id; id++) {
        const FlightRecord *record = &recorder->ring[id % FLIGHT_RECORDS].record;
        Collective collective = collective_of(record);
        char call[PG_DESCRIPTION_MAX];
        fprintf(stderr, "rank %d: %s: %ju %s: %s, created %.3f s ago\n",
                global_rank(about, about->rank), recorder->name, (uintmax_t)record->sequence,
                pg_describe(record->operation, &collective, call), state_of(record),
                (double)(now - record->created_ns) * 1e-9);
    }
}

void flight_write_broken(const FlightRecorder *recorder, const FlightAbout *about) {
    Error err = {0};
    if (recorder->say) say_last(recorder, about);
    if (*recorder->folder && flight_write(recorder, about, recorder->folder, &err) != 0)
        fprintf(stderr, "rank %d: the flight records are lost: %s\n",
                global_rank(about, about->rank), err.message);
}
