/* cores.h: which cores a thread may run on, and how soon.
 *
 * Threads and processes that wait for each other are slow when the system puts them on one core
 * while another is idle. A thread that is bound to its share of the cores is not moved onto
 * another's.
 *
 * A thread that mostly sleeps and then has a little to do, such as the one that communicates, is
 * slow when it shares a core with one that computes: the system lets the other finish its turn,
 * about 3 ms, before it looks at who has woken. That is as long as a small network's backward pass.
 */
#ifndef COMMON_BASE_CORES_H
#define COMMON_BASE_CORES_H

#include <sched.h>
#include <stdint.h>

// The cores of `all` in equal shares, in order: share `place` of `places`. If there are more places
// than cores, several share one core.
void cores_share(const cpu_set_t *all, int place, int places, cpu_set_t *share);

// Asks the system for turns of 0.1 ms for the calling thread (Linux 6.12 or later; earlier ones pay
// no heed). Whoever asks for short turns gets them soon: the thread runs as soon as it wakes, also
// beside one that computes. It gets no larger share of the core, and needs no privilege. A failure
// is no error: the thread only runs later. (Documentation/scheduler/sched-eevdf.rst)
void cores_take_short_turns(void);
// The calling thread's turns in nanoseconds, or 0 where the system does not say.
uint64_t cores_turn_ns(void);

#endif
