/* test_trace.c: a communicator's events in a timeline, and the merge of several processes'
 * timelines. (Nested spans and valid JSON: test_base.c. The programs' traces: traces.sh.)
 */
#include "tests/rigs/files.h"

#include <cjson/cJSON.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "common/base/trace.h"
#include "tests/rigs/temp_folder.h"

static cJSON *read_trace(const char *path) {
    size_t bytes;
    char *text = read_whole(path, &bytes);
    cJSON *root = cJSON_ParseWithLength(text, bytes);
    assert_non_null(root);
    free(text);
    return root;
}

static double number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItem(object, name);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", name);
    return item->valuedouble;
}

// Returns the nth event of phase `ph` of a process.
static const cJSON *find_event(const cJSON *root, const char *ph, int pid, int nth) {
    const cJSON *event;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents")) {
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItem(event, "ph"));
        if (strcmp(kind, ph) == 0 && number(event, "pid") == pid && nth-- == 0) return event;
    }
    fail_msg("no event %s of %d", ph, pid);
    return NULL;
}

// Writes a trace with one long span on the main track and two buckets on a communicator's track.
static void write_trace(const char *path, int pid, uint64_t at_ns) {
    Error err = {0};
    Trace *trace = trace_open(pid, "ddp");
    trace_mark(trace);
    int main_track = trace_track(trace, "main", 4), comm = trace_track(trace, "comm", 4);
    trace_span(trace, main_track, "backward", 7, at_ns, at_ns + 900000);
    for (int b = 0; b < 2; b++)
        trace_add(trace, comm,
                  &(TraceSpan){.name = "all_reduce",
                               .number = 40 + b,
                               .begin_ns = at_ns + 200000 + 300000 * (uint64_t)b,
                               .end_ns = at_ns + 400000 + 300000 * (uint64_t)b,
                               .bytes = 1000 * (uint64_t)(b + 1),
                               .bucket = b,
                               .ready_ns = at_ns + 100000 + 300000 * (uint64_t)b});
    trace_mark(trace);
    assert_int_equal(trace_write(trace, path, &err), 0);
    trace_close(trace);
}

#define FILE_FORMAT                                                                   \
    "{\n"                                                                             \
    "  \"displayTimeUnit\": \"ms\",\n"                                                \
    "  \"otherData\": {\n"                                                            \
    "    \"dropped_spans\": 1,\n"                                                     \
    "    \"clock\": \"%s\",\n"                                                        \
    "    \"marks_us\": []\n"                                                          \
    "  },\n"                                                                          \
    "  \"traceEvents\": [\n"                                                          \
    "    {\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 5, \"tid\": 0, "        \
    "\"args\": {\"name\": \"ddp\"}},\n"                                               \
    "    {\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 5, \"tid\": 0, "         \
    "\"args\": {\"name\": \"main\"}},\n"                                              \
    "    {\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": 5, \"tid\": 0, "   \
    "\"args\": {\"sort_index\": 0}},\n"                                               \
    "    {\"ph\": \"X\", \"name\": \"number\", \"pid\": 5, \"tid\": 0, \"ts\": 1.5, " \
    "\"dur\": 1.5, \"args\": {\"number\": 0}},\n"                                     \
    "    {\"ph\": \"X\", \"name\": \"bucket\", \"pid\": 5, \"tid\": 0, \"ts\": 4, "   \
    "\"dur\": 0, \"args\": {\"bucket\": 0}},\n"                                       \
    "    {\"ph\": \"X\", \"name\": \"bytes\", \"pid\": 5, \"tid\": 0, \"ts\": 9, "    \
    "\"dur\": 0, \"args\": {\"bytes\": 1}},\n"                                        \
    "    {\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 5, \"tid\": 1, "         \
    "\"args\": {\"name\": \"comm\"}},\n"                                              \
    "    {\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": 5, \"tid\": 1, "   \
    "\"args\": {\"sort_index\": 1}},\n"                                               \
    "    {\"ph\": \"X\", \"name\": \"sum\", \"pid\": 5, \"tid\": 1, \"ts\": 7, "      \
    "\"dur\": 2, \"args\": {\"number\": 6, \"bucket\": 2, \"bytes\": 8}},\n"          \
    "    {\"ph\": \"i\", \"name\": \"bucket is ready\", \"pid\": 5, \"tid\": 0, "     \
    "\"ts\": 5, \"s\": \"t\", \"args\": {\"bucket\": 2}},\n"                          \
    "    {\"ph\": \"s\", \"name\": \"bucket\", \"pid\": 5, \"tid\": 0, \"ts\": 5, "   \
    "\"cat\": \"bucket\", \"id\": 21474836480},\n"                                    \
    "    {\"ph\": \"f\", \"name\": \"bucket\", \"pid\": 5, \"tid\": 1, \"ts\": 7, "   \
    "\"cat\": \"bucket\", \"id\": 21474836480, \"bp\": \"e\"}\n"                      \
    "  ]\n"                                                                           \
    "}"

