/* test_flight_analysis.c: the report of flight_report on written records, compared in full; most
 * cases have a neighbour that differs in one record.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/heap_in_use.h"
#include "tests/rigs/temp_folder.h"

#include <stdbool.h>

#include "common/base/memory.h"
#include "ddp/group/flight_analysis.h"

enum { RANKS = 5, RECORDS = 4 };

typedef struct Record {
    int sequence;
    const char *call, *state; // NULL: end of the records
    int started_ns;           // 0: 500
} Record;

typedef struct Dump {
    int dumped_ns; // 0: no file of this rank
    const char *error;
    Record records[RECORDS];
} Dump;

typedef struct Case {
    int ranks;
    Dump dumps[RANKS];
    bool departed;
    const char *report;
} Case;

#define C1 \
    { 1, "barrier", "completed", 0 }
#define S1 \
    { 1, "barrier", "started", 0 }
#define C2 \
    { 2, "sum", "completed", 0 }
#define S2 \
    { 2, "sum", "started", 0 }
#define Q2 \
    { 2, "sum", "scheduled", 0 }
#define OTHER2 \
    { 2, "gather", "started", 0 }
#define AT2(NS) \
    { 2, "sum", "started", NS }

#define SUM(SEQUENCE, STATE) \
    { SEQUENCE, "sum", STATE, 0 }

#define G             "group g: "
#define NONE_DEPARTED G "no rank departed from the others in the records\n"

static const Case CASES[] = {
    // No finding, with and without an error.
    {2, {{1000, NULL, {C1, C2}}, {1001, NULL, {C1, C2}}}, false, NONE_DEPARTED},
    {2,
     {{1001, "late", {C1, C2}}, {1000, "early", {C1, C2}}},
     false,
     NONE_DEPARTED G "rank 1 wrote first, because: early\n"},
    {2,
     {{1000, "early", {C1, C2}}, {1001, "late", {C1, C2}}},
     false,
     NONE_DEPARTED G "rank 0 wrote first, because: early\n"},
    {2,
     {{1000, "one", {C1, C2}}, {1000, "another", {C1, C2}}},
     false,
     NONE_DEPARTED G "rank 0 wrote first, because: one\n"},
    // A collective that completed on one rank was started by all: the others wrote their records
    // earlier.
    {2, {{1000, NULL, {C1, S2}}, {1001, NULL, {C1, C2}}}, false, NONE_DEPARTED},
    // A rank did not start the collective: it has no record of it, only a scheduled one, or no
    // records.
    {3,
     {{1000, NULL, {C1, S2}}, {1001, NULL, {C1}}, {1002, NULL, {C1, S2}}},
     true,
     G "rank 1 did not start collective 2 sum; ranks 0, 2 wait in it\n" G
       "rank 1 last completed collective 1 barrier\n"},
    {3,
     {{1000, NULL, {C1, S2}}, {1001, NULL, {C1, Q2}}, {1002, NULL, {C1, S2}}},
     true,
     G "rank 1 did not start collective 2 sum; ranks 0, 2 wait in it\n" G
       "rank 1 last completed collective 1 barrier\n"},
    {3,
     {{1000, NULL, {S1}}, {1001, NULL, {{0}}}, {1002, NULL, {S1}}},
     true,
     G "rank 1 did not start collective 1 barrier; ranks 0, 2 wait in it\n" G
       "rank 1 started no collective\n"},
    {3,
     {{1000, NULL, {S1}}, {1001, NULL, {{0}}}, {1002, NULL, {{0}}}},
     true,
     G "ranks 1, 2 did not start collective 1 barrier; rank 0 waits in it\n" G
       "rank 1 started no collective\n" G "rank 2 started no collective\n"},
    // Rings that have overwritten their first records are compared from the first common record.
    {2,
     {{1000, NULL, {SUM(7, "started"), SUM(8, "started")}}, {1001, NULL, {SUM(6, "completed")}}},
     true,
     G "rank 1 did not start collective 7 sum; rank 0 waits in it\n" G
       "rank 1 last completed collective 6 sum\n"},
    {2,
     {{1000, NULL, {SUM(6, "started"), SUM(7, "completed")}},
      {1001, NULL, {SUM(7, "completed"), SUM(8, "completed")}}},
     false,
     NONE_DEPARTED},
    {2,
     {{1000, NULL, {SUM(7, "completed"), SUM(8, "completed")}},
      {1001, NULL, {SUM(6, "started"), SUM(8, "completed")}}},
     false,
     NONE_DEPARTED},
    {2,
     {{1000, NULL, {SUM(7, "completed")}}, {1001, NULL, {SUM(6, "started"), SUM(7, "completed")}}},
     false,
     NONE_DEPARTED},
    // A rank without a file.
    {3,
     {{1000, NULL, {C1, S2}}, {1001, NULL, {C1, S2}}, {0}},
     true,
     G "rank 2 left no records; the others are at collective 2 sum; ranks 0, 1 wait in it\n"},
    {3,
     {{0}, {1001, NULL, {C1, S2}}, {0}},
     true,
     G "ranks 0, 2 left no records; the others are at collective 2 sum; rank 1 waits in it\n"},
    // A rank started another call: the minority is named; in a tie, the highest rank.
    {3,
     {{1000, NULL, {C1, OTHER2}}, {1001, NULL, {C1, S2}}, {1002, NULL, {C1, S2}}},
     true,
     G "at collective 2 ranks 1, 2 started sum, but rank 0 gather\n"},
    {3,
     {{1000, NULL, {C1, S2}}, {1001, NULL, {C1, OTHER2}}, {1002, NULL, {C1, S2}}},
     true,
     G "at collective 2 ranks 0, 2 started sum, but rank 1 gather\n"},
    {2,
     {{1000, NULL, {C1, S2}}, {1001, NULL, {C1, OTHER2}}},
     true,
     G "at collective 2 rank 0 started sum, but rank 1 gather\n"},
    {5,
     {{1000, NULL, {C1, S2}},
      {1001, NULL, {C1, S2}},
      {1002, NULL, {C1, OTHER2}},
      {1003, NULL, {C1, OTHER2}},
      {1004, NULL, {C1, OTHER2}}},
     true,
     G "at collective 2 ranks 2, 3, 4 started gather, but rank 0 sum, but rank 1 sum\n"},
    // A rank started the collective after the first rank had given up: late. At the same time: not
    // late.
    {3,
     {{1000, "timeout", {C1, S2}}, {1900, "gone", {C1, AT2(1001)}}, {1002, NULL, {C1, S2}}},
     true,
     G "rank 1 came too late, when the others had given up, to collective 2 sum; ranks 0, 2 wait "
       "in it\n" G "rank 0 wrote first, because: timeout\n"},
    {3,
     {{1000, "timeout", {C1, S2}}, {1900, "gone", {C1, AT2(1000)}}, {1002, NULL, {C1, S2}}},
     false,
     G "ranks 0, 1, 2 started and did not complete collective 2 sum\n" G
       "rank 0 wrote first, because: timeout\n"},
    {3,
     {{1000, NULL, {C1, S2}}, {1900, NULL, {C1, AT2(1800)}}, {1002, NULL, {C1, S2}}},
     false,
     G "ranks 0, 1, 2 started and did not complete collective 2 sum\n"},
    // Several findings.
    {4,
     {{1000, "timeout", {C1, S2}}, {1001, NULL, {C1}}, {1002, NULL, {C1, OTHER2}}, {0}},
     true,
     G "rank 3 left no records; the others are at collective 2 sum; rank 0 waits in it\n" G
       "rank 1 did not start collective 2 sum; rank 0 waits in it\n" G
       "at collective 2 rank 0 started sum, but rank 2 gather\n" G
       "rank 1 last completed collective 1 barrier\n" G "rank 0 wrote first, because: timeout\n"},
};

static void write_dump(void **state, const Case *c, int rank) {
    const Dump *dump = &c->dumps[rank];
    char *path = memory_format("%s/flight_g_rank_%d.json", (const char *)*state, rank);
    if (dump->dumped_ns == 0) {
        remove(path); // the previous case's
        free(path);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"process_group\": \"g\", \"rank\": %d, \"dumped_ns\": %d, \"ranks\": [", rank,
            dump->dumped_ns);
    for (int r = 0; r < c->ranks; r++) fprintf(file, "%s%d", r ? ", " : "", r);
    fprintf(file, "], \"entries\": [");
    for (int i = 0; i < RECORDS && dump->records[i].call; i++) {
        const Record *record = &dump->records[i];
        fprintf(file,
                "%s{\"collective_seq_id\": %d, \"call\": \"%s\", \"state\": \"%s\", "
                "\"time_discovered_started_ns\": %d}",
                i ? ", " : "", record->sequence, record->call, record->state,
                record->started_ns ? record->started_ns : 500);
    }
    fprintf(file, "]");
    if (dump->error) fprintf(file, ", \"error\": \"%s\"", dump->error);
    fprintf(file, "}");
    fclose(file);
    free(path);
}

// Behind each array follow integers of one value, which a loop beyond its end takes for a rank's
// standing, or for a pointer.
enum { BEHIND = 16, STANDINGS = 6 };
static int behind;

void *__real_memory_zalloc(size_t bytes);
void *__wrap_memory_zalloc(size_t bytes);

void *__wrap_memory_zalloc(size_t bytes) {
    char *memory = __real_memory_zalloc(bytes + BEHIND * sizeof behind);
    for (size_t i = 0; i < BEHIND; i++)
        memcpy(memory + bytes + i * sizeof behind, &behind, sizeof behind);
    return memory;
}

static void reports(void **state) {
    FILE *nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
    for (size_t i = 0; i < STANDINGS * (sizeof CASES / sizeof *CASES); i++) {
        const Case *c = &CASES[i / STANDINGS];
        behind = (int)(i % STANDINGS);
        char *text = NULL;
        size_t bytes = 0;
        bool departed = !c->departed;
        Error err = {0};
        for (int rank = 0; rank < RANKS; rank++) write_dump(state, c, rank);
        FILE *out = open_memstream(&text, &bytes);
        CHECK_OK(flight_analyse(*state, out, &departed, &err) == 0, err);
        fclose(out);
        HeapRuns runs = {0};
        while (heap_run(&runs)) (void)flight_analyse(*state, nowhere, &departed, &err);
        assert_int_equal(runs.left, 0);
        assert_string_equal(text, c->report);
        assert_int_equal(departed, c->departed);
        free(text);
    }
    fclose(nowhere);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reports, temp_folder_make, temp_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
