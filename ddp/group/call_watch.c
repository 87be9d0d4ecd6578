/* call_watch.c: see call_watch.h. */
#include "ddp/group/call_watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"

struct CallWatch {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t returned;
    bool over; // under the mutex
    const char *reason, *what;
    double seconds;
};

static void *watch_call(void *context) {
    CallWatch *watch = context;
    const struct timespec deadline = clock_deadline(watch->seconds);
    int status = 0;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->over && status != ETIMEDOUT)
        status =
            pthread_cond_clockwait(&watch->returned, &watch->mutex, CLOCK_MONOTONIC, &deadline);
    if (!watch->over) {
        fprintf(stderr, "error: %s%s%s did not return within %g s%s\n",
                watch->reason ? watch->reason : "", watch->reason ? "; and " : "", watch->what,
                watch->seconds, watch->reason ? "" : ": are all ranks there?");
        _exit(STATUS_FAILED);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

CallWatch *call_watch_begin(const char *reason, const char *what, double seconds) {
    CallWatch *watch = memory_zalloc(sizeof *watch);
    *watch = (CallWatch){.mutex = PTHREAD_MUTEX_INITIALIZER,
                         .returned = PTHREAD_COND_INITIALIZER,
                         .reason = reason,
                         .what = what,
                         .seconds = seconds};
    int status = pthread_create(&watch->thread, NULL, watch_call, watch);
    CHECK(status == 0, "no thread to watch over %s: %s", what, strerror(status));
    return watch;
}

void call_watch_end(CallWatch *watch) {
    pthread_mutex_lock(&watch->mutex);
    watch->over = true;
    pthread_cond_signal(&watch->returned);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->returned);
    CHECK(pthread_mutex_destroy(&watch->mutex) == 0, "the mutex of %s is held", watch->what);
    free(watch);
}
