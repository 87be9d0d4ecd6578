/* cores.h: which cores a thread may run on. Threads and processes that wait for each other are slow
 * when the system puts them on one core while another is idle. Who is bound to a share of the
 * cores is not moved to another's.
 */
#ifndef COMMON_BASE_CORES_H
#define COMMON_BASE_CORES_H

#include <sched.h>

// The cores of `all` in equal shares, in order: share `place` of `places`. If there are more places
// than cores, several share one core.
void cores_share(const cpu_set_t *all, int place, int places, cpu_set_t *share);

#endif
