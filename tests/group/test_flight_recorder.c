/* test_flight_recorder.c: row 87 of PyTorch's acceptance list (tests/semantics.md): contents of the
 * flight recorder's files, the events that write them, and flight_report's analysis of all ranks'
 * files.
 */
#include "tests/rigs/rank_failures.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include "common/base/memory.h"
#include "ddp/group/flight_analysis.h"
#include "ddp/group/flight_recorder.h"
#include "tests/rigs/files.h"
#include "tests/rigs/temp_folder.h"
#include "tests/rigs/zeros_behind.h"

static void expect_success(int status, const char *what, Outcome *outcome) {
    if (status) problem(outcome, "%s: %s", what, outcome->error.message);
}

// ---- reading the files ----------------------------------------------------------------------

static char *read_text(const char *folder, const char *group, int rank) {
    char *path = memory_format("%s/flight_%s_rank_%d.json", folder, group, rank);
    FILE *file = fopen(path, "r");
    free(path);
    if (!file) return NULL;
    enum { MOST = 4 << 20 };
    char *text = memory_zalloc(MOST + 1);
    if (fread(text, 1, MOST, file) == MOST) text[0] = '\0';
    fclose(file);
    return text;
}

static cJSON *read_dump(const char *folder, const char *group, int rank) {
    char *text = read_text(folder, group, rank);
    cJSON *json = text ? cJSON_Parse(text) : NULL;
    free(text);
    if (!json) fail_msg("rank %d has written no records of group %s", rank, group);
    return json;
}

static cJSON *entry(const cJSON *dump, int i) {
    cJSON *item = cJSON_GetArrayItem(cJSON_GetObjectItem(dump, "entries"), i);
    assert_non_null(item);
    return item;
}

static int entry_count(const cJSON *dump) {
    return cJSON_GetArraySize(cJSON_GetObjectItem(dump, "entries"));
}

static void check_text(const cJSON *object, const char *key, const char *value) {
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItem(object, key));
    assert_non_null(found);
    assert_string_equal(found, value);
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("there is no number %s", key);
    return item->valuedouble;
}

// Compares a list with its JSON text, such as "[[1000]]".
static void check_list(const cJSON *object, const char *key, const char *value) {
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(object, key));
    assert_non_null(text);
    assert_string_equal(text, value);
    free(text);
}

// The analysis of the folder contains each part of `parts`, separated by '|'.
static void check_analysis(const char *folder, bool departed, const char *parts) {
    char *text = NULL, copy[512], *rest = copy;
    size_t bytes = 0;
    bool found;
    Error err = {0};
    FILE *out = open_memstream(&text, &bytes);
    int status = flight_analyse(folder, out, &found, &err);
    fclose(out);
    if (status) fail_msg("%s", err.message);
    snprintf(copy, sizeof copy, "%s", parts);
    for (char *part = strtok_r(copy, "|", &rest); part; part = strtok_r(NULL, "|", &rest))
        must_contain(text, part);
    free(text);
    assert_int_equal(found, departed);
}

// ---- short: the fields ----------------------------------------------------------------------

static void write_short(ProcessGroup *group, const void *argument, Outcome *outcome) {
    int rank = pg_rank(group);
    float x[24] = {0}, y[24] = {0};
    const int members[] = {1, 2};
    Error *err = &outcome->error;
    expect_success(pg_run(group, pg_all_reduce(x, 10, PG_F32, PG_SUM), err), "1", outcome);
    expect_success(pg_run(group, pg_all_gather(x, y, 8, PG_F32), err), "2", outcome);
    if (rank == 0) expect_success(pg_run(group, pg_send(x, 3, PG_F64, 1), err), "send", outcome);
    if (rank == 1) expect_success(pg_run(group, pg_recv(x, 3, PG_F64, 0), err), "recv", outcome);
    expect_success(pg_run(group, pg_reduce_scatter(x, y, 8, PG_I32, PG_MAX), err), "3", outcome);
    ProcessGroup *part = pg_new_subgroup(group, members, 2, err);
    if (part) expect_success(pg_run(part, pg_broadcast(x, 1, PG_U8, 1), err), "part", outcome);
    if (part) expect_success(pg_write_flight(part, argument, err), "write part", outcome);
    expect_success(pg_write_flight(group, argument, err), "write", outcome);
    pg_close(part);
}

