/* console.c: see console.h.
 *
 * Writes have at most PIPE_BUF bytes and follow a poll for POLLOUT: only such a write to a pipe is
 * guaranteed not to block. (O_NONBLOCK would change the descriptor for every process that shares
 * it, the user's shell included.)
 */
#include "ddp/launch/console.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/memory.h"

static const char ERASE_LINE[] = "\r\033[K"; // go to the first column, erase from there

int console_columns(const Console *console) {
    struct winsize size;
    if (!console->terminal) return 0;
    bool known = ioctl(console->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

// ---- The queue

void bytes_push(Bytes *bytes, const char *data, size_t count) {
    if (bytes->end + count > bytes->capacity && bytes->begin > 0) {
        memmove(bytes->data, bytes->data + bytes->begin, bytes_count(bytes));
        bytes->end -= bytes->begin;
        bytes->begin = 0;
    }
    if (bytes->end + count > bytes->capacity) {
        bytes->capacity = 2 * (bytes->end + count);
        bytes->data = memory_grow(bytes->data, bytes->capacity, 1);
    }
    memcpy(bytes->data + bytes->end, data, count);
    bytes->end += count;
}

static void console_push(Console *console, const char *text, size_t bytes) {
    if (!console->gone && bytes > 0) bytes_push(&console->queue, text, bytes);
}

void console_pump(Console *console) {
    struct pollfd ready = {.fd = console->fd, .events = POLLOUT};
    Bytes *queue = &console->queue;
    while (bytes_count(queue) > 0 && poll(&ready, 1, 0) > 0) {
        size_t bytes = bytes_count(queue);
        ssize_t n =
            write(console->fd, queue->data + queue->begin, bytes < PIPE_BUF ? bytes : PIPE_BUF);
        if (n > 0) {
            queue->begin += (size_t)n;
        } else if (errno != EINTR && errno != EAGAIN) {
            console->gone = true;
            console->error = errno == EPIPE ? 0 : errno;
            queue->begin = queue->end = 0;
        }
    }
}

// ---- Lines and the bar

static void erase_bar(Console *console) {
    if (!console->terminal || !console->bar->drawn) return;
    console_push(console, ERASE_LINE, strlen(ERASE_LINE));
    console->bar->drawn = false;
}

// Ends the unfinished line of the other console of this terminal.
static void end_line_of_other(Console *console) {
    Console *other = console->bar->unfinished;
    if (!console->terminal || !other || other == console) return;
    console_push(console, "\n", 1);
    other->writer = NULL;
}

void console_write(Console *console, const void *writer, const char *prefix, const char *data,
                   size_t bytes) {
    if (bytes == 0) return;
    erase_bar(console);
    end_line_of_other(console);
    if (console->writer && console->writer != writer) console_push(console, "\n", 1);
    if (console->writer != writer) console_push(console, prefix, strlen(prefix));
    console_push(console, data, bytes);
    console->writer = data[bytes - 1] == '\n' ? NULL : writer;
    if (console->terminal) console->bar->unfinished = console->writer ? console : NULL;
}

void console_draw_bar(Console *console) {
    const Bar *bar = console->bar;
    if (bar->drawn || bar->bytes == 0 || bar->unfinished) return;
    console_push(console, ERASE_LINE, strlen(ERASE_LINE));
    console_push(console, bar->text, bar->bytes);
    console->bar->drawn = true;
}

void console_clear_bar(Console *console) {
    erase_bar(console);
    console->bar->bytes = 0;
}

void console_set_bar(Console *console, const char *text, size_t bytes) {
    size_t skipped = 0; // the text may itself go back and erase
    while (skipped < bytes && text[skipped] == '\r') skipped++;
    if (bytes - skipped >= 3 && memcmp(text + skipped, "\033[K", 3) == 0) skipped += 3;
    text += skipped;
    bytes -= skipped;
    Bar *bar = console->bar;
    if (bytes == 0) console_clear_bar(console);
    if (bytes == 0 || bytes > BAR_MAX || bar->unfinished) return;
    if (bytes == bar->bytes && memcmp(text, bar->text, bytes) == 0) return;
    memcpy(bar->text, text, bytes);
    bar->bytes = bytes;
    bar->drawn = false;
    console_draw_bar(console);
}
