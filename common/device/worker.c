/* worker.c: a persistent thread, a mutex and two conditions ("there is a job", "it is done"). */
#include "common/device/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/memory.h"

struct Worker {
    pthread_t thread;
    pthread_mutex_t mutex; // guards what follows
    pthread_cond_t has_job, is_done;
    void (*function)(void *argument); // NULL: idle
    void *argument;
    bool quit;
};

static void *worker_main(void *argument) {
    Worker *worker = argument;
    pthread_mutex_lock(&worker->mutex);
    while (true) {
        while (!worker->function && !worker->quit)
            pthread_cond_wait(&worker->has_job, &worker->mutex); // ends with worker_close
        if (!worker->function) break;
        pthread_mutex_unlock(&worker->mutex);
        worker->function(worker->argument);
        pthread_mutex_lock(&worker->mutex);
        worker->function = NULL;
        pthread_cond_signal(&worker->is_done);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

Worker *worker_create(const char *name) {
    Worker *worker = memory_zalloc(sizeof *worker);
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->has_job, NULL);
    pthread_condattr_t monotonic; // pthread_cond_timedwait then reads the clock of clock_deadline
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->is_done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int failed = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (failed) {
        Error err = {0};
        error_set(&err, STATUS_FAILED,
                  "cannot start a thread for %s: %s -- look at the limits of processes and memory "
                  "(ulimit -u, ulimit -v)",
                  name, strerror(failed));
        error_exit(&err);
    }
    pthread_setname_np(worker->thread, name);
    return worker;
}

void worker_close(Worker *worker) {
    if (!worker) return;
    pthread_mutex_lock(&worker->mutex);
    worker->quit = true;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    pthread_mutex_destroy(&worker->mutex);
    pthread_cond_destroy(&worker->has_job);
    pthread_cond_destroy(&worker->is_done);
    free(worker);
}

void worker_submit(Worker *worker, void (*function)(void *argument), void *argument) {
    pthread_mutex_lock(&worker->mutex);
    CHECK(!worker->function, "a worker was given a second job before the first was waited for");
    worker->function = function;
    worker->argument = argument;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
}

int worker_wait(Worker *worker, double seconds) {
    struct timespec deadline = clock_deadline(seconds);
    int failed = 0;
    pthread_mutex_lock(&worker->mutex);
    while (worker->function && !failed)
        failed = pthread_cond_timedwait(&worker->is_done, &worker->mutex, &deadline);
    failed = worker->function != NULL;
    pthread_mutex_unlock(&worker->mutex);
    return failed ? -1 : 0;
}
