/* nccl_guard.c: deadlines for the calls of a blocking communicator.
 *
 * Communicators are non-blocking by default (communicator.c). With NCCL_COMM_BLOCKING=1 NCCL starts
 * no thread per call, but the first collective of a kind returns only when all ranks have arrived.
 * The thread inside NCCL cannot check the clock meanwhile. So the guard thread does, ten times a
 * second, and aborts the communicator on an error or at the deadline, which makes the call return.
 *
 * Entering and leaving take a mutex and never block on the guard. While a thread is inside NCCL,
 * the guard owns the fields that nccl_internal.h assigns to the communication thread.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "ddp/group/nccl/nccl_internal.h"

#define CHECK_S 0.1

struct NcclGuard {
    PgNccl *nccl;
    pthread_t thread;
    pthread_cond_t over;
    pthread_mutex_t mutex; // protects the fields below
    bool inside, closing;
    Error error; // why the communicator was aborted
};

// With the mutex held, while a thread is inside NCCL. Before ncclCommInitRank returns the
// communicator, there is nothing to abort, and the process ends.
static void check_call(NcclGuard *guard) {
    PgNccl *nccl = guard->nccl;
    if (nccl_check(nccl, nccl->call, &guard->error) == 0) return;
    if (!nccl->communicator) {
        fprintf(stderr, "error: %s; and the communicator, which blocks, is not made\n",
                guard->error.message);
        _exit(STATUS_FAILED);
    }
    nccl_tell_failure(nccl, guard->error.message);
    nccl_abort(nccl, guard->error.message);
}

static void *watch(void *context) {
    NcclGuard *guard = context;
    (void)cuda_enter(guard->nccl->device);
    pthread_mutex_lock(&guard->mutex);
    while (!guard->closing) {
        struct timespec next = clock_deadline(CHECK_S);
        pthread_cond_clockwait(&guard->over, &guard->mutex, CLOCK_MONOTONIC, &next);
        if (guard->inside && guard->error.status == STATUS_OK) check_call(guard);
    }
    pthread_mutex_unlock(&guard->mutex);
    return NULL;
}

int nccl_guard_open(PgNccl *nccl, Error *err) {
    const char *text = getenv("NCCL_COMM_BLOCKING");
    if (!text || strcmp(text, "1") != 0) return 0;
    NcclGuard *guard = memory_zalloc(sizeof *guard);
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
    NcclGuard *guard = nccl->guard;
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
    NcclGuard *guard = nccl->guard;
    if (!guard) return 0;
    pthread_mutex_lock(&guard->mutex);
    guard->inside = false;
    const Error error = guard->error;
    pthread_mutex_unlock(&guard->mutex);
    return error.status == STATUS_OK ? 0 : error_set(err, error.status, "%s", error.message);
}
