/* test_log.c: lines on stderr and stdout, and the progress bar between them, at simulated times on
 * terminals of simulated widths.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define ERASE "\r\033[K"

static const uint64_t START_NS = 5000000000, MS = 1000000;
static uint64_t now_ns;

uint64_t __wrap_clock_ns(void);
uint64_t __wrap_clock_ns(void) {
    return now_ns;
}

// ---- what is printed ----------------------------------------------------------------------------

static FILE *captured;
static int kept_out, kept_err;

static void capture(void) {
    captured = tmpfile();
    assert_non_null(captured);
    fflush(NULL);
    kept_out = dup(STDOUT_FILENO);
    kept_err = dup(STDERR_FILENO);
    dup2(fileno(captured), STDOUT_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

static void expect(const char *wanted) {
    static char text[4096];
    fflush(NULL);
    dup2(kept_out, STDOUT_FILENO);
    dup2(kept_err, STDERR_FILENO);
    close(kept_out);
    close(kept_err);
    rewind(captured);
    text[fread(text, 1, sizeof text - 1, captured)] = '\0';
    fclose(captured);
    assert_string_equal(text, wanted);
}

static RunLog log_of_columns(const char *columns) {
    setenv("DDPRUN_COLUMNS", columns, 1);
    now_ns = START_NS;
    return log_open(false);
}

// ---- lines --------------------------------------------------------------------------------------

static void test_a_line_erases_the_bar(void **state) {
    (void)state;
    RunLog log = log_of_columns("30");
    capture();
    log_say(&log, "say %d", 1);
    log_data(&log, "data=%d", 2);
    log_progress(&log, 0, 9, "steps", 0);
    log_say(&log, "say %d", 3);
    log_progress(&log, 9, 9, "steps", 0);
    log_data(&log, "data=%d", 4);
    log_progress(&log, 0, 9, "steps", 0);
    log_close(&log);
    log_close(&log);
    log_close(NULL);
    assert_false(log.bar_drawn);
    expect("say 1\ndata=2\n" ERASE "steps 0/9 [>           ]   0%" ERASE "say 3\n" //
           ERASE "steps 9/9 [============] 100%" ERASE "data=4\n"                  //
           ERASE "steps 0/9 [>           ]   0%" ERASE);
}

static void test_lost_lines_are_told(void **state) {
    (void)state;
    Error err = {0}, earlier = {0};
    capture();
    const int out = dup(STDOUT_FILENO), full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    const int before = log_check_stdout(&err);
    dup2(full, STDOUT_FILENO);
    printf("a line");
    const int now = log_check_stdout(&err);
    dup2(out, STDOUT_FILENO);
    errno = EIO;
    const int later = log_check_stdout(&earlier); // an earlier write has failed
    clearerr(stdout);
    close(out);
    close(full);
    expect("");
    assert_int_equal(before, 0);
    assert_int_equal(now, -1);
    assert_string_equal(err.message, "lines on standard output were lost: No space left on device");
    assert_int_equal(err.status, STATUS_FAILED);
    assert_int_equal(later, -1);
}

static void test_a_quiet_log_prints_nothing(void **state) {
    (void)state;
    setenv("DDPRUN_COLUMNS", "80", 1);
    RunLog log = log_open(true);
    capture();
    log_say(&log, "say");
    log_data(&log, "data");
    log_progress(&log, 1, 2, "steps", 0);
    log_close(&log);
    expect("");
}

// ---- the bar ------------------------------------------------------------------------------------

static void test_who_sees_a_bar(void **state) {
    (void)state;
    static const struct {
        const char *columns;
        bool seen;
    } cases[] = {{"1", true},      {"9999", true}, {"0", false},
                 {"10000", false}, {"-5", false},  {"none", false}};
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY), kept = dup(STDERR_FILENO);
    capture();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("DDPRUN_COLUMNS", cases[i].columns, 1);
        assert_int_equal(log_open(false).bar_allowed, cases[i].seen);
        assert_false(log_open(true).bar_allowed);
    }
    unsetenv("DDPRUN_COLUMNS");
    assert_false(log_open(false).bar_allowed);
    if (terminal >= 0) { // stderr is a terminal
        assert_int_equal(grantpt(terminal) | unlockpt(terminal), 0);
        const int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
        assert_true(end >= 0);
        dup2(end, STDERR_FILENO);
        const bool allowed = log_open(false).bar_allowed;
        dup2(kept, STDERR_FILENO);
        close(end);
        close(terminal);
        assert_true(allowed);
    }
    close(kept);
    expect("");
}

static int terminal_columns; // of stderr; -1: not a terminal

int __wrap_ioctl(int fd, unsigned long request, struct winsize *size);
int __wrap_ioctl(int fd, unsigned long request, struct winsize *size) {
    assert_int_equal(fd, STDERR_FILENO);
    assert_int_equal(request, TIOCGWINSZ);
    if (terminal_columns < 0) return -1;
    *size = (struct winsize){.ws_row = 25, .ws_col = (unsigned short)terminal_columns};
    return 0;
}

typedef struct Drawing {
    const char *columns;
    size_t first, done, total; // the bar begins at `first`
    uint64_t ms;               // later, `done` are done
    double samples;
    const char *bar; // the drawing at that time
} Drawing;

static const Drawing drawings[] = {
    // Rate and remaining time.
    {"60", 0, 50, 100, 10000, 4, "steps 50/100 [======>      ]  50%  20 samples/s  00:10 left"},
    {"60", 0, 50, 100, 10000, 0, "steps 50/100 [=============>             ]  50%  00:10 left"},
    {"60", 40, 50, 100, 10000, 0, "steps 50/100 [=============>             ]  50%  00:50 left"},
    {"60", 50, 40, 100, 10000, 0, "steps 40/100 [===============>                      ]  40%"},
    {"60", 50, 50, 100, 10000, 0, "steps 50/100 [===================>                  ]  50%"},
    {"40", 0, 1, 2, 3599000, 0, "steps 1/2 [=====>    ]  50%  59:59 left"},
    {"40", 0, 1, 2, 3600000, 0, "steps 1/2 [====>   ]  50%  1:00:00 left"},
    {"40", 0, 1, 2, 3599499, 0, "steps 1/2 [=====>    ]  50%  59:59 left"},
    {"40", 0, 1, 2, 3599500, 0, "steps 1/2 [====>   ]  50%  1:00:00 left"},
    {"40", 0, 1, 2, 359998000, 0, "steps 1/2 [===>   ]  50%  99:59:58 left"},
    {"40", 0, 1, 2, 400000000, 0, "steps 1/2 [===>   ]  50%  99:59:59 left"},
    {"40", 0, 2, 359822, 2001, 0, "steps 2/359822    0%  99:59:59 left"}, // 359,999.9 s
    {"40", 0, 1, 4, 2000, 0, "steps 1/4 [==>       ]  25%  00:06 left"},  // below 1 a second
    // Width.
    {"200", 0, 1, 4, 1000, 0,
     "steps 1/4 [=========>                            ]  25%  00:03 left"},
    {"70", 0, 1, 4, 1000, 0, "steps 1/4 [=========>                            ]  25%  00:03 left"},
    {"69", 0, 1, 4, 1000, 0, "steps 1/4 [=========>                            ]  25%  00:03 left"},
    {"68", 0, 1, 4, 1000, 0, "steps 1/4 [=========>                            ]  25%  00:03 left"},
    {"71", 0, 1, 4, 1000, 0, "steps 1/4 [=========>                            ]  25%  00:03 left"},
    {"35", 0, 1, 4, 1000, 0, "steps 1/4 [=>   ]  25%  00:03 left"},
    {"34", 0, 1, 4, 1000, 0, "steps 1/4 [=>  ]  25%  00:03 left"},
    {"33", 0, 1, 4, 1000, 0, "steps 1/4 [>  ]  25%  00:03 left"},
    {"32", 0, 1, 4, 1000, 0, "steps 1/4   25%  00:03 left"},
    {"20", 0, 1, 4, 1000, 0, "steps 1/4   25%  00:03 left"},
    {"70", 0, 4, 4, 1000, 0, "steps 4/4 [======================================] 100%  00:00 left"},
    {"69", 0, 4, 4, 1000, 0, "steps 4/4 [======================================] 100%  00:00 left"},
};

static void test_drawings(void **state) {
    (void)state;
    terminal_columns = -1;
    for (size_t i = 0; i < sizeof drawings / sizeof *drawings; i++) {
        const Drawing *d = &drawings[i];
        char wanted[200];
        RunLog log = log_of_columns(d->columns);
        capture();
        log_progress(&log, d->first, d->total, "steps", d->samples);
        fflush(NULL);
        assert_true(ftruncate(fileno(captured), 0) == 0 &&
                    lseek(fileno(captured), 0, SEEK_SET) == 0);
        now_ns += d->ms * MS;
        log_progress(&log, d->done, d->total, "steps", d->samples);
        snprintf(wanted, sizeof wanted, ERASE "%s", d->bar);
        expect(wanted);
    }
}

// The width is the terminal's own, else the launcher's, else 80 columns.
static void test_whose_width(void **state) {
    (void)state;
    static const struct {
        int terminal;
        const char *launcher; // DDPRUN_COLUMNS; NULL: unset
        const char *bar;
    } cases[] = {
        {1, "60", "1/2   50%"},
        {20, "60", "1/2 [===>   ]  50%"},
        {0, "20", "1/2 [===>   ]  50%"}, // unknown to the terminal
        {-1, "20", "1/2 [===>   ]  50%"},
        {-1, NULL, "1/2 [===================>                  ]  50%"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[100];
        RunLog log = log_of_columns("60");
        log.bar_start_ns = now_ns; // not the first drawing
        terminal_columns = cases[i].terminal;
        setenv("DDPRUN_COLUMNS", cases[i].launcher ? cases[i].launcher : "", 1);
        capture();
        log_progress(&log, 1, 2, "", 0);
        snprintf(wanted, sizeof wanted, ERASE " %s", cases[i].bar);
        expect(wanted);
    }
}

// Drawn at most ten times a second, and always at the end; afterwards a new bar begins.
static void test_when_it_is_drawn(void **state) {
    (void)state;
    static const struct {
        size_t done, total;
        uint64_t at_ms;
        bool drawn;
    } cases[] = {
        {0, 0, 0, false},   {5, 4, 0, false},    {0, 4, 0, true},    {1, 4, 99, false},
        {1, 4, 100, true},  {2, 4, 199, false},  {2, 4, 1000, true}, {4, 4, 1001, true},
        {0, 4, 1002, true}, {1, 4, 1003, false}, {4, 4, 1003, true},
    };
    RunLog log = log_of_columns("80");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        log.bar_drawn = false;
        now_ns = START_NS + cases[i].at_ms * MS;
        capture();
        log_progress(&log, cases[i].done, cases[i].total, "steps", 0);
        const bool drawn = log.bar_drawn;
        fflush(NULL);
        assert_true(ftruncate(fileno(captured), 0) == 0 &&
                    lseek(fileno(captured), 0, SEEK_SET) == 0);
        expect("");
        assert_int_equal(drawn, cases[i].drawn);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_erases_the_bar),
        cmocka_unit_test(test_lost_lines_are_told),
        cmocka_unit_test(test_a_quiet_log_prints_nothing),
        cmocka_unit_test(test_who_sees_a_bar),
        cmocka_unit_test(test_drawings),
        cmocka_unit_test(test_whose_width),
        cmocka_unit_test(test_when_it_is_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
