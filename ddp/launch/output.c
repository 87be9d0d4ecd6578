/* output.c: see output.h.
 *
 * A Stream is one pipe of one rank: it collects bytes until a line is whole. A Console is ddprun's
 * own stdout or stderr: a queue of bytes, written in pieces of at most PIPE_BUF after poll says
 * that there is room, because only then a write to a pipe is sure not to block. (Making the
 * descriptor non-blocking instead would change it for everyone who shares it, the user's shell
 * included.)
 */
#include "ddp/launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/memory.h"

enum {
    STREAMS = 2, // per rank: stdout, stderr
    CHUNK = 65536,
    LINE_MAX_BYTES = 1 << 20,
    QUEUE_MAX_BYTES = 4 << 20, // beyond it, ranks are not read
    LAST_WORDS = 400,
};

typedef struct Stream {
    int fd;     // the pipe; -1: closed
    int log_fd; // -1: no file
    bool shown; // on the console
    char prefix[16];
    char *line; // what has come of the current line
    size_t used, capacity;
    char last[LAST_WORDS + 1];
} Stream;

typedef struct Console {
    int fd;
    bool gone; // nobody reads it any more: what it would get is dropped
    int error; // what a write failed with, unless it was that nobody reads
    char *queue;
    size_t begin, end, capacity;
    const void *writer; // who wrote the unfinished line at the end; NULL: lines are whole
} Console;

struct Output {
    OutputOptions options;
    Stream *streams;               // [ranks, STREAMS]
    char **folders;                // [ranks]; NULL entries without log files
    unsigned char *files, *hidden; // [ranks]: bit 1 stdout, bit 2 stderr
    Console consoles[STREAMS];
    char *chunk; // [CHUNK]
};

// ---- The console

static void console_push(Console *console, const char *data, size_t bytes) {
    if (console->gone || bytes == 0) return;
    if (console->end + bytes > console->capacity && console->begin > 0) {
        memmove(console->queue, console->queue + console->begin, console->end - console->begin);
        console->end -= console->begin;
        console->begin = 0;
    }
    if (console->end + bytes > console->capacity) {
        console->capacity = 2 * (console->end + bytes);
        console->queue = memory_grow(console->queue, console->capacity, 1);
    }
    memcpy(console->queue + console->end, data, bytes);
    console->end += bytes;
}

static size_t console_pending(const Console *console) {
    return console->end - console->begin;
}

// Queues a piece of output; a prefix begins the line unless `writer` is in the middle of one.
static void console_write(Console *console, const void *writer, const char *prefix,
                          const char *data, size_t bytes) {
    if (bytes == 0) return;
    if (console->writer && console->writer != writer) console_push(console, "\n", 1);
    if (console->writer != writer) console_push(console, prefix, strlen(prefix));
    console_push(console, data, bytes);
    console->writer = data[bytes - 1] == '\n' ? NULL : writer;
}

static bool console_ready(const Console *console) {
    struct pollfd entry = {.fd = console->fd, .events = POLLOUT};
    return poll(&entry, 1, 0) > 0;
}

static void console_pump(Console *console) {
    while (console_pending(console) > 0 && console_ready(console)) {
        size_t bytes = console_pending(console);
        ssize_t n = write(console->fd, console->queue + console->begin,
                          bytes < PIPE_BUF ? bytes : PIPE_BUF);
        if (n > 0) {
            console->begin += (size_t)n;
        } else if (errno != EINTR && errno != EAGAIN) {
            console->gone = true;
            console->error = errno == EPIPE ? 0 : errno;
            console->begin = console->end = 0;
        }
    }
}

// ---- One stream

static void write_log(Output *output, Stream *stream, const char *data, size_t bytes) {
    while (bytes > 0 && stream->log_fd >= 0) {
        ssize_t n = write(stream->log_fd, data, bytes);
        if (n >= 0) {
            data += n;
            bytes -= (size_t)n;
        } else if (errno != EINTR) {
            output_say(output, "cannot write a log file any more: %s", strerror(errno));
            close(stream->log_fd);
            stream->log_fd = -1;
        }
    }
}

