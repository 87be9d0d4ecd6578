/* supervise.c: runs one check as a process with a time limit, and ends it with all that it started.
 * Its output goes to stderr, at most OUTPUT_MAX bytes; it is not judged.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tutorials/grading/grader.h"
#include "tutorials/grading/leftovers.h"

enum { OUTPUT_MAX = 16384, POLL_MS = 100, READ_END = 0, WRITE_END = 1 };

typedef struct Supervised {
    pid_t judge;
    int verdict, output; // the pipes' ends for reading; -1: closed
    size_t heard;        // bytes of output so far
    size_t length;       // of the verdict so far
    char text[SENTENCE_MAX];
    bool late;
} Supervised;

void say_how_it_ended(char sentence[SENTENCE_MAX], int status) {
    const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (signal == SIGALRM || signal == SIGXCPU)
        snprintf(sentence, SENTENCE_MAX,
                 "It did not end within %d seconds: an endless loop, or a wait for something that "
                 "never arrives.",
                 CHECK_SECONDS);
    else if (signal == SIGSEGV)
        snprintf(sentence, SENTENCE_MAX,
                 "It crashed (SIGSEGV): it read or wrote memory that is not its own.");
    else if (signal == SIGFPE)
        snprintf(sentence, SENTENCE_MAX, "A whole number was divided by 0 (SIGFPE).");
    else if (!signal && WEXITSTATUS(status) == SANITIZER_STATUS)
        snprintf(sentence, SENTENCE_MAX,
                 "A sanitizer ended it: below stands what it found, and where.");
    else if (signal)
        snprintf(sentence, SENTENCE_MAX, "It was ended by signal %d (%s).", signal,
                 strsignal(signal));
    else
        snprintf(sentence, SENTENCE_MAX,
                 "It ended the whole program with status %d; a function returns to its caller.",
                 WEXITSTATUS(status));
}

// ---- listening ----------------------------------------------------------------------------------

static void close_end(int *end) {
    close(*end);
    *end = -1;
}

// Copies the output to stderr until OUTPUT_MAX; reads on, so that its writer does not block.
static void hear_output(Supervised *check) {
    char text[4096];
    ssize_t length = read(check->output, text, sizeof text);
    if (length <= 0) {
        close_end(&check->output);
        return;
    }
    const size_t before = check->heard;
    check->heard += (size_t)length;
    if (before > OUTPUT_MAX) return;
    size_t shown = check->heard > OUTPUT_MAX ? OUTPUT_MAX - before : (size_t)length;
    fwrite(text, 1, shown, stderr);
    if (check->heard > OUTPUT_MAX)
        fprintf(stderr, "\n(output after the first %d bytes is not shown)\n", OUTPUT_MAX);
}

static void hear_verdict(Supervised *check) {
    size_t room = sizeof check->text - check->length;
    ssize_t length = room > 0 ? read(check->verdict, check->text + check->length, room) : 0;
    if (length <= 0)
        close_end(&check->verdict);
    else
        check->length += (size_t)length;
}

// Listens until the judge's end closes the verdict's pipe (no other process holds its writing end),
// or until the deadline.
static void listen_to(Supervised *check) {
    const uint64_t deadline = clock_ns_after(CHECK_SECONDS);
    while (check->verdict >= 0) {
        struct pollfd ends[2] = {{.fd = check->verdict, .events = POLLIN},
                                 {.fd = check->output, .events = POLLIN}};
        check->late = clock_ns() >= deadline;
        if (check->late) return;
        poll(ends, 2, POLL_MS);
        if (ends[1].revents) hear_output(check);
        if (ends[0].revents) hear_verdict(check);
    }
}

// ---- one check ----------------------------------------------------------------------------------

static void run_judge(const GradeCheck *check, Grade grade, int output) __attribute__((noreturn));
static void run_judge(const GradeCheck *check, Grade grade, int output) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    close(output);
    check->run(&grade);
    grade_end(&grade);
}

static Outcome outcome_of(const Supervised *check, int status) {
    Outcome outcome = {.result = RESULT_MISS};
    const bool whole = check->length > 0 && check->text[check->length - 1] == '\0';
    if (check->late)
        say_how_it_ended(outcome.sentence, SIGALRM); // as a status: ended by that signal
    else if (!whole)
        say_how_it_ended(outcome.sentence, status);
    else if (check->text[0])
        snprintf(outcome.sentence, SENTENCE_MAX, "%s", check->text);
    else
        outcome.result = RESULT_PASS;
    return outcome;
}

Outcome supervise_check(const GradeCheck *check, const char *file, const char *room, bool last) {
    int verdict[2], output[2], status;
    Supervised supervised = {0};
    int failed = pipe2(verdict, O_CLOEXEC) || pipe2(output, O_CLOEXEC | O_NONBLOCK);
    CHECK(failed == 0, "no pipes for a check");
    fcntl(output[WRITE_END], F_SETFL, 0); // a full pipe blocks its writer
    fflush(NULL);
    supervised.judge = fork();
    CHECK(supervised.judge >= 0, "no process for a check");
    if (supervised.judge == 0) {
        close(verdict[READ_END]);
        close(output[READ_END]);
        Grade grade = {.file = file, .room = room, .last = last, .verdict = verdict[WRITE_END]};
        run_judge(check, grade, output[WRITE_END]);
    }
    close(verdict[WRITE_END]);
    close(output[WRITE_END]);
    supervised.verdict = verdict[READ_END];
    supervised.output = output[READ_END];
    listen_to(&supervised);
    if (supervised.late) kill(supervised.judge, SIGKILL);
    const pid_t ended = waitpid(supervised.judge, &status, 0);
    CHECK(ended == supervised.judge, "cannot wait for the judge");
    end_leftovers();
    while (supervised.output >= 0) hear_output(&supervised); // the rest: every writer has ended
    if (supervised.verdict >= 0) close(supervised.verdict);
    return outcome_of(&supervised, status);
}
