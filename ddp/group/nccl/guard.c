/* guard.c: the deadline of NCCL's calls where they block.
 *
 * A communicator is non-blocking by our choice (communicator.c), and blocks if the environment says
 * NCCL_COMM_BLOCKING=1: then NCCL starts no thread for each call, but the first collective of a
 * kind returns only when all ranks have come. The thread that is inside NCCL cannot look at the
 * clock meanwhile. So another one does, and aborts the communicator when something is wrong, which
 * makes the call return.
 *
 * The guard never sleeps on behalf of a call: entering and leaving take a mutex, and it looks ten
 * times a second. While a thread is inside, what internal.h calls the communication thread's
 * belongs to the guard.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/nccl/internal.h"

#define LOOK_S 0.1

struct Guard {
    PgNccl *nccl;
    pthread_t thread;
    pthread_cond_t over;
    pthread_mutex_t mutex; // protects what follows
    bool inside, closing;
    Error error; // why the communicator was aborted
};

// The communicator is made when its first call returns: there is nothing to abort before.
static void end_process(const Error *cause) {
    fprintf(stderr, "error: %s; and the communicator, which blocks, is not made\n", cause->message);
    _exit(STATUS_FAILED);
}

// With the mutex held, while a thread is inside.
static void look(Guard *guard) {
    PgNccl *nccl = guard->nccl;
    if (nccl_look(nccl, nccl->call, &guard->error) == 0) return;
    if (!nccl->communicator) end_process(&guard->error);
    nccl_tell_failure(nccl, guard->error.message);
    nccl_abort(nccl, guard->error.message);
}

static void *watch(void *context) {
    Guard *guard = context;
    (void)cuda_enter(guard->nccl->device);
    pthread_mutex_lock(&guard->mutex);
    while (!guard->closing) {
        struct timespec next = clock_deadline(LOOK_S);
        pthread_cond_clockwait(&guard->over, &guard->mutex, CLOCK_MONOTONIC, &next);
        if (guard->inside && guard->error.status == STATUS_OK) look(guard);
    }
    pthread_mutex_unlock(&guard->mutex);
    return NULL;
}

int nccl_guard_open(PgNccl *nccl, Error *err) {
    const char *text = getenv("NCCL_COMM_BLOCKING");
    if (!text || strcmp(text, "1") != 0) return 0;
    Guard *guard = memory_zalloc(sizeof *guard);
    guard->nccl = nccl;
    pthread_mutex_init(&guard->mutex, NULL);
    pthread_cond_init(&guard->over, NULL);
    int status = pthread_create(&guard->thread, NULL, watch, guard);
    if (status) {
        free(guard);
        return error_set(err, STATUS_FAILED, "no thread to watch over NCCL: %s", strerror(status));
    }
    nccl->guard = guard;
    return 0;
}

void nccl_guard_close(PgNccl *nccl) {
    Guard *guard = nccl->guard;
    if (!guard) return;
    pthread_mutex_lock(&guard->mutex);
    guard->closing = true;
    pthread_cond_signal(&guard->over);
    pthread_mutex_unlock(&guard->mutex);
    pthread_join(guard->thread, NULL);
    pthread_cond_destroy(&guard->over);
    pthread_mutex_destroy(&guard->mutex);
    free(guard);
    nccl->guard = NULL;
}

void nccl_guard_enter(PgNccl *nccl) {
    if (!nccl->guard) return;
    pthread_mutex_lock(&nccl->guard->mutex);
    nccl->guard->inside = true;
    pthread_mutex_unlock(&nccl->guard->mutex);
}

int nccl_guard_leave(PgNccl *nccl, Error *err) {
    Guard *guard = nccl->guard;
    if (!guard) return 0;
    pthread_mutex_lock(&guard->mutex);
    guard->inside = false;
    const Error error = guard->error;
    pthread_mutex_unlock(&guard->mutex);
    return error.status == STATUS_OK ? 0 : error_set(err, error.status, "%s", error.message);
}
