/* report.c: what happened, in one line per rank (ddp/launch/launch.h).
 *
 *   ddprun: rank 1 (pid 4711, local rank 1, host mars) died of SIGKILL at 14:03:22.123 in phase
 * train, step 17, collective 212 all_reduce; last stderr: ...; logs: DIR
 *
 * The rank that failed first comes first. Only facts are said: what a rank was doing is what its
 * heartbeat said last, and nothing is said of a rank that has sent none.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "ddp/launch/launch.h"

typedef struct Text {
    char data[1900];
    size_t used;
} Text;

static void append(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void append(Text *text, const char *format, ...) {
    va_list arguments;
    size_t room = sizeof text->data - text->used;
    va_start(arguments, format);
    int bytes = vsnprintf(text->data + text->used, room, format, arguments);
    va_end(arguments);
    if (bytes > 0) text->used += (size_t)bytes < room ? (size_t)bytes : room - 1;
}

const char *report_signal(int number, char text[24]) {
    const char *name = sigabbrev_np(number);
    if (name) {
        snprintf(text, 24, "SIG%s", name);
    } else {
        snprintf(text, 24, "signal %d", number);
    }
    return text;
}

static void append_time(Text *text, const struct timespec *at) {
    struct tm parts;
    localtime_r(&at->tv_sec, &parts);
    append(text, " at %02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min, parts.tm_sec,
           (int)(at->tv_nsec / 1000000));
}

static void append_name(Text *text, const Launch *launch, const LaunchedRank *rank) {
    append(text, "rank %d (pid %d, local rank %d, host %s)", rank->rank, (int)rank->pid,
           rank->local_rank, launch->host);
}

static void append_end(Text *text, const LaunchedRank *rank) {
    char name[24];
    if (rank->fate == RANK_KILLED) {
        append(text, " died of %s%s", report_signal(rank->code, name),
               rank->core_dumped ? " (core dumped)" : "");
    } else {
        append(text, " exited with status %d", rank->code);
    }
    append_time(text, &rank->ended_at);
}

static void append_doing(Text *text, const Launch *launch, int local_rank) {
    HeartbeatView view = heartbeat_board_read(launch->board, local_rank);
    if (view.beat_ns == 0) return;
    if (view.phase[0]) append(text, " in phase %s,", view.phase);
    append(text, " step %llu", (unsigned long long)view.step);
    if (view.sequence) {
        append(text, ", collective %llu %s", (unsigned long long)view.sequence, view.kind);
    }
}

// The command or its input is wrong, and one line on the console says so already.
static bool is_said(const Launch *launch, const LaunchedRank *rank) {
    return rank->fate == RANK_EXITED && rank->code == STATUS_USAGE &&
           output_has_shown(launch->output, output_last_words(launch->output, rank->local_rank));
}

static void append_last_words(Text *text, const Launch *launch, int local_rank) {
    const char *words = output_last_words(launch->output, local_rank);
    const char *folder = output_folder(launch->output, local_rank);
    bool said = is_said(launch, &launch->ranks[local_rank]);
    if (words[0] && !said) append(text, "; last stderr: %s", words);
    if (folder) append(text, "; logs: %s", folder);
}

// Appends what the root rank did; its name stands there already.
static void append_cause(Text *text, const Launch *launch, const LaunchedRank *root) {
    switch (launch->cause) {
    case CAUSE_DEATH:
        append_end(text, root);
        break;
    case CAUSE_STOPPED:
        append(text, " was stopped by a signal (SIGSTOP?)");
        append_time(text, &root->stopped_at);
        break;
    case CAUSE_SILENT:
        append(text, " has been silent for %.1f s", (double)(clock_ns() - root->heard_ns) * 1e-9);
        break;
    case CAUSE_LATE:
        append(text, " is still running %g s after the first rank ended",
               launch->options->exit_timeout_s);
        break;
    default:
        break;
    }
    append_doing(text, launch, root->local_rank);
    append_last_words(text, launch, root->local_rank);
}

void report_root(Launch *launch) {
    const LaunchedRank *root = &launch->ranks[launch->root];
    Text text = {0};
    output_drain(launch->output, root->local_rank);
    append_name(&text, launch, root);
    append_cause(&text, launch, root);
    output_say(launch->output, "%s", text.data);
    nodes_tell(launch->nodes, launch->attempt, false, text.data);
}

// A mistake that every rank has met needs no list of what became of each rank.
static bool needs_no_line(const Launch *launch, const LaunchedRank *rank) {
    bool all_alike = launch->root >= 0 && is_said(launch, &launch->ranks[launch->root]);
    return all_alike && rank->fate != RANK_ALIVE && (rank->sent || is_said(launch, rank));
}

void report_others(Launch *launch) {
    int started = launch->started, ranks = launch->options->local_ranks;
    for (int r = 0; r < started; r++) {
        const LaunchedRank *rank = &launch->ranks[r];
        if (r == launch->root || rank->fate == RANK_ABSENT || needs_no_line(launch, rank)) continue;
        char name[24];
        Text text = {0};
        append(&text, "rank %d (pid %d)", rank->rank, (int)rank->pid);
        if (rank->fate == RANK_ALIVE) {
            append(&text, " cannot be killed; it is left behind");
        } else if (rank->sent) {
            append(&text, " was ended by ddprun with %s", report_signal(rank->sent, name));
            append_doing(&text, launch, r);
        } else {
            append_end(&text, rank);
            append_doing(&text, launch, r);
            if (rank->fate == RANK_KILLED || rank->code != 0) append_last_words(&text, launch, r);
        }
        output_say(launch->output, "%s", text.data);
    }
    if (started < ranks)
        output_say(launch->output, "ranks %d to %d were not started", launch->ranks[started].rank,
                   launch->ranks[ranks - 1].rank);
}
