/* flight_trigger.c: see flight_trigger.h. */
#include "ddp/group/flight_trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory.h"

struct FlightTrigger {
    char *path;
    int pipe_fd, stop_fd;
    void (*asked)(void *context);
    void *context;
    pthread_t thread;
    bool started;
};

static void *watch(void *context) {
    FlightTrigger *trigger = context;
    struct pollfd entries[] = {{.fd = trigger->pipe_fd, .events = POLLIN},
                               {.fd = trigger->stop_fd, .events = POLLIN}};
    for (;;) {
        // Not a wait for a peer: flight_trigger_close ends it.
        if (poll(entries, 2, -1) < 0 && errno != EINTR) return NULL;
        if (entries[1].revents) return NULL;
        char bytes[64];
        if ((entries[0].revents & POLLIN) && read(trigger->pipe_fd, bytes, sizeof bytes) > 0)
            trigger->asked(trigger->context);
    }
}

// Opened for writing too: otherwise the pipe would reach its end when a writer closes it.
static int open_pipe(const char *path) {
    struct stat status;
    if (mkfifo(path, 0600) != 0 && errno != EEXIST) return -1;
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || (fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode))) return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

FlightTrigger *flight_trigger_open(const char *path, void (*asked)(void *context), void *context,
                                   Error *err) {
    int pipe_fd = open_pipe(path);
    if (pipe_fd < 0)
        return error_null(err, STATUS_USAGE, "cannot make the pipe %s: %s", path, strerror(errno));
    FlightTrigger *trigger = memory_zalloc(sizeof *trigger);
    *trigger = (FlightTrigger){.path = memory_format("%s", path),
                               .pipe_fd = pipe_fd,
                               .stop_fd = eventfd(0, EFD_CLOEXEC),
                               .asked = asked,
                               .context = context};
    int status =
        trigger->stop_fd < 0 ? errno : pthread_create(&trigger->thread, NULL, watch, trigger);
    trigger->started = status == 0;
    if (trigger->started) return trigger;
    error_set(err, STATUS_FAILED, "cannot watch the pipe %s: %s", path, strerror(status));
    flight_trigger_close(trigger);
    return NULL;
}

void flight_trigger_close(FlightTrigger *trigger) {
    if (!trigger) return;
    if (trigger->started) {
        uint64_t one = 1;
        CHECK(write(trigger->stop_fd, &one, sizeof one) == sizeof one, "the trigger's eventfd");
        pthread_join(trigger->thread, NULL);
    }
    unlink(trigger->path);
    close(trigger->pipe_fd);
    close(trigger->stop_fd);
    free(trigger->path);
    free(trigger);
}
