/* console.h: ddprun's stdout or stderr: whole lines of several writers, and below them on a
 * terminal a progress bar. Nothing here blocks: bytes that the descriptor does not accept stay
 * queued.
 */
#ifndef DDP_LAUNCH_CONSOLE_H
#define DDP_LAUNCH_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

enum { BAR_MAX = 512 }; // bytes of its text

// The last line of the terminal, redrawn on change. stdout and stderr may be the same terminal:
// both consoles share one bar, and either erases it before it writes a line.
typedef struct Bar {
    char text[BAR_MAX];
    size_t bytes; // 0: no bar
    bool drawn;
    struct Console *unfinished; // the stream whose last line has no newline yet; NULL: none
} Bar;

// A queue of bytes: data[begin] to data[end - 1].
typedef struct Bytes {
    char *data; // the owner frees it
    size_t begin, end, capacity;
} Bytes;

void bytes_push(Bytes *bytes, const char *data, size_t count);
static inline size_t bytes_count(const Bytes *bytes) {
    return bytes->end - bytes->begin;
}

typedef struct Console {
    int fd;
    bool terminal;
    bool gone; // the reader has closed it: output is dropped
    int error; // errno of a failed write, except EPIPE; 0: none
    Bytes queue;
    const void *writer; // writer of the unfinished last line; NULL: all lines are whole
    Bar *bar;           // shared with the other console; the output owns it
} Console;

int console_columns(const Console *console); // of the terminal; 0: not a terminal

// Queues bytes of `writer`, with the prefix unless they continue its unfinished line. Another
// writer's unfinished line is ended first, on a terminal that of the other console, too.
void console_write(Console *console, const void *writer, const char *prefix, const char *data,
                   size_t bytes);
// Replaces the bar's text; leading '\r' and erase sequences are dropped.
void console_set_bar(Console *console, const char *text, size_t bytes);
// Draws the bar if it was erased.
void console_draw_bar(Console *console);
// Removes the bar until the next console_set_bar.
void console_clear_bar(Console *console);
// Writes as many queued bytes as the descriptor accepts without blocking.
void console_pump(Console *console);

#endif