// The complete file, for spans with and without each argument.
static void test_the_whole_file(void **state) {
    Error err = {0};
    char *path = temp_folder_path(state, "trace.json"), clock[64], wanted[4096];
    size_t bytes;
    Trace *trace = trace_open(5, "ddp");
    const int first = trace_track(trace, "main", 3), second = trace_track(trace, "comm", 1);
    trace_span(trace, first, "number", 0, 1500, 3000);
    trace_add(trace, first, &(TraceSpan){"bucket", -1, 4000, 4000, 0, 0, 0});
    trace_add(trace, first, &(TraceSpan){"bytes", -1, 9000, 8000, 1, -1, 0});
    trace_add(trace, second, &(TraceSpan){"sum", 6, 7000, 9000, 8, 2, 5000});
    trace_span(trace, second, "too many", 1, 9000, 9001);
    assert_int_equal(trace_write(trace, path, &err), 0);
    trace_close(trace);
    machine_boot_id(clock, sizeof clock);
    snprintf(wanted, sizeof wanted, FILE_FORMAT, clock);
    char *text = read_whole(path, &bytes);
    text[bytes - 1] = '\0';
    assert_string_equal(text, wanted);
    free(text);
    free(path);
}

// An arrow (flow event) leads from the time when a bucket was ready, on the main track, to its
// all-reduce.
static void test_arrows_to_buckets(void **state) {
    char *path = temp_folder_path(state, "trace.json");
    write_trace(path, 2, 5000000);
    cJSON *root = read_trace(path);
    double ids[2];
    for (int b = 0; b < 2; b++) {
        const cJSON *span = find_event(root, "X", 2, 1 + b), *from = find_event(root, "s", 2, b);
        const cJSON *to = find_event(root, "f", 2, b), *ready = find_event(root, "i", 2, b);
        const cJSON *args = cJSON_GetObjectItem(span, "args");
        assert_true(number(args, "bucket") == b && number(args, "bytes") == 1000 * (b + 1));
        assert_true(number(args, "number") == 40 + b);
        assert_true(number(cJSON_GetObjectItem(ready, "args"), "bucket") == b);
        assert_true(number(from, "ts") == 5100 + 300 * b && number(from, "tid") == 0);
        assert_true(number(ready, "ts") == number(from, "ts") && number(ready, "tid") == 0);
        assert_true(number(to, "ts") == number(span, "ts") && number(to, "tid") == 1);
        assert_true(number(from, "id") == number(to, "id"));
        ids[b] = number(from, "id");
    }
    assert_true(ids[0] != ids[1]);
    cJSON_Delete(root);
    free(path);
}