static void remember(Stream *stream, const char *line, size_t bytes) {
    while (bytes > 0 && (unsigned char)line[bytes - 1] <= ' ') bytes--;
    while (bytes > 0 && (unsigned char)line[0] <= ' ') line++, bytes--;
    if (bytes == 0) return;
    size_t kept = bytes < LAST_WORDS ? bytes : LAST_WORDS;
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)line[i];
        stream->last[i] = c < ' ' || c == 127 ? '?' : line[i];
    }
    stream->last[kept] = '\0';
}

// Passes on the whole lines, and with `all` also the unfinished one.
static void emit_lines(Stream *stream, Console *console, bool all) {
    size_t begin = 0;
    while (begin < stream->used) {
        char *line = stream->line + begin;
        char *newline = memchr(line, '\n', stream->used - begin);
        if (!newline && !all) break;
        size_t bytes = newline ? (size_t)(newline - line) + 1 : stream->used - begin;
        remember(stream, line, bytes);
        if (stream->shown) console_write(console, stream, stream->prefix, line, bytes);
        begin += bytes;
    }
    if (begin < stream->used) memmove(stream->line, stream->line + begin, stream->used - begin);
    stream->used -= begin;
}

static void take(Output *output, Stream *stream, Console *console, size_t bytes) {
    write_log(output, stream, output->chunk, bytes);
    if (stream->used + bytes > stream->capacity) {
        stream->capacity = 2 * (stream->used + bytes);
        stream->line = memory_grow(stream->line, stream->capacity, 1);
    }
    memcpy(stream->line + stream->used, output->chunk, bytes);
    stream->used += bytes;
    emit_lines(stream, console, stream->used > LINE_MAX_BYTES);
}

static void stream_end(Stream *stream, Console *console) {
    if (stream->fd < 0) return;
    emit_lines(stream, console, true);
    close(stream->fd);
    stream->fd = -1;
}