static void check_completed(const cJSON *e, int id, int sequence, const char *call) {
    assert_int_equal((int)number(e, "record_id"), id);
    assert_int_equal((int)number(e, "collective_seq_id"), sequence);
    assert_int_equal((int)number(e, "p2p_seq_id"), sequence == 0); // the first send or receive
    check_text(e, "call", call);
    check_text(e, "state", "completed");
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(e, "retired")));
    double created = number(e, "time_created_ns"),
           started = number(e, "time_discovered_started_ns");
    double completed = number(e, "time_discovered_completed_ns");
    assert_true(0 < created && created <= started && started <= completed);
    assert_true(fabs(number(e, "duration_ms") - (completed - started) * 1e-6) < 1e-3);
}

static void check_short(const char *folder) {
    cJSON *dump = read_dump(folder, "world", 1);
    check_text(dump, "process_group", "world");
    check_text(dump, "version", "1");
    check_text(dump, "backend", "shm");
    assert_int_equal((int)number(dump, "rank"), 1);
    check_list(dump, "ranks", "[0,1,2]");
    check_list(dump, "error", "null");
    assert_int_equal(entry_count(dump), 5);
    check_completed(entry(dump, 0), 1, 1, "all_reduce(F32, 10, sum)");
    check_text(entry(dump, 0), "profiling_name", "shm:all_reduce");
    check_list(entry(dump, 0), "input_sizes", "[[10]]");
    check_list(entry(dump, 0), "output_dtypes", "[\"F32\"]");
    check_completed(entry(dump, 1), 2, 2, "all_gather(F32, 8)");
    check_list(entry(dump, 1), "input_sizes", "[[8]]");
    check_list(entry(dump, 1), "output_sizes", "[[24]]");
    check_completed(entry(dump, 2), 3, 0, "recv(F64, 3, from rank 0)");
    assert_int_equal((int)number(entry(dump, 2), "p2p_seq_id"), 1);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(entry(dump, 2), "is_p2p")));
    check_list(entry(dump, 2), "input_sizes", "[]");
    check_completed(entry(dump, 3), 4, 3, "reduce_scatter(I32, 8, max)");
    check_list(entry(dump, 3), "input_sizes", "[[24]]");
    check_completed(entry(dump, 4), 5, 4, "new_subgroup(ranks 1, 2)");
    cJSON_Delete(dump);
    cJSON *part = read_dump(folder, "world.4", 2); // collective 4 created the subgroup
    check_list(part, "ranks", "[1,2]");
    check_completed(entry(part, 0), 1, 1, "broadcast(U8, 1, root 1)");
    cJSON_Delete(part);
    check_analysis(folder, false, "group world: no rank departed|group world.4: no rank departed");
}

static void row_87_short(void **state) {
    play_ranks(AS_THREADS, 3, 60, write_short, *state, NULL);
    check_short(*state);
    if (!UNDER_TSAN) play_ranks(AS_PROCESSES, 3, 60, write_short, *state, NULL);
    check_short(*state);
}

// ---- long: the ring ------------------------------------------------------------------------

static void write_long(ProcessGroup *group, const void *argument, Outcome *outcome) {
    for (int i = 0; i < FLIGHT_RECORDS + 100 && !outcome->problem[0]; i++)
        expect_success(pg_run(group, pg_barrier(), &outcome->error), "barrier", outcome);
    expect_success(pg_write_flight(group, argument, &outcome->error), "write", outcome);
}