static void test_merge_of_one_machine(void **state) {
    Error err = {0};
    char *path = temp_folder_path(state, "trace.json");
    for (int rank = 0; rank < 3; rank++) {
        char *part = trace_part(path, rank);
        write_trace(part, rank, 5000000 + 1000000 * (uint64_t)rank);
        free(part);
    }
    assert_int_equal(trace_merge_ranks(path, 3, &err), 0);
    assert_int_equal(count_files(*state, "trace.json"), 1); // the ranks' files were removed
    cJSON *root = read_trace(path);
    for (int rank = 0; rank < 3; rank++) // all clocks agree: times are unchanged
        assert_true(number(find_event(root, "X", rank, 0), "ts") == 5000 + 1000 * rank);
    assert_true(number(find_event(root, "s", 1, 0), "id") !=
                number(find_event(root, "s", 2, 0), "id"));
    cJSON_Delete(root);
    assert_int_equal(trace_merge_ranks(path, 5, &err), 4); // returns the missing ranks
    free(path);
}

#define TRACE(clock, marks, ts)                                                               \
    "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\", \"pid\": 1, \"tid\": 0, \"ts\": " ts \
    ", \"dur\": 2}], \"otherData\": {\"dropped_spans\": 3, \"clock\": \"" clock               \
    "\", \"marks_us\": [" marks "]}}"

// The times of trace_mark, in the order of the calls, are in the file, in microseconds.
static void test_marks_are_times(void **state) {
    char *path = temp_folder_path(state, "marked");
    const double before = (double)clock_ns() / 1e3;
    write_trace(path, 0, 5000000);
    const double after = (double)clock_ns() / 1e3;
    cJSON *root = read_trace(path);
    const cJSON *marks = cJSON_GetObjectItem(cJSON_GetObjectItem(root, "otherData"), "marks_us");
    assert_int_equal(cJSON_GetArraySize(marks), 2);
    const double first = cJSON_GetArrayItem(marks, 0)->valuedouble;
    const double second = cJSON_GetArrayItem(marks, 1)->valuedouble;
    assert_true(before <= first && first <= second && second <= after);
    cJSON_Delete(root);
    free(path);
}

// The other machine's clock started 9,000 us later and runs at half speed.
static void test_merge_of_two_machines(void **state) {
    static const char ONE[] = TRACE("here", "10000, 20000", "12000");
    static const char OTHER[] = TRACE("there", "1000, 6000", "3500");
    Error err = {0};
    char *one = temp_folder_path(state, "one"), *other = temp_folder_path(state, "other");
    char *both = temp_folder_path(state, "both");
    const char *files[] = {one, other};
    write_whole(one, ONE, strlen(ONE));
    write_whole(other, OTHER, strlen(OTHER));
    assert_int_equal(trace_merge(both, files, 2, &err), 0);
    cJSON *root = read_trace(both);
    assert_true(number(find_event(root, "X", 1, 0), "ts") == 12000);
    assert_true(number(find_event(root, "X", 1, 1), "ts") == 15000);
    assert_true(number(cJSON_GetObjectItem(root, "otherData"), "dropped_spans") == 6);
    cJSON_Delete(root);
    free(one);
    free(other);
    free(both);
}

// With one mark, or two equal ones, the clocks of two machines have the same rate.
static void test_merge_of_single_marks(void **state) {
    static const char ONE[] = TRACE("here", "10000, 20000", "12000");
    static const char SINGLE[] = TRACE("here", "10000", "12000");
    static const char OTHER[] = TRACE("there", "1000, 6000", "3500");
    static const char LONE[] = TRACE("there", "1000", "3500");
    static const char STILL[] = TRACE("there", "1000, 1000", "3500");
    static const char BACK[] = TRACE("there", "1000, 999", "3500");
    static const char *const pairs[][2] = {
        {SINGLE, OTHER}, {ONE, LONE}, {ONE, STILL}, {ONE, BACK}, {SINGLE, LONE}};
    char *one = temp_folder_path(state, "one"), *other = temp_folder_path(state, "other");
    char *both = temp_folder_path(state, "both");
    const char *files[] = {one, other};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        Error err = {0};
        write_whole(one, pairs[i][0], strlen(pairs[i][0]));
        write_whole(other, pairs[i][1], strlen(pairs[i][1]));
        assert_int_equal(trace_merge(both, files, 2, &err), 0);
        cJSON *root = read_trace(both);
        assert_true(number(find_event(root, "X", 1, 0), "ts") == 12000);
        assert_true(number(find_event(root, "X", 1, 1), "ts") == 12500);
        cJSON_Delete(root);
    }
    free(one);
    free(other);
    free(both);
}