// Reads one chunk. False: nothing there.
static bool stream_pump(Output *output, Stream *stream, Console *console) {
    if (stream->fd < 0) return false;
    ssize_t n = read(stream->fd, output->chunk, CHUNK);
    if (n > 0) {
        take(output, stream, console, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    stream_end(stream, console);
    return false;
}

// ---- All of them

static Stream *stream_of(const Output *output, int local_rank, int which) {
    return &output->streams[local_rank * STREAMS + which];
}

static bool crowded(const Console *console) {
    return console_pending(console) > QUEUE_MAX_BYTES;
}

size_t output_poll_max(const Output *output) {
    return (size_t)output->options.ranks * STREAMS + STREAMS;
}

size_t output_poll(const Output *output, struct pollfd *entries) {
    size_t count = 0;
    for (int which = 0; which < STREAMS; which++) {
        const Console *console = &output->consoles[which];
        if (console_pending(console) > 0) {
            entries[count++] = (struct pollfd){.fd = console->fd, .events = POLLOUT};
        }
        for (int r = 0; r < output->options.ranks && !crowded(console); r++) {
            int fd = stream_of(output, r, which)->fd;
            if (fd >= 0) entries[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    }
    return count;
}

void output_pump(Output *output) {
    for (int which = 0; which < STREAMS; which++) {
        Console *console = &output->consoles[which];
        for (int r = 0; r < output->options.ranks && !crowded(console); r++) {
            (void)stream_pump(output, stream_of(output, r, which), console);
        }
        console_pump(console);
    }
}

void output_drain(Output *output, int local_rank) {
    for (int which = 0; which < STREAMS; which++) {
        // A pipe holds 64 KiB, so a few reads empty it even while a grandchild goes on writing.
        for (int i = 0; i < 16; i++) {
            Stream *stream = stream_of(output, local_rank, which);
            if (!stream_pump(output, stream, &output->consoles[which])) break;
        }
        // A last line without its newline is also last words.
        Stream *stream = stream_of(output, local_rank, which);
        if (stream->used > 0) remember(stream, stream->line, stream->used);
    }
}

int output_lost(const Output *output) {
    return output->consoles[0].error;
}

void output_flush(Output *output, double seconds) {
    uint64_t deadline_ns = clock_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        struct pollfd entries[STREAMS];
        nfds_t count = 0;
        for (int which = 0; which < STREAMS; which++) {
            Console *console = &output->consoles[which];
            console_pump(console);
            if (console_pending(console) == 0) continue;
            entries[count++] = (struct pollfd){.fd = console->fd, .events = POLLOUT};
        }
        uint64_t now = clock_ns();
        if (count == 0 || now >= deadline_ns) return;
        (void)poll(entries, count, (int)((deadline_ns - now) / 1000000) + 1);
    }
}

void output_say(Output *output, const char *format, ...) {
    va_list arguments;
    char text[2048];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    char *line = memory_format("ddprun: %s\n", text);
    console_write(&output->consoles[1], output, "", line, strlen(line));
    free(line);
}

const char *output_last_words(const Output *output, int local_rank) {
    return stream_of(output, local_rank, 1)->last;
}

const char *output_folder(const Output *output, int local_rank) {
    return output->folders[local_rank];
}

// ---- Attempts and their files

static int open_log(const char *folder, int which, Error *err) {
    char *path = memory_format("%s/%s.log", folder, which == 0 ? "stdout" : "stderr");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) error_set(err, STATUS_USAGE, "cannot write %s: %s", path, strerror(errno));
    free(path);
    return fd;
}

int output_begin(Output *output, int attempt, Error *err) {
    for (int r = 0; r < output->options.ranks; r++) {
        for (int which = 0; which < STREAMS; which++) {
            stream_of(output, r, which)->last[0] = '\0';
        }
        if (!output->files[r]) continue;
        free(output->folders[r]);
        output->folders[r] = memory_format("%s/attempt_%d/%d", output->options.log_dir, attempt,
                                           output->options.first_rank + r);
        if (file_make_folder(output->folders[r], err) != 0) return -1;
        for (int which = 0; which < STREAMS; which++) {
            if (!(output->files[r] & (1 << which))) continue;
            Stream *stream = stream_of(output, r, which);
            stream->log_fd = open_log(output->folders[r], which, err);
            if (stream->log_fd < 0) return -1;
        }
    }
    return 0;
}

void output_attach(Output *output, int local_rank, int stdout_fd, int stderr_fd) {
    const int fds[STREAMS] = {stdout_fd, stderr_fd};
    for (int which = 0; which < STREAMS; which++) {
        (void)fcntl(fds[which], F_SETFL, O_NONBLOCK); // our end only: the rank's write end blocks
        stream_of(output, local_rank, which)->fd = fds[which];
    }
}

void output_end(Output *output) {
    for (int r = 0; r < output->options.ranks; r++) {
        output_drain(output, r);
        for (int which = 0; which < STREAMS; which++) {
            Stream *stream = stream_of(output, r, which);
            stream_end(stream, &output->consoles[which]);
            if (stream->log_fd >= 0) close(stream->log_fd);
            stream->log_fd = -1;
        }
    }
}

// ---- Opening and closing

// Reads a number from 0 to `most` and steps over it.
static bool read_number(const char **at, int most, int *number) {
    char *end = NULL;
    errno = 0;
    if (**at < '0' || **at > '9') return false;
    long value = strtol(*at, &end, 10);
    if (errno || value > most) return false;
    *at = end;
    *number = (int)value;
    return true;
}

// Steps over the comma between two entries. False: neither that nor the end is there.
static bool next_entry(const char **at) {
    if (**at == ',') return *++*at != '\0';
    return **at == '\0';
}

// "3" or "0:3,1:2" into modes[ranks].
static int parse_modes(const char *name, const char *text, int ranks, unsigned char *modes,
                       Error *err) {
    if (!text) return 0;
    if (strlen(text) == 1 && strchr("0123", text[0])) {
        memset(modes, text[0] - '0', (size_t)ranks);
        return 0;
    }
    for (const char *at = text; *at || at == text;) {
        int rank, mode;
        bool fine = read_number(&at, ranks - 1, &rank) && *at++ == ':' &&
                    read_number(&at, 3, &mode) && next_entry(&at);
        if (!fine)
            return error_set(err, STATUS_USAGE,
                             "--%s '%s': use 0, 1, 2 or 3, or LOCAL_RANK:0..3,... with local ranks "
                             "below %d",
                             name, text, ranks);
        modes[rank] = (unsigned char)mode;
    }
    return 0;
}

static int parse_shown(const char *text, int ranks, unsigned char *hidden, Error *err) {
    if (!text) return 0;
    memset(hidden, 3, (size_t)ranks);
    for (const char *at = text; *at || at == text;) {
        int rank;
        if (!read_number(&at, ranks - 1, &rank) || !next_entry(&at))
            return error_set(err, STATUS_USAGE,
                             "--local-ranks-filter '%s': use local ranks below %d, as in 0,2", text,
                             ranks);
        hidden[rank] = 0;
    }
    return 0;
}

static int parse_options(Output *output, Error *err) {
    const OutputOptions *o = &output->options;
    unsigned char *redirected = memory_zalloc((size_t)o->ranks);
    int result = -1;
    if ((o->redirects || o->tee) && !o->log_dir) {
        error_set(err, STATUS_USAGE, "--redirects and --tee need --log-dir, where the files go");
    } else if (parse_modes("redirects", o->redirects, o->ranks, redirected, err) == 0 &&
               parse_modes("tee", o->tee, o->ranks, output->files, err) == 0) {
        result = parse_shown(o->shown, o->ranks, output->hidden, err);
    }
    if (o->log_dir && !o->redirects && !o->tee) memset(output->files, 3, (size_t)o->ranks);
    for (int r = 0; r < o->ranks; r++) {
        // What is both redirected and teed is teed.
        output->hidden[r] |= (unsigned char)(redirected[r] & ~output->files[r]);
        output->files[r] |= redirected[r];
    }
    free(redirected);
    return result;
}

static void stream_open(Stream *stream, int rank, int which, bool shown) {
    *stream = (Stream){.fd = -1, .log_fd = -1, .shown = shown};
    if (rank == 0 && which == 0) return; // the job's data
    snprintf(stream->prefix, sizeof stream->prefix, "[%d]: ", rank);
}

Output *output_open(const OutputOptions *options, Error *err) {
    size_t ranks = (size_t)options->ranks;
    Output *output = memory_zalloc(sizeof *output);
    output->options = *options;
    output->streams = memory_zalloc(ranks * STREAMS * sizeof *output->streams);
    output->folders = memory_zalloc(ranks * sizeof *output->folders);
    output->files = memory_zalloc(ranks);
    output->hidden = memory_zalloc(ranks);
    output->chunk = memory_zalloc(CHUNK);
    int result = parse_options(output, err);
    for (int r = 0; r < options->ranks; r++) {
        for (int which = 0; which < STREAMS; which++) {
            bool shown = !(output->hidden[r] & (1 << which));
            stream_open(stream_of(output, r, which), options->first_rank + r, which, shown);
        }
    }
    for (int which = 0; which < STREAMS; which++) {
        output->consoles[which] = (Console){.fd = which + 1};
    }
    if (result == 0) return output;
    output_close(output);
    return NULL;
}

void output_close(Output *output) {
    if (!output) return;
    output_end(output);
    for (int r = 0; r < output->options.ranks; r++) {
        free(output->folders[r]);
        for (int which = 0; which < STREAMS; which++) free(stream_of(output, r, which)->line);
    }
    for (int which = 0; which < STREAMS; which++) free(output->consoles[which].queue);
    free(output->streams);
    free(output->folders);
    free(output->files);
    free(output->hidden);
    free(output->chunk);
    free(output);
}
