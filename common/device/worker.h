/* worker.h: a thread that lives as long as its device and runs one job at a time. */
#ifndef COMMON_DEVICE_WORKER_H
#define COMMON_DEVICE_WORKER_H

typedef struct Worker Worker;

Worker *worker_create(const char *name); // name: shown by debuggers and top
void worker_close(Worker *worker);       // after its last job; NULL is fine
// Hands over a job. The one before must have been waited for.
void worker_submit(Worker *worker, void (*function)(void *argument), void *argument);
int worker_wait(Worker *worker, double seconds); // 0, or -1 after `seconds` without an end

#endif