// Counts of dropped spans are added up if they are valid numbers.
static void test_dropped_spans_add_up(void **state) {
    static const struct {
        const char *dropped;
        double sum;
    } cases[] = {{"1", 4}, {"0", 3}, {"-1", 3}, {"\"2\"", 3}, {"1e15", 3}, {"999", 1002}};
    static const char ONE[] = TRACE("here", "1, 2", "1");
    char *one = temp_folder_path(state, "one"), *other = temp_folder_path(state, "other");
    char *both = temp_folder_path(state, "both"), text[200];
    const char *files[] = {one, other};
    write_whole(one, ONE, strlen(ONE));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error err = {0};
        snprintf(
            text, sizeof text,
            "{\"traceEvents\": [], \"otherData\": {\"dropped_spans\": %s, \"clock\": \"here\", "
            "\"marks_us\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}}",
            cases[i].dropped);
        write_whole(other, text, strlen(text));
        assert_int_equal(trace_merge(both, files, 2, &err), 0);
        cJSON *root = read_trace(both);
        const cJSON *about = cJSON_GetObjectItem(root, "otherData");
        assert_true(number(about, "dropped_spans") == cases[i].sum);
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(about, "clock")), "here");
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(about, "marks_us")), 2);
        cJSON_Delete(root);
    }
    Error err = {0};
    assert_int_equal(trace_merge("no such folder/both", files, 2, &err), -1);
    assert_non_null(strstr(err.message, "cannot write no such folder/both: "));
    free(one);
    free(other);
    free(both);
}

// If a rank's file is not a trace, nothing is merged and no file is removed.
static void test_a_failed_merge_keeps_the_files(void **state) {
    Error err = {0};
    char *path = temp_folder_path(state, "trace.json"), *part = trace_part(path, 2);
    char *first = trace_part(path, 1);
    write_trace(path, 0, 5000000);
    write_trace(first, 1, 6000000);
    write_whole(part, "{}", 2);
    assert_int_equal(trace_merge_ranks(path, 4, &err), -1);
    assert_non_null(strstr(err.message, "trace.json.rank2: is no trace"));
    assert_int_equal(count_files(*state, "trace.json"), 3);
    cJSON_Delete(read_trace(first));
    free(path);
    free(part);
    free(first);
}

static void test_merge_refuses(void **state) {
    static const char ONE[] = TRACE("here", "1, 2", "1"), NO_MARKS[] = TRACE("there", "", "1");
    char *one = temp_folder_path(state, "one"), *other = temp_folder_path(state, "other");
    const char *files[] = {one, other};
    const char *const words[] = {"No such file", "is no trace", "is no trace", "has no marks"};
    const char *const texts[] = {NULL, "", "{\"traceEvents\": 3}", NO_MARKS};
    for (size_t i = 0; i < 4; i++) {
        Error err = {0};
        write_whole(one, ONE, strlen(ONE));
        if (texts[i]) write_whole(other, texts[i], strlen(texts[i]));
        assert_int_equal(trace_merge(one, files, 2, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        if (!strstr(err.message, words[i])) fail_msg("\"%s\"", err.message);
        cJSON_Delete(read_trace(one)); // unchanged
    }
    free(one);
    free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_whole_file, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_arrows_to_buckets, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_merge_of_one_machine, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_merge_of_two_machines, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_marks_are_times, temp_folder_make, temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_merge_of_single_marks, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_a_failed_merge_keeps_the_files, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_dropped_spans_add_up, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(test_merge_refuses, temp_folder_make, temp_folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
