/* log.c: lines on stderr and stdout, and the progress bar between them.
 *
 * Invariant: bar_drawn tells whether the terminal's last line is the bar; every line erases it
 * first, so text and bar never mix. Lines of stdout that a broken pipe or a full disk loses are
 * reported by log_check_stdout; steps.csv has the same data.
 */
#include "common/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/format.h"

enum { REDRAW_NS = 100 * 1000 * 1000, BAR_MAX = 40 };

// The columns of the terminal that ddprun draws on; 0: stderr is not a pipe to ddprun.
static size_t columns_behind_launcher(void) {
    const char *text = getenv("DDPRUN_COLUMNS");
    const unsigned long columns = text ? strtoul(text, NULL, 10) : 0; // of "-5" a huge one
    return columns < 10000 ? columns : 0;
}

RunLog log_open(bool quiet) {
    bool seen = isatty(STDERR_FILENO) == 1 || columns_behind_launcher() > 0;
    return (RunLog){.quiet = quiet, .bar_allowed = !quiet && seen};
}

static void clear_bar(RunLog *log) {
    if (!log->bar_drawn) return;
    fputs("\r\033[K", stderr); // ESC [ K: erase to the end of the line
    log->bar_drawn = false;
}

void log_say(RunLog *log, const char *format, ...) {
    if (log->quiet) return;
    clear_bar(log);
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

void log_data(RunLog *log, const char *format, ...) {
    if (log->quiet) return;
    clear_bar(log);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

int log_check_stdout(Error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    char why[FILE_CAUSE_ROOM];
    return error_set(err, STATUS_FAILED, "lines on standard output were lost: %s",
                     file_cause(errno, why));
}

// "[=====>     ]", as wide as the terminal allows beside `taken` columns; "" if it is narrow.
static void format_bar(char bar[BAR_MAX + 1], size_t taken, double fraction) {
    static const char full_bar[] = "======================================";
    struct winsize size;
    size_t columns = columns_behind_launcher();
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
    if (columns == 0) columns = 80;
    const long width = (long)columns - (long)taken;
    const int cells = (int)(width < BAR_MAX ? width : BAR_MAX) - 2;
    const int full = (int)(cells * fraction);
    bar[0] = '\0';
    if (cells < 3) return;
    format_append(bar, BAR_MAX + 1, "[%.*s%-*s]", full, full_bar, cells - full,
                  full < cells ? ">" : "");
}

// The text right of the bar: " 17%  3520 samples/s  00:12 left".
static void format_rate(char *text, size_t capacity, double fraction, double per_second,
                        double seconds_left, double samples_per_item) {
    snprintf(text, capacity, "%3d%%", (int)(fraction * 100));
    if (!(per_second > 0)) return; // before the first item there is no rate
    if (samples_per_item > 0)
        format_append(text, capacity, "  %.0f samples/s", per_second * samples_per_item);
    unsigned long left = seconds_left < 359999 ? (unsigned long)(seconds_left + 0.5) : 359999;
    format_append(text, capacity, "  ");
    if (left >= 3600) format_append(text, capacity, "%lu:", left / 3600);
    format_append(text, capacity, "%02lu:%02lu left", left / 60 % 60, left % 60);
}

void log_progress(RunLog *log, size_t done, size_t total, const char *what,
                  double samples_per_item) {
    if (!log->bar_allowed || total == 0 || done > total) return;
    uint64_t now = clock_ns();
    if (log->bar_start_ns == 0) {
        log->bar_start_ns = now;
        log->bar_first = done;
    } else if (now - log->bar_last_ns < REDRAW_NS && done < total) {
        return;
    }
    log->bar_last_ns = now;

    double seconds = (double)(now - log->bar_start_ns) / 1e9;
    size_t since = done > log->bar_first ? done - log->bar_first : 0;
    double per_second = seconds > 0 ? (double)since / seconds : 0;
    double left = per_second > 0 ? (double)(total - done) / per_second : 0;
    double fraction = (double)done / (double)total;
    char head[96], tail[96], bar[BAR_MAX + 1];
    snprintf(head, sizeof head, "%s %zu/%zu", what, done, total);
    format_rate(tail, sizeof tail, fraction, per_second, left, samples_per_item);
    format_bar(bar, strlen(head) + strlen(tail) + 3, fraction);
    fprintf(stderr, "\r\033[K%s %s %s", head, bar, tail);
    log->bar_drawn = true;
    if (done == total) log->bar_start_ns = 0; // the next call begins a new bar
}

void log_close(RunLog *log) {
    if (log) clear_bar(log);
}
