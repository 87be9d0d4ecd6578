/* cores.c: see cores.h. */
#include "common/base/cores.h"

#include <sys/syscall.h>
#include <unistd.h>

void cores_share(const cpu_set_t *all, int index, int count, cpu_set_t *share) {
    CPU_ZERO(share);
    int cores = CPU_COUNT(all), seen = 0;
    int begin = cores >= count ? index * cores / count : cores ? index % cores : 0;
    int end = cores >= count ? (index + 1) * cores / count : begin + 1;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, all)) continue;
        if (seen >= begin && seen < end) CPU_SET(core, share);
        seen++;
    }
}

// The first version of the kernel's struct sched_attr, which later kernels accept too. glibc
// declares it from 2.41 on.
typedef struct SchedAttributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns; // of an ordinary thread: its time slice
} SchedAttributes;

void cores_take_short_turns(void) {
    SchedAttributes attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
    attributes.runtime_ns = 100000; // the shortest that the kernel grants
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}
