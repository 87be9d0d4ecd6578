/* output.c: see output.h.
 *
 * A Stream is one pipe of one rank. It collects bytes until a line is complete, and writes it to
 * one of the two consoles (console.h) and to a log file.
 *
 * A progress bar is a partial line that begins with a carriage return. Rank 0's is shown at once if
 * the console is a terminal, which DDPRUN_COLUMNS tells the rank (launch_env.h).
 */
#include "ddp/launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/memory.h"
#include "ddp/launch/console.h"
#include "ddp/launch/output_routing.h"

enum {
    STREAMS = 2, // per rank: stdout, stderr
    CHUNK = 65536,
    LINE_MAX_BYTES = 1 << 20,
    QUEUE_MAX_BYTES = 4 << 20, // above this the ranks' pipes are not read
    LAST_WORDS = 400,
};

typedef struct Stream {
    int fd;     // the pipe; -1: closed
    int log_fd; // -1: no file
    bool shown; // on the console
    bool bar;   // its progress bar is shown
    char prefix[16];
    char *line; // the incomplete line, [capacity]
    size_t used, capacity;
    char last[LAST_WORDS + 1];
} Stream;

struct Output {
    OutputOptions options;
    Stream *streams;               // [ranks, STREAMS]
    char **folders;                // [ranks]; NULL entries without log files
    unsigned char *files, *hidden; // [ranks]: bit 1 stdout, bit 2 stderr
    Console consoles[STREAMS];
    Bar bar;
    char error[LAST_WORDS + 1]; // first line "error: ..." shown in this attempt
    char *chunk;                // [CHUNK]
};

// ---- One stream

