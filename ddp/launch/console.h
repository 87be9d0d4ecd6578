/* console.h: ddprun's own stdout or stderr, where lines of several writers arrive whole and one
 * after the other, and a progress bar below them on a terminal.
 *
 * Nothing here waits: what the console does not take stays in a queue.
 */
#ifndef DDP_LAUNCH_CONSOLE_H
#define DDP_LAUNCH_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

enum { BAR_MAX = 512 }; // bytes of what is drawn

// The last line of the terminal, which is drawn anew whenever it changes. stdout and stderr may be
// the same terminal, so they share one bar, and either takes it away before it writes a line.
typedef struct Bar {
    char text[BAR_MAX];
    size_t bytes; // 0: there is none
    bool drawn;
} Bar;

typedef struct Console {
    int fd;
    bool terminal;
    bool gone; // nobody reads it any more: what it would get is dropped
    int error; // what a write failed with, unless it was that nobody reads
    char *queue;
    size_t begin, end, capacity;
    const void *writer; // who wrote the unfinished line at the end; NULL: lines are whole
    Bar *bar;           // shared with the other console; the output owns it
} Console;

Console console_open(int fd, Bar *bar);
void console_close(Console *console);
size_t console_columns(const Console *console); // the terminal's width; 0 if it is no terminal

// Queues a piece of output; a prefix begins the line unless `writer` is in the middle of one.
void console_write(Console *console, const void *writer, const char *prefix, const char *data,
                   size_t bytes);
// Replaces the bar by what the text draws, which begins with '\r'.
void console_set_bar(Console *console, const char *text, size_t bytes);
// Draws the bar if something has taken it away.
void console_draw_bar(Console *console);
// Takes the bar away, until the next console_set_bar.
void console_clear_bar(Console *console);

size_t console_pending(const Console *console); // bytes that wait in the queue
// Writes what the descriptor takes now.
void console_pump(Console *console);

#endif
