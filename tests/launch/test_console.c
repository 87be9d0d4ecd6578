/* test_console.c: a console (ddp/launch/console.h): lines of several writers, the progress bar
 * below them, failing writes.
 */
#include "tests/rigs/screen.h"

#include <fcntl.h>
#include <sys/ioctl.h>

static void test_queue(void **state) {
    (void)state;
    Bytes bytes = {0};
    bytes_push(&bytes, "0123456789", 10);
    assert_int_equal(bytes_count(&bytes), 10);
    assert_int_equal(bytes.capacity, 20);
    bytes_push(&bytes, "abcdefghij", 10); // fills the buffer
    assert_int_equal(bytes.capacity, 20);
    bytes.begin = 5;
    bytes_push(&bytes, "ABCDE", 5); // reuses the space of five consumed bytes
    assert_int_equal(bytes.capacity, 20);
    assert_memory_equal(bytes.data + bytes.begin, "56789abcdefghijABCDE", 20);
    bytes.begin = 1;
    bytes_push(&bytes, "xy", 2);
    assert_int_equal(bytes_count(&bytes), 21);
    assert_int_equal(bytes.capacity, 42);
    assert_memory_equal(bytes.data + bytes.begin, "6789abcdefghijABCDExy", 21);
    free(bytes.data);
}

