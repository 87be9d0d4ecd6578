/* cores.h: which cores a thread may run on, and how soon.
 *
 * Affinity: threads and processes that wait for each other are slow when the scheduler puts them on
 * one core while another core is idle. Each is bound to a share of the cores instead.
 *
 * Latency: a thread that mostly sleeps, such as the communication thread, is slow on a core that it
 * shares with a computing thread: the scheduler lets the running thread finish its time slice,
 * about 3 ms, before it runs a woken one. That is as long as a small network's backward pass.
 */
#ifndef COMMON_BASE_CORES_H
#define COMMON_BASE_CORES_H

#include <sched.h>
#include <stdint.h>

// Divides the cores of `all` in order into `count` equal shares and sets *share to number `index`.
// With more shares than cores, several shares are the same core.
void cores_share(const cpu_set_t *all, int index, int count, cpu_set_t *share);

// Requests time slices of 0.1 ms for the calling thread (Linux 6.12 or later; earlier kernels
// ignore the request). A thread with short slices preempts a computing thread as soon as it wakes;
// its share of the core stays the same, and it needs no privilege. A failure is no error: the
// thread only runs later. (Documentation/scheduler/sched-eevdf.rst)
void cores_take_short_turns(void);

#endif
