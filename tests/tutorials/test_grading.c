/* test_grading.c: a whole exercise: its checks in order, and what is printed of them.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tutorials/grading/grader.h"

#define ENDLESS                                                                              \
    "It did not end within 10 seconds: an endless loop, or a wait for something that never " \
    "arrives."

static void ends_are_said(void **state) {
    (void)state;
    static const struct {
        int status; // as from waitpid
        const char *sentence;
    } cases[] = {
        {SIGALRM, ENDLESS},
        {SIGXCPU, ENDLESS},
        {SIGSEGV, "It crashed (SIGSEGV): it read or wrote memory that is not its own."},
        {SIGFPE, "A whole number was divided by 0 (SIGFPE)."},
        {SIGKILL, "It was ended by signal 9 (Killed)."},
        // the status that tutorials/grade --asan sets
        {86 << 8, "A sanitizer ended it: below stands what it found, and where."},
        {3 << 8, "It ended the whole program with status 3; a function returns to its caller."},
        {0, "It ended the whole program with status 0; a function returns to its caller."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char sentence[SENTENCE_MAX];
        say_how_it_ended(sentence, cases[i].status);
        assert_string_equal(sentence, cases[i].sentence);
    }
}

// ---- a complete exercise ------------------------------------------------------------------------

static void pass(Grade *grade) {
    (void)grade;
    printf("said by a check\n");
}

static void miss_at_length(Grade *grade) {
    char text[2 * SENTENCE_MAX];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    grade_miss(grade, "%s", text);
}

static void play_and_miss_at_length(Grade *grade) {
    if (grade_plays(grade)) miss_at_length(grade);
}

static void end_the_judge(Grade *grade) {
    (void)grade;
    _exit(5);
}

// Returns the output of grader_run, owned by the caller. *all: whether all points were given.
static char *printed(const Grader *grader, bool as_json, bool *all) {
    FILE *file = tmpfile();
    int status = 0;
    assert_non_null(file);
    fflush(NULL);
    const pid_t child = fork(); // grader_run changes its process's state
    if (child == 0) {
        dup2(fileno(file), STDOUT_FILENO);
        close(STDERR_FILENO);
        const bool given = grader_run(grader, "no file", as_json);
        fflush(NULL);
        _exit(given);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    *all = WEXITSTATUS(status) == 1;
    char *text = calloc(1, 8192);
    assert_true(pread(fileno(file), text, 8191, 0) > 0);
    fclose(file);
    return text;
}

static void an_exercise_is_printed(void **state) {
    (void)state;
    const Grader grader = {"00-none/01-some",
                           {{"one", 2, NULL, pass},
                            {"two", 3, "one", miss_at_length},
                            {"three", 4, "two", pass},
                            {"four", 5, "one", pass},
                            {"five", 6, NULL, end_the_judge},
                            {"six", 7, NULL, play_and_miss_at_length}}};
    const Grader right = {"right", {{"one", 1, NULL, pass}, {"two", 2, "one", pass}}};
    char wanted[4096], xs[SENTENCE_MAX];
    bool all = true;
    memset(xs, 'x', sizeof xs - 1);
    xs[sizeof xs - 1] = '\0';
    assert_int_equal(grader_points(&grader), 27);
    snprintf(wanted, sizeof wanted,
             "00-none/01-some\n"
             "  PASS 2/2  one\n"
             "  MISS 0/3  two\n"
             "           %s\n"
             "  SKIP 0/4  three\n"
             "           Not tried, because \"two\" was missed.\n"
             "  PASS 5/5  four\n"
             "  MISS 0/6  five\n"
             "           It ended the whole program with status 5; a function returns to its "
             "caller.\n"
             "  MISS 0/7  six\n"
             "           %s\n"
             "Score 7/27\n",
             xs, xs);
    char *text = printed(&grader, false, &all);
    assert_string_equal(text, wanted);
    assert_false(all);
    free(text);
    snprintf(
        wanted, sizeof wanted,
        "{\n  \"exercise\": \"00-none/01-some\",\n  \"score\": 7,\n  \"points\": 27,\n"
        "  \"checks\": [\n"
        "    {\"name\": \"one\", \"points\": 2, \"result\": \"PASS\", \"sentence\": \"\"},\n"
        "    {\"name\": \"two\", \"points\": 3, \"result\": \"MISS\", \"sentence\": \"%s\"},\n"
        "    {\"name\": \"three\", \"points\": 4, \"result\": \"SKIP\", "
        "\"sentence\": \"Not tried, because \\\"two\\\" was missed.\"},\n"
        "    {\"name\": \"four\", \"points\": 5, \"result\": \"PASS\", \"sentence\": \"\"},\n"
        "    {\"name\": \"five\", \"points\": 6, \"result\": \"MISS\", \"sentence\": \"It ended "
        "the whole program with status 5; a function returns to its caller.\"},\n"
        "    {\"name\": \"six\", \"points\": 7, \"result\": \"MISS\", \"sentence\": \"%s\"}\n"
        "  ]\n}\n\n",
        xs, xs);
    text = printed(&grader, true, &all);
    assert_string_equal(text, wanted);
    assert_false(all);
    free(text);
    text = printed(&right, false, &all);
    assert_string_equal(text, "right\n  PASS 1/1  one\n  PASS 2/2  two\nScore 3/3\n");
    assert_true(all);
    free(text);
    text = printed(&right, true, &all);
    assert_string_equal(
        text, "{\n  \"exercise\": \"right\",\n  \"score\": 3,\n  \"points\": 3,\n  \"checks\": [\n"
              "    {\"name\": \"one\", \"points\": 1, \"result\": \"PASS\", \"sentence\": \"\"},\n"
              "    {\"name\": \"two\", \"points\": 2, \"result\": \"PASS\", \"sentence\": \"\"}\n  "
              "]\n}\n\n");
    assert_true(all);
    free(text);
}

static void miss_briefly(Grade *grade) {
    grade_miss(grade, "x");
}

static void the_shortest_is_printed(void **state) {
    (void)state;
    const Grader none = {"none", {{0}}}, one = {"one", {{"a check", 1, NULL, miss_briefly}}};
    bool all = true;
    char *text = printed(&one, false, &all);
    assert_string_equal(text, "one\n  MISS 0/1  a check\n           x\nScore 0/1\n");
    assert_false(all);
    free(text);
    text = printed(&none, false, &all);
    assert_string_equal(text, "none\nScore 0/0\n");
    free(text);
}

static void be_last(Grade *grade) {
    GRADE_EXPECT(grade, grade->last, "not the last");
}

static void be_before_the_last(Grade *grade) {
    GRADE_EXPECT(grade, !grade->last, "the last");
}

static void the_last_check_is_told(void **state) {
    (void)state;
    const Grader grader = {"three",
                           {{"one", 1, NULL, be_before_the_last},
                            {"two", 1, NULL, be_before_the_last},
                            {"three", 1, NULL, be_last}}};
    bool all = false;
    free(printed(&grader, false, &all));
    assert_true(all);
}

static void as_many_checks_as_fit_are_read(void **state) {
    (void)state;
    Grader graders[2] = {{"full", {{0}}}, {"behind it", {{"one", 1, NULL, pass}}}};
    for (int i = 0; i < GRADE_MOST_CHECKS; i++)
        graders[0].checks[i] = (GradeCheck){"a check", 1, NULL, pass};
    assert_int_equal(grader_points(graders), GRADE_MOST_CHECKS);
}

static char *room; // the exercise's shared folder

static void note_room(Grade *grade) {
    strcpy(room, grade_room(grade));
}

// A check may only need checks before it.
static void a_needed_check_stands_before(void **state) {
    (void)state;
    const Grader wrong[] = {
        {"later", {{"0", 1, NULL, note_room}, {"1", 1, "2", pass}, {"2", 2, NULL, pass}}},
        {"itself", {{"0", 1, NULL, note_room}, {"1", 1, "1", pass}}}};
    room = grade_shared(100);
    for (int i = 0; i < 2; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            close(STDOUT_FILENO);
            close(STDERR_FILENO);
            signal(SIGABRT, SIG_DFL);
            _exit(grader_run(&wrong[i], "no file", false));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        assert_int_equal(rmdir(room), 0);
    }
}

static void ulps_are_counted_across_zero(void **state) {
    (void)state;
    assert_int_equal(grade_ulps(1, 1), 0);
    assert_int_equal(grade_ulps(0.0f, -0.0f), 0);
    assert_int_equal(grade_ulps(-0.0f, 0.0f), 0);
    assert_int_equal(grade_ulps(1, 1.0f + 0x1p-22f), 2);
    assert_int_equal(grade_ulps(1.0f + 0x1p-22f, 1), 2);
    assert_int_equal(grade_ulps(0x1p-149f, -0x1p-148f), 3);
    assert_int_equal(grade_ulps(-0x1p-148f, 0x1p-149f), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_said),
        cmocka_unit_test(an_exercise_is_printed),
        cmocka_unit_test(the_shortest_is_printed),
        cmocka_unit_test(the_last_check_is_told),
        cmocka_unit_test(as_many_checks_as_fit_are_read),
        cmocka_unit_test(a_needed_check_stands_before),
        cmocka_unit_test(ulps_are_counted_across_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
