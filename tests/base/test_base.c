/* test_base.c: common/base without threads (test_sync.c) and options (test_options.c): errors,
 * atomic files, known answers of the random generator, valid JSON, nested spans.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cjson/cJSON.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/machine.h"
#include "common/base/memory.h"
#include "common/base/profile.h"
#include "common/base/rng.h"
#include "common/base/trace.h"
#include "tests/rigs/failed_check.h"
#include "tests/rigs/temp_folder.h"

// Returns the file's contents as a string, to be freed; NULL if the file does not exist.
static char *slurp(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = NULL;
    size_t capacity = 0;
    if (getdelim(&text, &capacity, '\0', file) < 0) {
        free(text);
        text = memory_format("%s", "");
    }
    fclose(file);
    return text;
}

static int count_files(const char *folder) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

// ---- error --------------------------------------------------------------------------------------

static void test_error_keeps_the_first(void **state) {
    (void)state;
    Error err = {0};
    assert_int_equal(error_prefix(&err, "nothing"), -1);
    assert_int_equal(error_prefix(NULL, "nothing"), -1);
    assert_int_equal(err.status, STATUS_OK);
    assert_string_equal(err.message, "");
    assert_int_equal(error_set(&err, STATUS_USAGE, "bad %d", 7), -1);
    assert_int_equal(error_set(&err, STATUS_FAILED, "later"), -1);
    assert_int_equal(error_prefix(&err, "file %s", "a\nb"), -1);
    assert_string_equal(err.message, "file a?b: bad 7");
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(error_set(NULL, STATUS_USAGE, "no caller wants it"), -1);
    err = (Error){0};
    error_set(&err, STATUS_USAGE, "%s: gone", "a\nerror: b\x1b[2J\x7f");
    assert_string_equal(err.message, "a?error: b?[2J?: gone");
    err = (Error){0}; // U+0080 and U+009F are control characters, U+00A0 and U+0100 are not
    error_set(&err, STATUS_USAGE, "a\xc2\x80 b\xc2\x9f c\xc2\xa0 d\xc4\x80 e\xc2\x7f \xc2");
    assert_string_equal(err.message, "a?? b?? c\xc2\xa0 d\xc4\x80 e\xc2? \xc2");
}

static void test_error_long_messages_are_cut(void **state) {
    (void)state;
    Error err = {0};
    char *text = memory_format("%2000s", "x");
    error_set(&err, STATUS_FAILED, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    error_prefix(&err, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    free(text);
}

typedef enum Ending { ENDS_WITH_ERROR, ENDS_WITHOUT_STATUS, ENDS_WELL, ENDS_UNBUFFERED } Ending;

static void undo(void) {
    _exit(99); // process_end must not run handlers of atexit
}

// In a child: redirects stdout and stderr to files, buffers some output, ends in the given way.
static _Noreturn void end_process(const char *out, const char *said, Ending ending) {
    Error err = {.status = ending == ENDS_WITH_ERROR ? STATUS_USAGE : STATUS_OK, .message = "why"};
    if (!freopen(out, "a", stdout) || !freopen(said, "a", stderr) || atexit(undo) != 0) _exit(98);
    if (ending == ENDS_UNBUFFERED) setvbuf(stdout, NULL, _IONBF, 0);
    printf("the last word");
    if (ending < ENDS_WELL) error_exit(&err);
    process_end(STATUS_OK);
}

// Returns the exit status of a child that ends in the given way.
static int status_of_ending(const char *out, const char *said, Ending ending) {
    int status = 0;
    (void)!truncate(out, 0); // may not exist yet; /dev/full is unchanged
    (void)!truncate(said, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) end_process(out, said, ending);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_reads(const char *path, const char *expected) {
    char *text = slurp(path);
    assert_string_equal(text, expected);
    free(text);
}

static void test_process_ends_at_once(void **state) {
    char *out = temp_folder_path(state, "out"), *said = temp_folder_path(state, "said");
    assert_int_equal(status_of_ending(out, said, ENDS_WITH_ERROR), STATUS_USAGE);
    assert_reads(out, "the last word");
    assert_reads(said, "error: why\n");
    assert_int_equal(status_of_ending(out, out, ENDS_WITH_ERROR), STATUS_USAGE);
    assert_reads(out, "the last worderror: why\n"); // stdout is flushed before stderr is written
    assert_int_equal(status_of_ending(out, said, ENDS_WITHOUT_STATUS), STATUS_FAILED);
    assert_int_equal(status_of_ending(out, said, ENDS_WELL), STATUS_OK);
    assert_reads(out, "the last word");
    assert_int_equal(status_of_ending("/dev/full", said, ENDS_WELL), STATUS_FAILED);
    assert_int_equal(status_of_ending(out, said, ENDS_UNBUFFERED), STATUS_OK);
    assert_int_equal(status_of_ending("/dev/full", said, ENDS_UNBUFFERED), STATUS_FAILED);
    free(out);
    free(said);
}

static void set_no_status(void *context) {
    error_set(context, STATUS_OK, "bad %d", 7);
}

static void test_a_failed_check_says_where(void **state) {
    (void)state;
    Error err = {0};
    expect_failed_check(set_no_status, &err,
                        ": CHECK(status != STATUS_OK) failed: an error needs an exit status "
                        "(message: bad %d)\n");
}

// ---- file ---------------------------------------------------------------------------------------

static void write_file(const char *path, const char *text) {
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, path, &err), 0);
    fputs(text, file.file);
    assert_int_equal(file_commit(&file, &err), 0);
}

static void test_file_replaces_whole(void **state) {
    char *path = temp_folder_path(state, "data");
    write_file(path, "old");
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, path, &err), 0);
    fputs("new", file.file);
    fflush(file.file);
    char *text = slurp(path);
    assert_string_equal(text, "old"); // before the commit
    free(text);
    assert_int_equal(file_commit(&file, &err), 0);
    text = slurp(path);
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(count_files(*state), 1);
    free(path);
}

static void test_file_abandon_changes_nothing(void **state) {
    char *path = temp_folder_path(state, "data");
    write_file(path, "old");
    AtomicFile file;
    assert_int_equal(file_begin(&file, path, NULL), 0);
    fputs("new", file.file);
    file_abandon(&file);
    file_abandon(&file); // a second call does nothing
    char *text = slurp(path);
    assert_string_equal(text, "old");
    assert_int_equal(count_files(*state), 1);
    free(text);
    free(path);
}

// Simulates a full disk by a limit on the size of files: root could write anywhere else.
static void fail_to_write(void **state, size_t bytes) {
    char *path = temp_folder_path(state, "data");
    write_file(path, "old");
    struct rlimit before, small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, path, &err), 0);
    for (size_t i = 0; i < bytes; i++) fputc('x', file.file);
    int status = file_commit(&file, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, -1);
    assert_int_equal(err.status, STATUS_FAILED);
    assert_non_null(strstr(err.message, path));
    char *text = slurp(path);
    assert_string_equal(text, "old");
    assert_int_equal(count_files(*state), 1); // the temporary file was removed
    free(text);
    free(path);
}

static void test_file_disk_full(void **state) {
    fail_to_write(state, 4097);   // detected by the commit's flush
    fail_to_write(state, 100000); // detected by an earlier write
}

static void test_file_refuses_what_is_no_file(void **state) {
    AtomicFile file;
    Error err = {0};
    assert_int_equal(file_begin(&file, "/dev/null", &err), -1);
    assert_string_equal(err.message, "cannot write /dev/null: it is not a regular file");
    err = (Error){0};
    assert_int_equal(file_begin(&file, *state, &err), -1);
    char *path = temp_folder_path(state, "none/such");
    err = (Error){0};
    assert_int_equal(file_begin(&file, path, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_non_null(strstr(err.message, "No such file"));
    free(path);
}

static void test_file_make_folder(void **state) {
    Error err = {0};
    struct stat info;
    char *path = temp_folder_path(state, "a/b//c/");
    assert_int_equal(file_make_folder(path, &err), 0);
    assert_int_equal(file_make_folder(path, &err), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    free(path);
    path = temp_folder_path(state, "a/file");
    write_file(path, "");
    char *below = temp_folder_path(state, "a/file/d");
    assert_int_equal(file_make_folder(below, &err), -1);
    assert_non_null(strstr(err.message, "a file has that name"));
    free(below);
    free(path);
}

// ---- rng ----------------------------------------------------------------------------------------

// Known answers of Philox4x32-10 from its authors' kat_vectors: counter = (index, stream), key =
// seed, low word first.
static void test_rng_known_answers(void **state) {
    (void)state;
    uint64_t ones = UINT64_MAX;
    assert_true(rng_u64(0, 0, 0) == 0xe169c58d6627e8d5u);
    assert_true(rng_u64(ones, ones, ones) == 0x41c83b0e408f276du);
    assert_true(rng_u64(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u) ==
                0x94fdccebd16cfe09u);
}

static void test_clock_in_seconds(void **state) {
    (void)state;
    uint64_t now = clock_ns();
    assert_true(clock_ns_after(2) >= now + 2000000000 && clock_ns_after(0.5) < now + 2000000000);
    assert_true(clock_ns_after(-1) >= now);
    assert_true(clock_ns_after(INFINITY) < (uint64_t)1 << 61); // no overflow
    assert_true(clock_seconds_since(now + 3000000000) == 0);   // a time in the future
    assert_true(clock_seconds_since(now - 3000000000) >= 3);
}

static void test_machine_reads_a_line(void **state) {
    (void)state;
    char line[8];
    machine_read_line("/proc/no such file", line, sizeof line);
    assert_string_equal(line, "?");
    prctl(PR_SET_NAME, "test_base");                         // qemu's process has another name
    machine_read_line("/proc/self/comm", line, sizeof line); // longer than the buffer: cut
    assert_string_equal(line, "test_ba");
    char whole[64];
    machine_read_line("/proc/self/comm", whole, sizeof whole);
    assert_string_equal(whole, "test_base");
    char id[64], *file = slurp("/proc/sys/kernel/random/boot_id");
    machine_boot_id(id, sizeof id);
    file[strcspn(file, "\n")] = '\0';
    assert_string_equal(id, file);
    free(file);
}

static const char *host; // result of gethostname; NULL: it fails

int __wrap_gethostname(char *name, size_t capacity);
int __wrap_gethostname(char *name, size_t capacity) {
    if (host) strncpy(name, host, capacity); // without a NUL if the name fills the buffer
    return host ? 0 : -1;
}

static void test_machine_has_a_name(void **state) {
    (void)state;
    static const struct {
        const char *host, *name;
    } cases[] = {{"mars", "mars"},
                 {"m", "m"},
                 {"sevenab", "sevenab"},
                 {"eight-ab", "eight-a"},
                 {"a-long-name", "a-long-"},
                 {"", "?"},
                 {NULL, "?"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[10] = "########"; // bytes after the 8 passed must not change
        host = cases[i].host;
        machine_name(name, 8);
        assert_string_equal(name, cases[i].name);
        assert_int_equal(name[8], 0);
    }
}

static void test_rng_streams_are_apart(void **state) {
    (void)state;
    static const uint64_t streams[] = {
        RNG_STREAM_AUGMENT,   RNG_STREAM_TEACHER, RNG_STREAM_SYNTHETIC, RNG_STREAM_NOISE,
        RNG_STREAM_TEST,      RNG_STREAM_SHAPES,  RNG_STREAM_SAMPLE,    RNG_STREAM_POWER_SGD,
        RNG_STREAM_PARAMETER, // the largest; parameters use the streams from it on
    };
    const size_t count = sizeof streams / sizeof *streams;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < i; j++) assert_true(streams[j] < streams[i]);
    }
}

static void test_rng_uniform_stays_below_high(void **state) {
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        float narrow = rng_uniform(1, RNG_STREAM_TEST, i, 1.0f, nextafterf(1.0f, 2.0f));
        assert_true(narrow == 1.0f); // the only float in the interval
        float x = rng_uniform(1, RNG_STREAM_TEST, i, -2.0f, 6.0f);
        assert_true(x >= -2.0f && x < 6.0f);
        sum += x;
    }
    assert_true(fabs(sum / 100000 - 2) < 0.03); // four standard errors
    for (uint64_t i = 0; i < 1000; i++) {       // uniform: 24 bits; normal: 32 bits of each of two
        const uint64_t bits = rng_u64(9, RNG_STREAM_TEST, i);
        const float unit = (float)(bits >> 40) / 16777216;
        assert_true(rng_uniform(9, RNG_STREAM_TEST, i, 0, 1) == unit);
        assert_true(rng_uniform(9, RNG_STREAM_TEST, i, 3, 3) == 3);
        const double radius = ((double)(bits & 0xffffffff) + 1) / 4294967296;
        const double turn = (double)(bits >> 32) / 4294967296;
        const double x = sqrt(-2 * log(radius)) * cos(6.283185307179586 * turn);
        assert_true(rng_normal(9, RNG_STREAM_TEST, i) == (float)x);
        assert_int_equal(rng_below(9, RNG_STREAM_TEST, i, 1000), bits % 1000);
    }
}

static void test_rng_normal_moments(void **state) {
    (void)state;
    double sum = 0, squares = 0, fourth = 0;
    const double n = 100000;
    for (uint64_t i = 0; i < 100000; i++) {
        double x = (double)rng_normal(1, RNG_STREAM_NOISE, i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    assert_true(fabs(sum / n) < 0.0127 && fabs(squares / n - 1) < 0.018); // four standard errors
    assert_true(fabs(fourth / n - 3) < 0.124);
}

static void test_rng_below_hits_everything(void **state) {
    (void)state;
    int hits[7] = {0};
    for (uint64_t i = 0; i < 7000; i++) hits[rng_below(3, RNG_STREAM_TEST, i, 7)]++;
    for (int i = 0; i < 7; i++) assert_in_range(hits[i], 880, 1120); // four standard deviations
    assert_true(rng_below(3, 0, 0, 1) == 0);
    // Changing the seed, the stream or the index changes the value.
    assert_true(rng_u64(1, 2, 3) != rng_u64(2, 2, 3) && rng_u64(1, 2, 3) != rng_u64(1, 3, 3));
    assert_true(rng_u64(1, 2, 3) != rng_u64(1, 2, 4));
}

// ---- json ---------------------------------------------------------------------------------------

static void test_json_reads_back(void **state) {
    (void)state;
    const char *nasty = "quote\" back\\slash \n\t\r\x01 \xc3\xa9";
    char *text = NULL;
    size_t length = 0;
    Json json = {.file = open_memstream(&text, &length)};
    json_begin_object(&json, NULL);
    json_string(&json, nasty, nasty);
    json_string(&json, "none", NULL);
    json_number(&json, "third", 1.0 / 3);
    json_number(&json, "nan", NAN);
    json_number(&json, "infinite", -INFINITY);
    json_integer(&json, "integer", -7);
    json_bool(&json, "yes", true);
    json_begin_array(&json, "array");
    for (int i = 0; i < 3; i++) {
        json_begin_array(&json, NULL);
        json_number(&json, NULL, 0.1);
        json_begin_object(&json, NULL);
        json_end_object(&json);
        json_end_array(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    fclose(json.file);

    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, nasty)->valuestring, nasty);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "none")));
    assert_true(cJSON_GetObjectItem(root, "third")->valuedouble == 1.0 / 3);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "nan")));
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(root, "infinite")));
    assert_int_equal(cJSON_GetObjectItem(root, "integer")->valueint, -7);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(root, "yes")));
    cJSON *array = cJSON_GetObjectItem(root, "array");
    assert_int_equal(cJSON_GetArraySize(array), 3);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetArrayItem(array, 2)), 2);
    assert_non_null(strstr(text, "[0.1, {}]")); // shortest digits; deep levels on one line
    cJSON_Delete(root);
    free(text);
}

static void nest(void *depth) {
    Json json = {.file = fopen("/dev/null", "w")};
    assert_non_null(json.file);
    for (int i = 0; i < *(int *)depth; i++) json_begin_array(&json, NULL);
    for (int i = 0; i < *(int *)depth; i++) json_end_array(&json);
    fclose(json.file);
}

// The two outer levels have a line for each element, deeper ones share one; a text has its escapes.
static void test_json_has_a_layout(void **state) {
    (void)state;
    char *text = NULL;
    size_t length = 0;
    Json json = {.file = open_memstream(&text, &length)};
    json_begin_object(&json, NULL);
    json_string(&json, "text", "\"\\\n\t\x1f \x7f");
    json_begin_array(&json, "rows");
    for (int i = 0; i < 2; i++) {
        json_begin_array(&json, NULL);
        json_integer(&json, NULL, i);
        json_bool(&json, NULL, false);
        json_end_array(&json);
    }
    json_end_array(&json);
    json_begin_object(&json, "empty");
    json_end_object(&json);
    json_end_object(&json);
    fclose(json.file);
    assert_string_equal(text, "{\n"
                              "  \"text\": \"\\\"\\\\\\n\\t\\u001f \x7f\",\n"
                              "  \"rows\": [\n"
                              "    [0, false],\n"
                              "    [1, false]\n"
                              "  ],\n"
                              "  \"empty\": {}\n"
                              "}\n");
    free(text);
    int most = 31, more = 32;
    expect_failed_check(nest, &more, "JSON nested deeper than 31 levels");
    nest(&most);
}

// ---- profile and trace --------------------------------------------------------------------------

static double field(const cJSON *event, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(event, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

// Two spans of a track nest or are disjoint.
static void assert_nested(const cJSON *a, const cJSON *b) {
    double a0 = field(a, "ts"), a1 = a0 + field(a, "dur");
    double b0 = field(b, "ts"), b1 = b0 + field(b, "dur");
    const double ns = 0.0011; // slack in us: times are in us, and 0.001 is not exact
    bool apart = a1 <= b0 + ns || b1 <= a0 + ns;
    bool inside = (a0 <= b0 + ns && b1 <= a1 + ns) || (b0 <= a0 + ns && a1 <= b1 + ns);
    assert_true(apart || inside);
}

static Trace *record_trace(void) {
    Trace *trace = trace_open(3, "rank \"3\"");
    Profile profile = {.trace = trace, .track = trace_track(trace, "main", 100)};
    int comm = trace_track(trace, "comm", 2);
    assert_int_equal(comm, 1);
    for (int step = 0; step < 2; step++) {
        profile_begin_step(&profile);
        Phase previous = profile_enter(&profile, PHASE_FORWARD);
        while (clock_ns() < profile.since_ns + 1000) continue;
        profile_leave(&profile, previous);
        profile_end_step(&profile);
    }
    trace_span(trace, comm, "bucket", -1, 1000001, 1002001);
    trace_span(trace, comm, "piece", 7, 1000501, 1001001);
    trace_span(trace, comm, "dropped", 8, 2000000, 2000001);
    return trace;
}

static void test_trace_parses_and_nests(void **state) {
    char *path = temp_folder_path(state, "trace.json");
    Trace *trace = record_trace();
    Error err = {0};
    assert_int_equal(trace_write(trace, path, &err), 0);
    trace_close(trace);
    char *text = slurp(path);
    cJSON *root = cJSON_Parse(text);
    assert_non_null(root);
    assert_string_equal(cJSON_GetObjectItem(root, "displayTimeUnit")->valuestring, "ms");
    assert_true(field(cJSON_GetObjectItem(root, "otherData"), "dropped_spans") == 1);
    int spans = 0, names = 0, forward = 0;
    const cJSON *events = cJSON_GetObjectItem(root, "traceEvents"), *event, *other;
    cJSON_ArrayForEach(event, events) {
        const char *name = cJSON_GetObjectItem(event, "name")->valuestring;
        const char *ph = cJSON_GetObjectItem(event, "ph")->valuestring;
        assert_true(field(event, "pid") == 3);
        if (strcmp(ph, "M") == 0) {
            names++;
            continue;
        }
        spans++;
        forward += strcmp(name, "forward") == 0;
        if (strcmp(name, "piece") == 0) {
            assert_true(field(event, "ts") == 1000.501 && field(event, "dur") == 0.5);
            assert_true(field(cJSON_GetObjectItem(event, "args"), "number") == 7);
        }
        cJSON_ArrayForEach(other, events) {
            bool is_span = strcmp(cJSON_GetObjectItem(other, "ph")->valuestring, "X") == 0;
            if (is_span && field(other, "tid") == field(event, "tid")) assert_nested(event, other);
        }
    }
    assert_int_equal(names, 1 + 2 * 2); // the process; name and order of each track
    assert_int_equal(forward, 2);
    assert_in_range(spans, 2 + 2, 2 + 6); // spans shorter than a clock tick are dropped
    cJSON_Delete(root);
    free(text);
    free(path);
}

static void test_trace_null_records_nothing(void **state) {
    (void)state;
    assert_int_equal(trace_track(NULL, "main", 10), 0);
    trace_span(NULL, 0, "x", -1, 1, 2);
    assert_int_equal(trace_write(NULL, "/nowhere/at/all", NULL), 0);
    trace_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_keeps_the_first),
        cmocka_unit_test(test_error_long_messages_are_cut),
        cmocka_unit_test_setup_teardown(test_process_ends_at_once, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(test_a_failed_check_says_where),
        cmocka_unit_test_setup_teardown(test_file_replaces_whole, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_file_abandon_changes_nothing, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_file_disk_full, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_file_refuses_what_is_no_file, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_file_make_folder, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(test_rng_known_answers),
        cmocka_unit_test(test_clock_in_seconds),
        cmocka_unit_test(test_machine_reads_a_line),
        cmocka_unit_test(test_machine_has_a_name),
        cmocka_unit_test(test_rng_streams_are_apart),
        cmocka_unit_test(test_rng_uniform_stays_below_high),
        cmocka_unit_test(test_rng_normal_moments),
        cmocka_unit_test(test_rng_below_hits_everything),
        cmocka_unit_test(test_json_reads_back),
        cmocka_unit_test(test_json_has_a_layout),
        cmocka_unit_test_setup_teardown(test_trace_parses_and_nests, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(test_trace_null_records_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