// A writer's unfinished line is ended before another writer's text.
static void test_writers(void **state) {
    (void)state;
    int one, two;
    Bar bar = {.bytes = 0};
    Console console = {.fd = 1, .bar = &bar};
    screen_begin(false);
    const struct {
        const void *writer;
        const char *text, *shown;
    } steps[] = {{&one, "one\n", "[1]: one\n"}, {&one, "a\nb\n", "[1]: a\nb\n"},
                 {&one, "part", "[1]: part"},   {&two, "", ""},
                 {&one, "ial ", "ial "},        {&one, "line\n", "line\n"},
                 {&one, "x", "[1]: x"},         {&two, "y", "\n[2]: y"},
                 {&one, "z\n", "\n[1]: z\n"},   {&two, "\n", "[2]: \n"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        const char *prefix = steps[i].writer == &one ? "[1]: " : "[2]: ";
        console_write(&console, steps[i].writer, prefix, steps[i].text, strlen(steps[i].text));
        console_pump(&console);
        shows(1, steps[i].shown);
    }
    free(console.queue.data);
}

static void set_bar(Console *console, const char *text, const char *shown) {
    console_set_bar(console, text, strlen(text));
    console_pump(console);
    shows(console->fd, shown);
}

static void write_line(Console *console, const char *text, const char *shown) {
    console_write(console, console, "", text, strlen(text));
    console_pump(console);
    shows(console->fd, shown);
}

static void draw_bar(Console *console, const char *shown) {
    console_draw_bar(console);
    console_pump(console);
    shows(console->fd, shown);
}

// If both streams are one terminal, stderr's unfinished line is ended before stdout's text, and
// stderr continues with its prefix.
static void test_unfinished_beside_the_other(void **state) {
    (void)state;
    for (int terminal = 0; terminal <= 1; terminal++) {
        Bar bar = {.bytes = 0};
        Console out = {.fd = 1, .terminal = terminal, .bar = &bar};
        Console err = {.fd = 2, .terminal = true, .bar = &bar};
        screen_begin(terminal);
        console_write(&err, &err, "[1]: ", "half", 4);
        console_pump(&err);
        shows(2, "[1]: half");
        set_bar(&err, "\rbar", ""); // not drawn over the unfinished line
        write_line(&out, "line\n", terminal ? "\nline\n" : "line\n");
        console_write(&err, &err, "[1]: ", "more\n", 5);
        console_pump(&err);
        shows(2, terminal ? "[1]: more\n" : "more\n");
        set_bar(&err, "\rbar", ERASE "bar");
        free(out.queue.data);
        free(err.queue.data);
    }
}

// One bar below the lines of stdout and stderr, which are the same terminal.
static void test_bar(void **state) {
    (void)state;
    Bar bar = {.bytes = 0};
    Console out = {.fd = 1, .terminal = true, .bar = &bar};
    Console err = {.fd = 2, .terminal = true, .bar = &bar};
    screen_begin(true);
    draw_bar(&err, ""); // no bar is set
    set_bar(&err, "\rhalf", ERASE "half");
    set_bar(&err, "\r\r\033[Khalf", ""); // unchanged: not redrawn
    set_bar(&err, "half", "");
    set_bar(&err, "\rhalt", ERASE "halt");
    set_bar(&err, "\rhal", ERASE "hal"); // shorter
    draw_bar(&err, "");
    write_line(&out, "line\n", ERASE "line\n"); // both consoles erase it
    write_line(&out, "line\n", "line\n");
    draw_bar(&err, ERASE "hal");
    write_line(&err, "unfinished", ERASE "unfinished");
    draw_bar(&err, ""); // not within a line
    set_bar(&err, "\rother", "");
    write_line(&err, "\n", "\n");
    draw_bar(&err, ERASE "hal");
    set_bar(&err, "\r", ERASE); // an empty bar
    draw_bar(&err, "");
    set_bar(&err, "\rhal", ERASE "hal"); // set again
    set_bar(&err, "\033[K", ERASE);
    set_bar(&err, "\rhal", ERASE "hal");
    console_clear_bar(&err);
    console_pump(&err);
    shows(2, ERASE);
    write_line(&err, "", ""); // no text
    draw_bar(&err, "");
    set_bar(&err, "\rx", ERASE "x");
    console_set_bar(&err, "\r\r#", 1); // "\r" only: an empty bar
    console_pump(&err);
    shows(2, ERASE);
    set_bar(&err, "\r\033[31mred", ERASE "\033[31mred"); // another sequence than ERASE's
    console_set_bar(&err, "\r\033[K", 3);
    console_pump(&err);
    shows(2, ERASE "\033[");
    console_set_bar(&err, "\033[3", 2); // unchanged
    console_clear_bar(&err);
    console_pump(&err);
    shows(2, ERASE);
    console_set_bar(&err, "\033[K", 2); // incomplete sequence: bytes after the 2 must not be read
    console_pump(&err);
    shows(2, ERASE "\033[");
    free(out.queue.data);
    free(err.queue.data);
}

static void test_longest_bar(void **state) {
    (void)state;
    char text[BAR_MAX + 3], shown[BAR_MAX + 8];
    Bar bar = {.bytes = 0};
    Console console = {.fd = 2, .terminal = true, .bar = &bar};
    screen_begin(true);
    memset(text, '=', sizeof text);
    text[0] = '\r';
    text[1 + BAR_MAX] = '\0';
    snprintf(shown, sizeof shown, ERASE "%s", text + 1);
    set_bar(&console, text, shown);
    text[1] = '#';
    text[1 + BAR_MAX] = '=';
    text[2 + BAR_MAX] = '\0';
    set_bar(&console, text, "");
    free(console.queue.data);
}

// A bar on a terminal is not erased by another console's lines if that is a pipe or a file.
static void test_bar_beside_a_file(void **state) {
    (void)state;
    Bar bar = {.bytes = 0};
    Console file = {.fd = 1, .bar = &bar}, err = {.fd = 2, .terminal = true, .bar = &bar};
    screen_begin(true);
    set_bar(&err, "\rhalf", ERASE "half");
    write_line(&file, "line\n", "line\n");
    write_line(&err, "line\n", ERASE "line\n");
    free(file.queue.data);
    free(err.queue.data);
}

static void test_columns(void **state) {
    (void)state;
    int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    Console console = {.fd = fd, .terminal = true};
    assert_true(fd >= 0);
    for (unsigned short columns = 0; columns <= 2; columns++) {
        struct winsize size = {.ws_row = 24, .ws_col = columns};
        assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
        assert_int_equal(console_columns(&console), columns > 0 ? columns : 80);
    }
    console.terminal = false;
    assert_int_equal(console_columns(&console), 0);
    close(fd);
    console.terminal = true;
    assert_int_equal(console_columns(&console), 80); // unknown width: the default
}

// Short, interrupted and blocking writes are continued; any other error ends the console, and later
// text is dropped.
static void test_pump(void **state) {
    (void)state;
    static const int ends[][2] = {{EPIPE, 0}, {ENOSPC, ENOSPC}, {EIO, EIO}};
    char *text = memory_zalloc(3 * PIPE_BUF + 11);
    memset(text, 'x', (size_t)3 * PIPE_BUF + 10);
    for (size_t i = 0; i < 3; i++) {
        Bar bar = {.bytes = 0};
        Console console = {.fd = 1, .bar = &bar};
        screen_begin(false);
        screen.accepts = false;
        write_line(&console, text, "");
        screen.accepts = true;
        screen.error[0] = EINTR;
        screen.error[1] = EAGAIN;
        console_pump(&console);
        shows(1, text);
        assert_int_equal(bytes_count(&console.queue), 0);
        assert_false(console.gone);
        screen.error[0] = ends[i][0];
        write_line(&console, text, "");
        assert_true(console.gone);
        assert_int_equal(console.error, ends[i][1]);
        assert_int_equal(bytes_count(&console.queue), 0);
        write_line(&console, "more\n", "");
        assert_int_equal(bytes_count(&console.queue), 0);
        free(console.queue.data);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_writers),
        cmocka_unit_test(test_unfinished_beside_the_other),
        cmocka_unit_test(test_bar),
        cmocka_unit_test(test_longest_bar),
        cmocka_unit_test(test_bar_beside_a_file),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_pump),
    };
    return cmocka_run_group_tests(tests, make_screen, free_screen);
}
