/* screen.h: captures ddprun's consoles, descriptors 1 and 2, in memory. write, poll and isatty are
 * wrapped (ld --wrap): writes to a console are appended to screen.text.
 */
#ifndef TESTS_RIGS_SCREEN_H
#define TESTS_RIGS_SCREEN_H

#include "tests/rigs/check.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "ddp/launch/console.h"

#define ERASE "\r\033[K"

enum { SAID_MAX = 6 << 20, SHORT = -1 };

static struct {
    bool begun;             // consoles are captured
    bool terminal, accepts; // both consoles are terminals; accept writes
    int error[8];           // errno of the next writes; SHORT: one byte is written; 0: none
    int polls;              // polls while the consoles accept nothing
    int longest_ms;         // the longest timeout of these polls
    char *text[3];          // [SAID_MAX + 1], of descriptors 1 and 2
    size_t bytes[3];
} screen;

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __real_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __real_isatty(int fd);
int __wrap_isatty(int fd);

ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
    const bool shown = screen.begun && (fd == 1 || fd == 2);
    const int error = screen.begun ? screen.error[0] : 0;
    if (error) memmove(screen.error, screen.error + 1, sizeof screen.error - sizeof error);
    errno = error;
    if (error == SHORT) bytes = 1;
    if (error > 0) return -1;
    if (!shown) return __real_write(fd, data, bytes);
    assert_in_range(bytes, 1, PIPE_BUF);
    assert_true(screen.bytes[fd] + bytes <= SAID_MAX);
    memcpy(screen.text[fd] + screen.bytes[fd], data, bytes);
    screen.bytes[fd] += bytes;
    return (ssize_t)bytes;
}

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms) {
    if (!screen.begun || entries[0].events != POLLOUT || entries[0].fd > 2)
        return __real_poll(entries, count, timeout_ms);
    for (nfds_t i = 0; i < count; i++) {
        assert_in_range(entries[i].fd, 1, 2);
        assert_int_equal(entries[i].events, POLLOUT);
    }
    assert_true(count > 0 && timeout_ms >= 0);
    if (screen.accepts) return 1;
    screen.polls++;
    if (timeout_ms > screen.longest_ms) screen.longest_ms = timeout_ms;
    return timeout_ms > 0 ? __real_poll(NULL, 0, timeout_ms) : 0;
}

int __wrap_isatty(int fd) {
    return screen.begun && (fd == 1 || fd == 2) ? screen.terminal : __real_isatty(fd);
}

static inline void screen_clear(void) {
    for (int fd = 1; fd <= 2; fd++) {
        memset(screen.text[fd], 0, screen.bytes[fd] + 1);
        screen.bytes[fd] = 0;
    }
}

static inline void screen_begin(bool terminal) {
    screen.begun = screen.accepts = true;
    screen.polls = screen.longest_ms = 0;
    screen.terminal = terminal;
    screen_clear();
}

// Asserts the output on descriptor `fd` since the last call.
static inline void shows(int fd, const char *text) {
    assert_string_equal(screen.text[fd], text);
    memset(screen.text[fd], 0, screen.bytes[fd]);
    screen.bytes[fd] = 0;
}

static inline int make_screen(void **state) {
    (void)state;
    for (int fd = 1; fd <= 2; fd++) screen.text[fd] = memory_zalloc(SAID_MAX + 1);
    return 0;
}

static inline int free_screen(void **state) {
    (void)state;
    screen.begun = false;
    for (int fd = 1; fd <= 2; fd++) free(screen.text[fd]);
    return 0;
}

#endif