static void write_log(Output *output, Stream *stream, const char *data, size_t bytes) {
    while (bytes > 0 && stream->log_fd >= 0) {
        ssize_t n = write(stream->log_fd, data, bytes);
        if (n >= 0) {
            data += n;
            bytes -= (size_t)n;
        } else if (errno != EINTR) {
            char why[FILE_CAUSE_ROOM];
            output_say(output, "cannot write a log file any more: %s", file_cause(errno, why));
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

// Skips the bars that were drawn before the text of a line. Returns the text, *bytes its length.
static const char *skip_bars(const char *line, size_t *bytes) {
    size_t end = *bytes;
    while (end > 0 && (line[end - 1] == '\n' || line[end - 1] == '\r')) end--;
    const char *last = memrchr(line, '\r', end);
    size_t skipped = last ? (size_t)(last - line) + 1 : 0;
    if (last && *bytes - skipped >= 3 && memcmp(line + skipped, "\033[K", 3) == 0) skipped += 3;
    *bytes -= skipped;
    return line + skipped;
}

// Whether this line, the stream's last words, is an error that another rank has shown: all ranks
// run the same command, so each reports a mistake in it.
static bool is_repeated(Output *output, const Stream *stream, const char *line, size_t bytes) {
    if (bytes < 7 || memcmp(line, "error: ", 7) != 0) return false;
    if (output->error[0]) return strcmp(output->error, stream->last) == 0;
    strcpy(output->error, stream->last);
    return false;
}

static void emit_line(Output *output, Stream *stream, Console *console, const char *line,
                      size_t bytes) {
    if (stream->bar) {
        console_clear_bar(console);
        line = skip_bars(line, &bytes);
    }
    remember(stream, line, bytes);
    if (!stream->shown || is_repeated(output, stream, line, bytes)) return;
    console_write(console, stream, stream->prefix, line, bytes);
}

// Shows the last bar in the incomplete line, which begins at `begin`. Returns the bar's begin: the
// bars before it are dropped.
static size_t emit_bar(Stream *stream, Console *console, size_t begin) {
    const char *bar = memrchr(stream->line + begin, '\r', stream->used - begin);
    if (!bar) return begin;
    begin = (size_t)(bar - stream->line);
    console_set_bar(console, bar, stream->used - begin);
    return begin;
}

// Emits all complete lines, and with `all` the incomplete one unless it is a bar.
static void emit_lines(Output *output, Stream *stream, Console *console, bool all) {
    size_t begin = 0;
    while (begin < stream->used) {
        char *line = stream->line + begin;
        char *newline = memchr(line, '\n', stream->used - begin);
        if (!newline && (!all || (stream->bar && *line == '\r'))) break;
        size_t bytes = newline ? (size_t)(newline - line) + 1 : stream->used - begin;
        emit_line(output, stream, console, line, bytes);
        begin += bytes;
    }
    if (stream->bar && begin < stream->used) begin = emit_bar(stream, console, begin);
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
    emit_lines(output, stream, console, stream->used > LINE_MAX_BYTES);
}

static void stream_end(Output *output, Stream *stream, Console *console) {
    if (stream->fd < 0) return;
    emit_lines(output, stream, console, true);
    if (stream->bar) console_clear_bar(console);
    stream->used = 0;
    close(stream->fd);
    stream->fd = -1;
}

// Reads one chunk of the pipe. False: the pipe is empty or closed.
static bool stream_pump(Output *output, Stream *stream, Console *console) {
    if (stream->fd < 0) return false;
    ssize_t n = read(stream->fd, output->chunk, CHUNK);
    if (n > 0) {
        take(output, stream, console, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    stream_end(output, stream, console);
    return false;
}

// ---- All streams

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
        for (int r = 0; r < output->options.ranks && !crowded(console); r++)
            (void)stream_pump(output, stream_of(output, r, which), console);
        if (which == 1) console_draw_bar(console);
        console_pump(console);
    }
}

void output_drain(Output *output, int local_rank) {
    for (int which = 0; which < STREAMS; which++) {
        // A pipe holds 64 KiB: bounded, because a grandchild may keep writing.
        for (int i = 0; i < 16; i++) {
            Stream *stream = stream_of(output, local_rank, which);
            if (!stream_pump(output, stream, &output->consoles[which])) break;
        }
        // The last line may lack its newline.
        Stream *stream = stream_of(output, local_rank, which);
        bool is_bar = stream->bar && stream->used > 0 && stream->line[0] == '\r';
        if (stream->used > 0 && !is_bar) remember(stream, stream->line, stream->used);
    }
}

int output_lost(const Output *output) {
    return output->consoles[0].error;
}

void output_flush(Output *output, double seconds) {
    uint64_t deadline_ns = clock_ns_after(seconds);
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

bool output_has_shown(const Output *output, const char *words) {
    return words[0] && strcmp(output->error, words) == 0;
}

size_t output_bar_columns(const Output *output, int local_rank) {
    return stream_of(output, local_rank, 1)->bar ? console_columns(&output->consoles[1]) : 0;
}

const char *output_folder(const Output *output, int local_rank) {
    return output->folders[local_rank];
}

// ---- Attempts and their files

static int open_log(const char *folder, int which, Error *err) {
    char *path = memory_format("%s/%s.log", folder, which == 0 ? "stdout" : "stderr");
    // O_NONBLOCK: opening a FIFO does not wait for its reader.
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    struct stat info;
    if (fd < 0) {
        error_set(err, STATUS_USAGE, "cannot write %s: %s", path, strerror(errno));
    } else if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        error_set(err, STATUS_USAGE, "cannot write %s: it is not a regular file", path);
        close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}

int output_begin(Output *output, int attempt, Error *err) {
    output->error[0] = '\0';
    for (int r = 0; r < output->options.ranks; r++) {
        for (int which = 0; which < STREAMS; which++) stream_of(output, r, which)->last[0] = '\0';
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

void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd) {
    const int fds[STREAMS] = {stdout_fd, stderr_fd};
    for (int which = 0; which < STREAMS; which++) {
        (void)fcntl(fds[which], F_SETFL, O_NONBLOCK); // the read end only: the rank's writes block
        stream_of(output, local_rank, which)->fd = fds[which];
    }
}

void output_end(Output *output) {
    for (int r = 0; r < output->options.ranks; r++) {
        output_drain(output, r);
        for (int which = 0; which < STREAMS; which++) {
            Stream *stream = stream_of(output, r, which);
            stream_end(output, stream, &output->consoles[which]);
            if (stream->log_fd >= 0) close(stream->log_fd);
            stream->log_fd = -1;
        }
    }
}

// ---- Opening and closing

static void stream_open(Output *output, int local_rank, int which) {
    int rank = output->options.first_rank + local_rank, bit = 1 << which;
    bool shown = !(output->hidden[local_rank] & bit), filed = output->files[local_rank] & bit;
    bool bar = rank == 0 && which == 1 && shown && !filed && output->consoles[1].terminal;
    Stream *stream = stream_of(output, local_rank, which);
    *stream = (Stream){.fd = -1, .log_fd = -1, .shown = shown, .bar = bar};
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
    int status = output_routing_parse(options, output->files, output->hidden, err);
    for (int which = 0; which < STREAMS; which++) {
        output->consoles[which] = console_open(which + 1, &output->bar);
        for (int r = 0; r < options->ranks; r++) stream_open(output, r, which);
    }
    if (status == 0) return output;
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
    for (int which = 0; which < STREAMS; which++) console_close(&output->consoles[which]);
    free(output->streams);
    free(output->folders);
    free(output->files);
    free(output->hidden);
    free(output->chunk);
    free(output);
}