static void row_87_long(void **state) {
    play_ranks(AS_THREADS, 1, 60, write_long, *state, NULL);
    cJSON *dump = read_dump(*state, "world", 0);
    assert_int_equal(entry_count(dump), FLIGHT_RECORDS);
    check_completed(entry(dump, 0), 101, 101, "barrier");
    check_completed(entry(dump, FLIGHT_RECORDS - 1), FLIGHT_RECORDS + 100, FLIGHT_RECORDS + 100,
                    "barrier");
    cJSON_Delete(dump);
}

// ---- stuck: on request ----------------------------------------------------------------------

// Writes records until the communication thread has dequeued the next collective.
static void write_until_started(ProcessGroup *group, const char *folder, Outcome *outcome) {
    bool started = false;
    for (int i = 0; i < 3000 && !started; i++) {
        sleep_ms(10);
        expect_success(pg_write_flight(group, folder, &outcome->error), "write", outcome);
        char *text = read_text(folder, "world", pg_rank(group));
        started = text && strstr(text, "\"started\"");
        free(text);
    }
    if (!started) problem(outcome, "not started after 30 s");
}

// On rank 0 one collective is in flight and one is queued; rank 1 joins after rank 0 has written
// its records.
static void is_stuck(ProcessGroup *group, const void *argument, Outcome *outcome) {
    Outcome *first = outcome - pg_rank(group);
    Error *err = &outcome->error;
    float x = 0;
    expect_success(pg_run(group, pg_barrier(), err), "barrier", outcome);
    if (pg_rank(group) == 1 &&
        sync_wait(&first->failed, 1, NULL, clock_ns() + 30000000000u, SYNC_SPINS) != SYNC_DONE)
        problem(outcome, "rank 0 wrote nothing");
    PgWork *one = pg_start(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), err);
    PgWork *two = pg_start(group, pg_broadcast(&x, 1, PG_F32, 0), err);
    if (pg_rank(group) == 0) {
        write_until_started(group, argument, outcome);
        sync_store(&outcome->failed, 1);
    }
    if (one) expect_success(pg_work_wait(one, NULL, NULL, err), "one", outcome);
    if (two) expect_success(pg_work_wait(two, NULL, NULL, err), "two", outcome);
    if (pg_rank(group) == 1)
        expect_success(pg_write_flight(group, argument, err), "write", outcome);
}

static void row_87_stuck(void **state) {
    play_ranks(AS_THREADS, 2, 60, is_stuck, *state, NULL);
    cJSON *dump = read_dump(*state, "world", 0);
    check_completed(entry(dump, 0), 1, 1, "barrier");
    check_text(entry(dump, 1), "call", "all_reduce(F32, 1, sum)");
    check_text(entry(dump, 1), "state", "started");
    assert_null(cJSON_GetObjectItem(entry(dump, 1), "duration_ms"));
    check_list(entry(dump, 1), "time_discovered_completed_ns", "null");
    check_text(entry(dump, 2), "call", "broadcast(F32, 1, root 0)");
    check_text(entry(dump, 2), "state", "scheduled");
    check_list(entry(dump, 2), "time_discovered_started_ns", "null");
    cJSON_Delete(dump);
    // Rank 1 wrote later, after both collectives completed: rank 0's older records are no finding.
    check_analysis(*state, false, "no rank departed");
}

// ---- pipe -----------------------------------------------------------------------------------

static SyncWord busy; // 1: the thread of a pipe polls with a timeout instead of blocking

int __real_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms) {
    if (timeout_ms >= 0) sync_store(&busy, 1);
    return __real_poll(entries, count, timeout_ms);
}

