/* test_verdict.c: a check's process as its supervisor sees it: the verdict's pieces, an end that is
 * too late or too early, the open files, the output. The C library's libm stands for the student's
 * file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tutorials/grading/grader.h"

static double hurry = 1; // divides a check's time limit

uint64_t __wrap_clock_ns_after(double seconds);
uint64_t __real_clock_ns_after(double seconds);

uint64_t __wrap_clock_ns_after(double seconds) {
    return __real_clock_ns_after(seconds == CHECK_SECONDS ? seconds / hurry : seconds);
}

static Outcome outcome_of(void (*run)(Grade *grade)) {
    const GradeCheck one = {"a check", 1, NULL, run};
    return supervise_check(&one, "libm.so.6", "/tmp", false);
}

static void expect(Outcome outcome, const char *wanted) {
    assert_string_equal(outcome.sentence, wanted);
    assert_int_equal(outcome.result, *wanted ? RESULT_MISS : RESULT_PASS);
}

// ---- the verdict --------------------------------------------------------------------------------

static size_t pieces[2]; // bytes of the verdict's pieces
static bool is_ended;    // by a 0

static void write_in_pieces(Grade *grade) {
    char text[2 * SENTENCE_MAX];
    const size_t all = pieces[0] + pieces[1];
    memset(text, 'x', sizeof text);
    if (is_ended) text[all - 1] = '\0';
    if (write(grade->verdict, text, pieces[0]) < 0) _exit(1);
    usleep(pieces[1] > 0 ? 20000 : 0);
    if (write(grade->verdict, text + pieces[0], pieces[1]) < 0) _exit(1);
    _exit(3);
}

// A verdict without its end, or longer than a sentence, is none.
static void a_verdict_may_come_in_pieces(void **state) {
    (void)state;
    enum { MOST = SENTENCE_MAX };
    static const char exited[] =
        "It ended the whole program with status 3; a function returns to its caller.";
    static const struct {
        size_t first, then;
        bool is_ended;
        size_t length; // of the sentence; MOST: `exited`
    } cases[] = {{1, 0, true, 0},
                 {2, 0, true, 1},
                 {1, 1, true, 1},
                 {MOST, 0, true, MOST - 1},
                 {MOST - 1, 1, true, MOST - 1},
                 {5, MOST - 5, true, MOST - 1},
                 {MOST, 1, true, MOST},
                 {MOST - 1, 9, true, MOST},
                 {2 * MOST, 0, true, MOST},
                 {MOST, 0, false, MOST},
                 {1, 0, false, MOST},
                 {0, 0, false, MOST}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char xs[MOST] = "";
        memset(xs, 'x', cases[i].length % MOST);
        pieces[0] = cases[i].first;
        pieces[1] = cases[i].then;
        is_ended = cases[i].is_ended;
        expect(outcome_of(write_in_pieces), cases[i].length == MOST ? exited : xs);
    }
}

// ---- the end ------------------------------------------------------------------------------------

static void hang(Grade *grade) {
    (void)grade;
    printf("before");
    fflush(NULL);
    for (;;) pause();
}

// Has passed, but does not end.
static void pass_and_hang(Grade *grade) {
    if (write(grade->verdict, "", 1) != 1) _exit(1);
    hang(grade);
}

static void hang_in_the_player(Grade *grade) {
    if (grade_plays(grade)) (void)STUDENT(grade, fabs)(1);
    if (grade_plays(grade)) hang(grade);
    grade_out(grade, NULL, 0);
}

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void an_endless_check_is_ended(void **state) {
    (void)state;
    static void (*const checks[])(Grade * grade) = {hang, pass_and_hang, hang_in_the_player};
    const int files = open_files();
    hurry = 100;
    for (int i = 0; i < 3; i++) {
        Outcome outcome = outcome_of(checks[i]);
        expect(outcome,
               "It did not end within 10 seconds: an endless loop, or a wait for something "
               "that never arrives.");
    }
    hurry = 1;
    assert_int_equal(open_files(), files);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0);
}

static int *escaped; // number of a process, shared

// Leaves a process that holds the output's pipe and that no supervisor adopts.
static void let_one_escape(Grade *grade) {
    if (fork() == 0) {
        close(grade->verdict);
        if (fork() != 0) _exit(0);
        setsid();
        *escaped = (int)getpid();
        alarm(100);
        for (;;) pause();
    }
    while (*escaped == 0) usleep(1000);
}

static void an_escaped_process_is_not_waited_for(void **state) {
    (void)state;
    escaped = grade_shared(sizeof *escaped);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    expect(outcome_of(let_one_escape), "");
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    assert_int_equal(kill(*escaped, SIGKILL), 0);
}

static int files_before;

// The verdict's pipe, and the transcript's; the player has the second alone.
static void count_files(Grade *grade) {
    GRADE_EXPECT(grade, open_files() == files_before + 1, "%d files in the judge", open_files());
    if (grade_plays(grade))
        GRADE_EXPECT(grade, open_files() == files_before + 1, "%d in the player", open_files());
    else
        GRADE_EXPECT(grade, open_files() == files_before + 2, "%d in the judge", open_files());
    grade_out(grade, NULL, 0);
}

static void only_own_pipes_are_open(void **state) {
    (void)state;
    files_before = open_files();
    expect(outcome_of(count_files), "");
    assert_int_equal(open_files(), files_before);
}

// ---- output -------------------------------------------------------------------------------------

// Returns the bytes that the user sees of a check, in text[most].
static size_t hear(void (*run)(Grade *grade), Result wanted, char *text, size_t most) {
    FILE *file = tmpfile();
    int status = 0;
    assert_non_null(file);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        dup2(fileno(file), STDERR_FILENO);
        _exit((int)outcome_of(run).result);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
    rewind(file);
    const size_t got = fread(text, 1, most, file);
    fclose(file);
    return got;
}

static char *text_of(size_t bytes) {
    char *text = malloc(bytes + 1);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) text[i] = (char)('a' + i % 26);
    return text;
}

static size_t loudness; // bytes to write

// Writes half of the bytes to standard output at once and the rest to standard error.
static void be_loud(Grade *grade) {
    char *text = text_of(loudness);
    const size_t half = loudness / 2, rest = loudness - half;
    GRADE_EXPECT(grade, write(STDOUT_FILENO, text, half) == (ssize_t)half, "not all was taken");
    GRADE_EXPECT(grade, write(STDERR_FILENO, text + half, rest) == (ssize_t)rest, "nor of this");
    free(text);
}

static void output_is_shown_up_to_a_limit(void **state) {
    (void)state;
    enum { LIMIT = 16384, ROOM = LIMIT + 100 };
    static const size_t sizes[] = {0, 1, 2, 1000, LIMIT - 1, LIMIT, LIMIT + 1, 200000};
    static char shown[ROOM];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        loudness = sizes[i];
        const size_t wanted = sizes[i] < LIMIT ? sizes[i] : LIMIT;
        char *text = text_of(wanted);
        const size_t got = hear(be_loud, RESULT_PASS, shown, sizeof shown);
        assert_true(got >= wanted);
        assert_memory_equal(shown, text, wanted);
        static const char note[] = "\n(output after the first 16384 bytes is not shown)\n";
        assert_int_equal(got - wanted, sizes[i] > LIMIT ? strlen(note) : 0);
        assert_memory_equal(shown + wanted, note, got - wanted);
        free(text);
    }
}

// Words without a line's end, which stay in stdio's buffers until these are flushed.
static void print_and_pass(Grade *grade) {
    printf("judge ");
    if (grade_plays(grade)) printf("player");
    grade_out(grade, NULL, 0);
}

static void print_and_miss(Grade *grade) {
    printf("judge");
    grade_miss(grade, "a miss");
}

static void print_and_miss_in_the_player(Grade *grade) {
    if (grade_plays(grade)) {
        printf("player ");
        grade_miss(grade, "a miss");
    }
    printf("judge");
    grade_out(grade, NULL, 0);
}

static void print_as_rank(GradeRank *me) {
    printf("rank");
    if (*(bool *)me->context) grade_miss(me->grade, "a miss");
}

static void print_in_a_rank(Grade *grade) {
    bool misses = false;
    printf("judge ");
    grade_ranks(grade, 1, print_as_rank, &misses);
}

static void print_and_miss_in_a_rank(Grade *grade) {
    bool misses = true;
    printf("judge ");
    grade_ranks(grade, 1, print_as_rank, &misses);
}

static void output_is_said_once(void **state) {
    (void)state;
    static const struct {
        void (*run)(Grade *grade);
        Result result;
        const char *output;
    } cases[] = {{print_and_pass, RESULT_PASS, "judge player"},
                 {print_and_miss, RESULT_MISS, "judge"},
                 {print_and_miss_in_the_player, RESULT_MISS, "player judge"},
                 {print_in_a_rank, RESULT_PASS, "judge rank"},
                 {print_and_miss_in_a_rank, RESULT_MISS, "judge rank"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100] = "";
        hear(cases[i].run, cases[i].result, text, sizeof text - 1);
        assert_string_equal(text, cases[i].output);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_may_come_in_pieces),
        cmocka_unit_test(an_endless_check_is_ended),
        cmocka_unit_test(an_escaped_process_is_not_waited_for),
        cmocka_unit_test(only_own_pipes_are_open),
        cmocka_unit_test(output_is_said_once),
        cmocka_unit_test(output_is_shown_up_to_a_limit),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); // as grader_run
    return cmocka_run_group_tests(tests, NULL, NULL);
}
