/* worker.c: a device's thread: one job at a time, a mutex and two conditions ("there is a job", "it
 * is done").
 */
#include "common/device/worker.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cores.h"
#include "common/base/memory.h"

struct DeviceWorker {
    pthread_t thread;
    const char *name;      // the device's, which outlives the thread; shown by debuggers and top
    pthread_mutex_t mutex; // guards the fields below
    pthread_cond_t has_job, is_done;
    void (*function)(void *argument); // NULL: idle
    void *argument;
    bool quit;
};

static void *worker_main(void *argument) {
    DeviceWorker *worker = argument;
    // Named by the thread itself: naming another thread opens a file of /proc, and discarding its
    // directory entries then takes milliseconds of processor time at the process's end.
    pthread_setname_np(pthread_self(), worker->name);
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

static DeviceWorker *worker_create(const char *name) {
    DeviceWorker *worker = memory_zalloc(sizeof *worker);
    worker->name = name;
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
    return worker;
}

void worker_close(Device *device) {
    DeviceWorker *worker = device->worker;
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
    device->worker = NULL;
}

void device_submit(Device *device, void (*function)(void *argument), void *argument) {
    if (!device->worker) device->worker = worker_create(device->name);
    DeviceWorker *worker = device->worker;
    pthread_mutex_lock(&worker->mutex);
    CHECK(!worker->function, "%s: device_submit before device_wait of the job in progress",
          device->name);
    worker->function = function;
    worker->argument = argument;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
}

int device_wait(Device *device, double seconds, Error *err) {
    if (clock_check_timeout(seconds, 0, err) != 0) return -1;
    DeviceWorker *worker = device->worker;
    CHECK(worker, "%s: device_wait before device_submit", device->name);
    struct timespec deadline = clock_deadline(seconds);
    int failed = 0;
    pthread_mutex_lock(&worker->mutex);
    while (worker->function && !failed)
        failed = pthread_cond_timedwait(&worker->is_done, &worker->mutex, &deadline);
    bool done = !worker->function;
    pthread_mutex_unlock(&worker->mutex);
    if (done) return 0;
    return error_set(err, STATUS_FAILED, "%s did not finish its job within %.0f s", device->name,
                     seconds);
}

static void bind_this_thread(void *share) {
    sched_setaffinity(0, sizeof(cpu_set_t), share); // may be refused: binding is an optimisation
}

void device_bind_cores(Device *device, int place, int places) {
    cpu_set_t all, share;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    cores_share(&all, place, places, &share);
    device_submit(device, bind_this_thread, &share);
    while (device_wait(device, 60, NULL) != 0) continue; // the job reads `share`
}