static void ask_through_pipe(ProcessGroup *group, const void *argument, Outcome *outcome) {
    char *prefix = memory_format("%s/ask", (const char *)argument);
    char *pipe = memory_format("%s%d.pipe", prefix, pg_rank(group)), *text = NULL;
    Error *err = &outcome->error;
    expect_success(pg_run(group, pg_barrier(), err), "barrier", outcome);
    int fd = open(pipe, O_WRONLY | O_NONBLOCK);
    struct stat status;
    if (stat(pipe, &status) != 0 || (status.st_mode & ALLPERMS) != (S_IRUSR | S_IWUSR))
        problem(outcome, "others than the user may use %s", pipe);
    if (fd < 0 || write(fd, "\n", 1) != 1) problem(outcome, "cannot write to %s", pipe);
    close(fd);
    for (int i = 0; i < 3000 && !text; i++) {
        sleep_ms(10);
        text = read_text(argument, "world", pg_rank(group));
    }
    if (!text || !strstr(text, "\"barrier\"")) problem(outcome, "no records after 30 s");
    free(text);
    free(pipe);
    free(prefix);
}

static void row_87_pipe(void **state) {
    char *prefix = temp_folder_path(state, "ask"), *pipe = temp_folder_path(state, "ask0.pipe");
    const PgOptions options = {.timeout_s = 60, .flight_folder = *state, .flight_pipe = prefix};
    play_ranks_with(AS_THREADS, 2, &options, ask_through_pipe, *state, NULL);
    assert_int_not_equal(access(pipe, F_OK), 0); // removed with the group
    assert_int_equal(sync_load(&busy), 0);
    free(pipe);
    free(prefix);
}

// A missing or empty prefix makes no pipe.
static void row_87_no_pipe(void **state) {
    static const char *const prefixes[] = {NULL, ""};
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(chdir(*state), 0);
    for (int i = 0; i < 2; i++) {
        const PgOptions options = {.timeout_s = 30, .flight_pipe = prefixes[i]};
        ProcessGroup *group;
        Error err = {0};
        assert_int_equal(pg_shm_threads(1, &options, &group, &err), 0);
        DIR *folder = opendir(".");
        int entries = 0;
        while (readdir(folder)) entries++;
        assert_int_equal(entries, 2); // only . and ..
        closedir(folder);
        pg_close(group);
    }
    assert_int_equal(fchdir(here), 0);
    close(here);
}

// Closing a group removes its open pipe. A regular file with the pipe's name is an error.
static void row_87_pipe_path(void **state) {
    ProcessGroup *group;
    Error err = {0};
    char *prefix = temp_folder_path(state, "a"), *path = temp_folder_path(state, "a0.pipe");
    const PgOptions options = {.timeout_s = 30, .flight_pipe = prefix};
    FILE *plain = fopen(path, "w");
    assert_non_null(plain);
    fclose(plain);
    assert_int_equal(pg_shm_threads(1, &options, &group, &err), -1);
    must_contain(err.message, "a0.pipe: File exists");
    assert_int_equal(unlink(path), 0);
    err = (Error){0};
    assert_int_equal(pg_shm_threads(1, &options, &group, &err), 0);
    assert_int_equal(access(path, F_OK), 0);
    pg_close(group);
    assert_int_not_equal(access(path, F_OK), 0);

    // If the second of three ranks cannot create its pipe, the other two pipes are removed.
    ProcessGroup *groups[3];
    char *third = temp_folder_path(state, "a2.pipe"), *second = temp_folder_path(state, "a1.pipe");
    plain = fopen(second, "w");
    assert_non_null(plain);
    fclose(plain);
    assert_int_equal(pg_shm_threads(3, &options, groups, &err), -1);
    must_contain(err.message, "rank 1: cannot make the pipe");
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(third, F_OK), 0);
    free(second);
    free(third);
    free(prefix);
    free(path);
}

