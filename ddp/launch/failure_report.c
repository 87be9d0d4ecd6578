/* failure_report.c: one line for each rank after a failure (ddp/launch/launch.h).
 *
 *   ddprun: rank 1 (pid 4711, local rank 1, host mars) died of SIGKILL at 14:03:22.123 in phase
 * train, step 17, collective 212 all_reduce; last stderr: ...; logs: DIR
 *
 * The root rank comes first. Phase, step and collective are those of the rank's last heartbeat;
 * they are left out for a rank that has sent none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/format.h"
#include "ddp/launch/launch.h"

enum { REPORT_MAX = 1900 };

const char *report_signal(int number, char text[24]) {
    const char *name = sigabbrev_np(number);
    if (name)
        snprintf(text, 24, "SIG%s", name);
    else
        snprintf(text, 24, "signal %d", number);
    return text;
}

static void append_time(char text[REPORT_MAX], const struct timespec *at) {
    struct tm parts;
    localtime_r(&at->tv_sec, &parts);
    format_append(text, REPORT_MAX, " at %02d:%02d:%02d.%03d", parts.tm_hour, parts.tm_min,
                  parts.tm_sec, (int)(at->tv_nsec / 1000000));
}

static void append_end(char text[REPORT_MAX], const LaunchedRank *rank) {
    char name[24];
    if (rank->fate == RANK_KILLED)
        format_append(text, REPORT_MAX, " died of %s%s", report_signal(rank->code, name),
                      rank->core_dumped ? " (core dumped)" : "");
    else
        format_append(text, REPORT_MAX, " exited with status %d", rank->code);
    append_time(text, &rank->ended_at);
}

static void append_doing(char text[REPORT_MAX], const Launch *launch, int local_rank) {
    HeartbeatView view = heartbeat_board_read(&launch->board, local_rank);
    const bool told = view.phase[0] != '\0'; // a program need not call pg_enter
    if (told)
        format_append(text, REPORT_MAX, " in phase %s, step %llu", view.phase,
                      (unsigned long long)view.step);
    if (view.sequence)
        format_append(text, REPORT_MAX, "%s collective %llu %s", told ? "," : " in",
                      (unsigned long long)view.sequence, view.kind);
}

// The rank ended with a usage error that the console shows already.
static bool is_said(const Launch *launch, const LaunchedRank *rank) {
    return rank->fate == RANK_EXITED && rank->code == STATUS_USAGE &&
           output_has_shown(launch->output, rank->local_rank);
}

static void append_last_words(char text[REPORT_MAX], const Launch *launch, int local_rank) {
    const char *words = output_last_words(launch->output, local_rank);
    char *folder = output_folder(launch->output, local_rank);
    const LaunchedRank *rank = &launch->ranks[local_rank];
    bool again = launch->root >= 0 && launch->root != local_rank &&
                 strcmp(words, output_last_words(launch->output, launch->root)) == 0;
    if (words[0] && !again && !is_said(launch, rank))
        format_append(text, REPORT_MAX, "; last stderr: %s", words);
    if (folder) format_append(text, REPORT_MAX, "; logs: %s", folder);
    free(folder);
}

void report_root(Launch *launch) {
    const LaunchedRank *root = &launch->ranks[launch->root];
    char text[REPORT_MAX] = "";
    output_drain(launch->output, root->local_rank);
    format_append(text, REPORT_MAX, "rank %d (pid %d, local rank %d, host %s)", root->rank,
                  (int)root->pid, root->local_rank, launch->host);
    if (launch->cause == CAUSE_DEATH) append_end(text, root);
    if (launch->cause == CAUSE_STOPPED) {
        format_append(text, REPORT_MAX, " was stopped by a signal (SIGSTOP?)");
        append_time(text, &root->stopped_at);
    }
    if (launch->cause == CAUSE_SILENT)
        format_append(text, REPORT_MAX, " has been silent for %.1f s",
                      clock_seconds_since(root->heard_ns));
    if (launch->cause == CAUSE_LATE)
        format_append(text, REPORT_MAX, " is still running %g s after the first rank ended",
                      launch->options->exit_timeout_s);
    append_doing(text, launch, root->local_rank);
    append_last_words(text, launch, root->local_rank);
    output_say(launch->output, "%s", text);
    launch_publish_end(launch, END_FAILED, text);
}

void report_others(Launch *launch) {
    int started = launch->started, ranks = launch->options->local_ranks;
    bool alike = launch->root >= 0 && is_said(launch, &launch->ranks[launch->root]);
    for (int r = 0; r < started; r++) {
        const LaunchedRank *rank = &launch->ranks[r];
        if (r == launch->root || rank->fate == RANK_ABSENT) continue;
        // After a usage error that the console shows, ranks that met the same error need no line.
        if (alike && rank->fate != RANK_ALIVE && (rank->sent || is_said(launch, rank))) continue;
        char name[24];
        char text[REPORT_MAX] = "";
        format_append(text, REPORT_MAX, "rank %d (pid %d)", rank->rank, (int)rank->pid);
        if (rank->fate == RANK_ALIVE)
            format_append(text, REPORT_MAX, " cannot be killed; it is left behind");
        else if (rank->sent)
            format_append(text, REPORT_MAX, " was ended by ddprun with %s",
                          report_signal(rank->sent, name));
        else
            append_end(text, rank);
        if (rank->fate != RANK_ALIVE) append_doing(text, launch, r);
        if (rank->failed && !rank->sent) append_last_words(text, launch, r);
        output_say(launch->output, "%s", text);
    }
    if (started < ranks)
        output_say(launch->output, "ranks %d to %d were not started", launch->ranks[started].rank,
                   launch->ranks[ranks - 1].rank);
}
