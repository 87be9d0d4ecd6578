/* output.c: see output.h.
 *
 * A Stream is one pipe of one rank. It collects bytes until a line is complete, and writes it to
 * one of the two consoles (console.h) and to a log file.
 *
 * A progress bar is a partial line that begins with a carriage return. Rank 0's is shown at once if
 * the console is a terminal, which DDPRUN_COLUMNS tells the rank (launch_env.c).
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

enum {
    STREAMS = 2, // per rank: stdout, stderr
    CHUNK = 65536,
    LINE_MAX_BYTES = 1 << 20,
    QUEUE_MAX_BYTES = 4 << 20, // above this the ranks' pipes are not read
    LAST_WORDS = 400,
};

typedef struct Stream {
    Console *console;
    int fd;     // the pipe; -1: closed
    int log_fd; // -1: no file
    bool filed; // has a log file in each attempt
    bool shown; // on the console
    bool bar;   // its progress bar is shown
    char prefix[16];
    Bytes line; // the incomplete line
    char last[LAST_WORDS + 1];
} Stream;

struct Output {
    const char *log_dir;
    int ranks, first_rank; // local rank r is rank first_rank + r
    int attempt;
    Console consoles[STREAMS];
    Bar bar;
    char error[LAST_WORDS + 1]; // first line "error: ..." shown in this attempt
    char chunk[CHUNK];
    Stream streams[]; // [STREAMS, ranks]
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
    if (bytes == 0) return;
    while ((unsigned char)line[0] <= ' ') line++, bytes--;
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

static void emit_line(Output *output, Stream *stream, const char *line, size_t bytes) {
    if (stream->bar) {
        console_clear_bar(stream->console);
        line = skip_bars(line, &bytes);
    }
    remember(stream, line, bytes);
    if (!stream->shown || is_repeated(output, stream, line, bytes)) return;
    console_write(stream->console, stream, stream->prefix, line, bytes);
}

// Emits all complete lines, and with `all` the incomplete one unless it is a bar. Shows the last
// bar in the incomplete line; the bars before it are dropped.
static void emit_lines(Output *output, Stream *stream, bool all) {
    Bytes *left = &stream->line;
    while (bytes_count(left) > 0) {
        char *line = left->data + left->begin;
        char *newline = memchr(line, '\n', bytes_count(left));
        if (!newline && (!all || (stream->bar && *line == '\r'))) break;
        size_t bytes = newline ? (size_t)(newline - line) + 1 : bytes_count(left);
        emit_line(output, stream, line, bytes);
        left->begin += bytes;
    }
    if (!stream->bar || bytes_count(left) == 0) return;
    const char *bar = memrchr(left->data + left->begin, '\r', bytes_count(left));
    if (!bar) return;
    left->begin = (size_t)(bar - left->data);
    console_set_bar(stream->console, bar, bytes_count(left));
}

static void stream_end(Output *output, Stream *stream) {
    if (stream->fd < 0) return;
    emit_lines(output, stream, true);
    if (stream->bar) console_clear_bar(stream->console);
    stream->line.begin = stream->line.end = 0;
    close(stream->fd);
    stream->fd = -1;
}

// Reads one chunk of the pipe. False: the pipe is empty or closed.
static bool stream_pump(Output *output, Stream *stream) {
    if (stream->fd < 0) return false;
    ssize_t n = read(stream->fd, output->chunk, CHUNK);
    if (n > 0) {
        write_log(output, stream, output->chunk, (size_t)n);
        bytes_push(&stream->line, output->chunk, (size_t)n);
        emit_lines(output, stream, bytes_count(&stream->line) > LINE_MAX_BYTES);
        return true;
    }
    if (n == 0 || errno != EAGAIN) stream_end(output, stream);
    return false;
}

static void stream_drain(Output *output, Stream *stream) {
    // A pipe holds 64 KiB: bounded, because a grandchild may keep writing.
    for (int i = 0; i < 16 && stream_pump(output, stream); i++) continue;
    // The last line may lack its newline.
    size_t bytes = bytes_count(&stream->line);
    if (bytes == 0) return;
    const char *line = stream->line.data + stream->line.begin;
    if (!stream->bar || *line != '\r') remember(stream, line, bytes);
}

// ---- All streams

static bool crowded(const Console *console) {
    return bytes_count(&console->queue) > QUEUE_MAX_BYTES;
}

size_t output_poll(const Output *output, struct pollfd *entries) {
    size_t count = 0;
    for (int i = 0; i < STREAMS; i++) {
        const Console *console = &output->consoles[i];
        if (bytes_count(&console->queue) > 0)
            entries[count++] = (struct pollfd){.fd = console->fd, .events = POLLOUT};
    }
    for (int i = 0; i < STREAMS * output->ranks; i++) {
        const Stream *stream = &output->streams[i];
        if (stream->fd >= 0 && !crowded(stream->console))
            entries[count++] = (struct pollfd){.fd = stream->fd, .events = POLLIN};
    }
    return count;
}

void output_pump(Output *output) {
    for (int i = 0; i < STREAMS * output->ranks; i++) {
        Stream *stream = &output->streams[i];
        if (!crowded(stream->console)) (void)stream_pump(output, stream);
    }
    console_draw_bar(&output->consoles[1]);
    for (int i = 0; i < STREAMS; i++) console_pump(&output->consoles[i]);
}

void output_drain(Output *output, int local_rank) {
    for (int i = local_rank; i < STREAMS * output->ranks; i += output->ranks)
        stream_drain(output, &output->streams[i]);
}

int output_flush(Output *output, double seconds) {
    uint64_t deadline_ns = clock_ns_after(seconds);
    for (;;) {
        struct pollfd entries[STREAMS]; // of the consoles: the pipes are closed
        output_pump(output);
        size_t count = output_poll(output, entries);
        uint64_t now = clock_ns();
        if (count == 0 || now >= deadline_ns) return output->consoles[0].error;
        (void)poll(entries, (nfds_t)count, (int)((deadline_ns - now) / 1000000) + 1);
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
    return output->streams[output->ranks + local_rank].last;
}

bool output_has_shown(const Output *output, int local_rank) {
    const char *words = output_last_words(output, local_rank);
    return words[0] && strcmp(output->error, words) == 0;
}

int output_bar_columns(const Output *output, int local_rank) {
    const Stream *stream = &output->streams[output->ranks + local_rank];
    return stream->bar ? console_columns(stream->console) : 0;
}

char *output_folder(const Output *output, int local_rank) {
    const Stream *out = &output->streams[local_rank], *err = out + output->ranks;
    if (!out->filed && !err->filed) return NULL;
    return memory_format("%s/attempt_%d/%d", output->log_dir, output->attempt,
                         output->first_rank + local_rank);
}

// ---- Attempts and their files

static int open_log(const char *folder, const char *name, Error *err) {
    char *path = memory_format("%s/%s.log", folder, name);
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

// Rank 0's stdout is the job's data: no prefix. Its stderr may have the progress bar.
static void number_streams(Output *output, int first_rank) {
    output->first_rank = first_rank;
    for (int i = 0; i < STREAMS * output->ranks; i++) {
        const int which = i / output->ranks, rank = first_rank + i % output->ranks;
        Stream *stream = &output->streams[i];
        stream->bar =
            rank == 0 && which == 1 && stream->shown && !stream->filed && stream->console->terminal;
        stream->prefix[0] = '\0';
        if (rank != 0 || which != 0)
            snprintf(stream->prefix, sizeof stream->prefix, "[%d]: ", rank);
    }
}

int output_begin(Output *output, int attempt, int first_rank, Error *err) {
    number_streams(output, first_rank);
    output->attempt = attempt;
    output->error[0] = '\0';
    int status = 0;
    for (int i = 0; i < STREAMS * output->ranks && status == 0; i++) {
        Stream *stream = &output->streams[i];
        stream->last[0] = '\0';
        if (!stream->filed) continue;
        char *folder = output_folder(output, i % output->ranks);
        status = file_make_folder(folder, err);
        if (status == 0)
            stream->log_fd = open_log(folder, i < output->ranks ? "stdout" : "stderr", err);
        if (stream->log_fd < 0) status = -1;
        free(folder);
    }
    return status;
}

void output_connect(Output *output, int local_rank, int stdout_fd, int stderr_fd) {
    output->streams[local_rank].fd = stdout_fd;
    output->streams[output->ranks + local_rank].fd = stderr_fd;
}

void output_end(Output *output) {
    for (int i = 0; i < STREAMS * output->ranks; i++) {
        Stream *stream = &output->streams[i];
        stream_drain(output, stream);
        stream_end(output, stream);
        if (stream->log_fd >= 0) close(stream->log_fd);
        stream->log_fd = -1;
    }
}

// ---- Opening and closing

Output *output_open(const LaunchOptions *options, Error *err) {
    unsigned char files[LAUNCH_RANKS_MAX], hidden[LAUNCH_RANKS_MAX];
    if (output_routing_parse(options, files, hidden, err) != 0) return NULL;
    const int ranks = options->local_ranks;
    Output *output = memory_zalloc(sizeof *output + (size_t)ranks * STREAMS * sizeof(Stream));
    output->log_dir = options->log_dir;
    output->ranks = ranks;
    for (int i = 0; i < STREAMS; i++)
        output->consoles[i] =
            (Console){.fd = i + 1, .terminal = isatty(i + 1) == 1, .bar = &output->bar};
    for (int i = 0; i < STREAMS * ranks; i++) {
        const int which = i / ranks, local_rank = i % ranks;
        output->streams[i] = (Stream){.console = &output->consoles[which],
                                      .fd = -1,
                                      .log_fd = -1,
                                      .filed = files[local_rank] >> which & 1,
                                      .shown = !(hidden[local_rank] >> which & 1)};
    }
    return output;
}

void output_close(Output *output) {
    if (!output) return;
    for (int i = 0; i < STREAMS * output->ranks; i++) free(output->streams[i].line.data);
    for (int i = 0; i < STREAMS; i++) free(output->consoles[i].queue.data);
    free(output);
}
