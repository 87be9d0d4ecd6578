/* count_gpus.c: see count_gpus.h. A child process queries the driver, because the driver starts
 * threads in the process that queries it and the launcher forks, and because a driver may hang or
 * crash on a broken card.
 */
#include "ddp/launch/count_gpus.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/device/gpu_driver.h"

typedef struct Answer { // shorter than PIPE_BUF: written at once
    int count;
    Error error;
} Answer;

_Noreturn static void query(int pipe_fd) {
    Answer answer = {0};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    answer.count = gpu_driver_count(&answer.error);
    _exit(write(pipe_fd, &answer, sizeof answer) != (ssize_t)sizeof answer);
}

// Returns whether the pipe has data or is at its end before the deadline.
static bool await_answer(int pipe_fd, double timeout_s) {
    struct pollfd pipe = {.fd = pipe_fd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&pipe, 1, (int)(timeout_s * 1e3));
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

int count_gpus(double timeout_s, Error *err) {
    int ends[2];
    Answer answer = {0};
    pid_t child = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (child == 0) query(ends[1]);
    if (child < 0)
        return error_set(err, STATUS_FAILED, "cannot count the GPUs: %s", strerror(errno));
    close(ends[1]);
    const bool answered = await_answer(ends[0], timeout_s);
    const bool whole = answered && read(ends[0], &answer, sizeof answer) == (ssize_t)sizeof answer;
    close(ends[0]);
    kill(child, SIGKILL);
    // Not waited for at a deadline: a call of the driver that hangs may outlast SIGKILL.
    if (!answered)
        return error_set(err, STATUS_FAILED,
                         "the CUDA driver did not count the GPUs within %g s (--start-timeout)",
                         timeout_s);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
    if (!whole)
        return error_set(err, STATUS_FAILED, "the CUDA driver crashed when it counted the GPUs");
    if (answer.count > 0) return answer.count;
    return error_set(err, answer.error.status, "%s", answer.error.message);
}