// A folder name that is too long for flight records is an error of opening the group.
static void row_87_long_folder(void **state) {
    (void)state;
    char folder[FLIGHT_PATH_MAX + 1];
    for (int length = FLIGHT_PATH_MAX - 1; length <= FLIGHT_PATH_MAX; length++) {
        ProcessGroup *group = NULL;
        Error err = {0};
        memset(folder, 'x', sizeof folder);
        folder[length] = '\0';
        const PgOptions options = {.timeout_s = 30, .flight_folder = folder};
        assert_int_equal(pg_shm_threads(1, &options, &group, &err),
                         length < FLIGHT_PATH_MAX ? 0 : -1);
        if (!group) must_contain(err.message, "rank 0: the folder for flight records: 'xxx");
        pg_close(group);
    }
}

// ---- when the group breaks ------------------------------------------------------------------

typedef struct Trouble {
    const char *folder;
    enum { STAYS_AWAY, COMES_LATE, OTHER_CALL, DIES } what; // rank 2, at collective 3
} Trouble;

static void trouble(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Trouble *t = argument;
    float x[8] = {0};
    expect_success(pg_run(group, pg_barrier(), &outcome->error), "1", outcome);
    expect_success(pg_run(group, pg_broadcast(x, 1, PG_F32, 0), &outcome->error), "2", outcome);
    Collective mine = pg_all_reduce(x, 8, PG_F32, PG_SUM);
    if (pg_rank(group) == 2) {
        if (t->what == DIES) raise(SIGKILL);
        if (t->what == OTHER_CALL) mine = pg_all_gather(x, x, 1, PG_U8);
        if (t->what == STAYS_AWAY || t->what == COMES_LATE) wait_for_failure(group, outcome);
        if (t->what == STAYS_AWAY) {
            expect_success(pg_write_flight(group, t->folder, &outcome->error), "write", outcome);
            return;
        }
    }
    expect_failure(group, mine, outcome);
}

static void play_trouble(void **state, Trouble t, const char *says) {
    t.folder = *state;
    double timeout_s = t.what == STAYS_AWAY || t.what == COMES_LATE ? 1.0 : 60;
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        if (mode == AS_THREADS && t.what == DIES) continue; // a thread cannot die alone
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        const PgOptions options = {.timeout_s = timeout_s, .flight_folder = t.folder};
        play_ranks_with(mode, 4, &options, trouble, &t, NULL);
        check_analysis(*state, true, says);
    }
}

static void row_87_timeout(void **state) {
    play_trouble(state, (Trouble){.what = STAYS_AWAY},
                 "group world: rank 2 did not start collective 3 all_reduce(F32, 8, sum); "
                 "ranks 0, 1, 3 wait in it|"
                 "rank 2 last completed collective 2 broadcast(F32, 1, root 0)|"
                 "wrote first, because: collective 3 all_reduce(F32, 8, sum): rank 2 did not");
    cJSON *dump = read_dump(*state, "world", 0);
    assert_int_equal(entry_count(dump), 3);
    check_text(entry(dump, 2), "state", "started");
    cJSON_Delete(dump);
}

static void row_87_late(void **state) {
    play_trouble(state, (Trouble){.what = COMES_LATE},
                 "rank 2 came too late, when the others had given up, to collective 3 all_reduce("
                 "F32, 8, sum); ranks 0, 1, 3 wait in it");
}

static void row_87_disagreement(void **state) {
    play_trouble(state, (Trouble){.what = OTHER_CALL},
                 "at collective 3 ranks 0, 1, 3 started all_reduce(F32, 8, sum), "
                 "but rank 2 all_gather(U8, 1)");
}

static void row_87_killed(void **state) {
    if (UNDER_TSAN) skip();
    play_trouble(state, (Trouble){.what = DIES},
                 "rank 2 left no records; the others are at collective 3 all_reduce(F32, 8, sum); "
                 "ranks 0, 1, 3 wait in it|is gone");
}

// ---- folders with other files ---------------------------------------------------------------

static void expect_refusal(void **state, const char *says) {
    Error err = {0};
    bool departed;
    assert_int_equal(flight_analyse(*state, stderr, &departed, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    must_contain(err.message, says);
}

static void write_file(void **state, const char *name, const char *text) {
    char *path = temp_folder_path(state, name);
    write_whole(path, text, strlen(text));
    free(path);
}

static void row_87_no_records(void **state) {
    const char *texts[] = {"", "{", "[]", "{\"process_group\": \"g\", \"ranks\": 3}",
                           "{\"process_group\": 1, \"ranks\": [], \"entries\": []}"};
    const char *others[] = {"results_of_rank_0.txt", "other_world_rank_0.json", "flight.json",
                            "flight_world_rank_0.txt", "flight_world_rank_0.json.part"};
    for (size_t i = 0; i <= sizeof others / sizeof *others; i++) {
        expect_refusal(state, "there are no flight records");
        if (i < sizeof others / sizeof *others) write_file(state, others[i], "{");
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(state, "flight_world_rank_0.json", texts[i]);
        expect_refusal(state, "holds no flight records");
    }
}

// ---- damaged records ------------------------------------------------------------------------

static void write_dump(void **state, int rank, const char *text) {
    char *name = memory_format("flight_g_rank_%d.json", rank);
    write_file(state, name, text);
    free(name);
}

#define HEAD    "{\"process_group\": \"g\", \"rank\": 0, \"dumped_ns\": 1000, "
#define ENTRIES HEAD "\"ranks\": [0, 1], \"entries\": "
#define ENTRY(SEQUENCE, STATE)                                                                \
    "{\"collective_seq_id\": " SEQUENCE ", \"call\": \"barrier\", \"state\": \"" STATE "\", " \
    "\"time_discovered_started_ns\": 900}"

static void row_87_damaged(void **state) {
    static const struct {
        const char *text, *says;
    } broken[] = {
        {HEAD "\"ranks\": [0, \"x\"], \"entries\": []}", "'ranks' is not a whole number"},
        {HEAD "\"ranks\": [0, 1e300], \"entries\": []}", "'ranks' is not a whole number"},
        {HEAD "\"ranks\": [0, -1], \"entries\": []}", "'ranks' is not a whole number"},
        {HEAD "\"ranks\": [0, 1048576], \"entries\": []}",
         "'ranks' is not a whole number from 0 to 1048575"},
        {HEAD "\"ranks\": [1, 1048575], \"entries\": []}", "its rank 0 is not one of"},
        {HEAD "\"ranks\": [0, 0.5], \"entries\": []}", "'ranks' is not a whole number"},
        {HEAD "\"ranks\": [1], \"entries\": []}", "its rank 0 is not one of its group's"},
        {HEAD "\"ranks\": [], \"entries\": []}", "its rank 0 is not one of its group's"},
        {"{\"process_group\": \"g\", \"rank\": -3, \"ranks\": [], \"entries\": []}",
         "'rank' is not"},
        {"{\"process_group\": \"g\", \"rank\": 0, \"dumped_ns\": 1e999, \"ranks\": [], "
         "\"entries\": []}",
         "'dumped_ns' is not"},
        {ENTRIES "[1]}", "record 1: it has no 'state' or no 'call'"},
        {ENTRIES "[{\"call\": 2, \"state\": \"started\"}]}", "it has no 'state' or no 'call'"},
        {ENTRIES "[" ENTRY("-1", "started") "]}", "'collective_seq_id' is not a whole number"},
        {ENTRIES "[" ENTRY("1e17", "started") "]}", "'collective_seq_id' is not a whole number"},
        {ENTRIES "[" ENTRY("9007199254740994", "started") "]}",
         "'collective_seq_id' is not a whole number from 0 to 9007199254740992"},
        {ENTRIES "[" ENTRY("9007199254740992", "started") ", " ENTRY("3", "started") "]}",
         "record 2: its 'collective_seq_id' does not ascend"},
        {ENTRIES "[" ENTRY("2", "started") ", " ENTRY("2", "started") "]}",
         "record 2: its 'collective_seq_id' does not ascend"},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_dump(state, 0, broken[i].text);
        expect_refusal(state, "flight_g_rank_0.json is damaged: ");
        expect_refusal(state, broken[i].says);
    }
    char *path = temp_folder_path(state, "flight_g_rank_0.json");
    assert_int_equal(truncate(path, 4 << 20), 0); // the maximum size
    expect_refusal(state, "does not ascend");
    assert_int_equal(truncate(path, (4 << 20) + 1), 0);
    expect_refusal(state, "it is too large");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); // without a writer
    expect_refusal(state, "is a FIFO, not a regular file");
    free(path);
}

// The analysis takes time in proportion to the records, not to the numbers in them (once: hours).
static void row_87_large_numbers(void **state) {
    write_dump(state, 0, ENTRIES "[" ENTRY("1", "completed") ", " ENTRY("1e15", "started") "]}");
    check_analysis(*state, true,
                   "rank 1 left no records; the others are at collective 1000000000000000 barrier");
    enum { RANKS = 100000 };
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    fputs(HEAD "\"ranks\": [0", out);
    for (int r = 1; r < RANKS; r++) fprintf(out, ", %d", r);
    fputs("], \"entries\": [" ENTRY("1", "started"), out);
    for (int i = 2; i <= FLIGHT_RECORDS; i++) fprintf(out, ", " ENTRY("%d", "completed"), i);
    fputs("]}", out);
    fclose(out);
    write_dump(state, 0, text);
    free(text);
    check_analysis(*state, true,
                   "ranks 1, 2, 3|99999 left no records; the others are at collective 1");
}

// Rank 0 wrote its records during collective 5, rank 1 so much later that its ring has overwritten
// 5: an overwritten record is not a missing start.
static void row_87_forgotten(void **state) {
    write_dump(state, 0, ENTRIES "[" ENTRY("4", "completed") ", " ENTRY("5", "started") "]}");
    write_dump(state, 1,
               "{\"process_group\": \"g\", \"rank\": 1, \"dumped_ns\": 9000, \"ranks\": [0, 1], "
               "\"entries\": [" ENTRY("300", "completed") ", " ENTRY("301", "completed") "]}");
    check_analysis(*state, false, "no rank departed");
}

// Control characters in a record's text are replaced: it cannot forge lines of the report.
static void row_87_forged_line(void **state) {
    write_dump(state, 0,
               "{\"process_group\": \"g\\ngroup world\", \"rank\": 0, \"dumped_ns\": 1, "
               "\"ranks\": [0], \"entries\": [], \"error\": \"a\\u001b[2Jb\"}");
    check_analysis(*state, false, "group g?group world: no rank departed|because: a?[2Jb");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

// With an argument: the tests that wait for a timeout.
int main(int argc, char **argv) {
    (void)argv;
    const struct CMUnitTest waiting[] = {IN_FOLDER(row_87_timeout), IN_FOLDER(row_87_late)};
    const struct CMUnitTest tests[] = {
        IN_FOLDER(row_87_short),
        IN_FOLDER(row_87_long),
        IN_FOLDER(row_87_stuck),
        IN_FOLDER(row_87_pipe),
        IN_FOLDER(row_87_pipe_path),
        IN_FOLDER(row_87_no_pipe),
        cmocka_unit_test(row_87_long_folder),
        IN_FOLDER(row_87_disagreement),
        IN_FOLDER(row_87_killed),
        IN_FOLDER(row_87_no_records),
        IN_FOLDER(row_87_damaged),
        IN_FOLDER(row_87_large_numbers),
        IN_FOLDER(row_87_forgotten),
        IN_FOLDER(row_87_forged_line),
    };
    return argc > 1 ? cmocka_run_group_tests(waiting, NULL, NULL)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
