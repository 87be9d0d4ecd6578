/* cores.c: see cores.h. */
#include "common/base/cores.h"

#include <sys/syscall.h>
#include <unistd.h>

void cores_share(const cpu_set_t *all, int place, int places, cpu_set_t *share) {
    CPU_ZERO(share);
    int cores = CPU_COUNT(all), seen = 0;
    int begin = cores >= places ? place * cores / places : cores ? place % cores : 0;
    int end = cores >= places ? (place + 1) * cores / places : begin + 1;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, all)) continue;
        if (seen >= begin && seen < end) CPU_SET(core, share);
        seen++;
    }
}

// The kernel's struct sched_attr as it first was, which every later kernel still takes. glibc has
// it from 2.41 on.
typedef struct SchedAttributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns; // of an ordinary thread: the length of its turns
} SchedAttributes;

static int read_attributes(SchedAttributes *attributes) {
    *attributes = (SchedAttributes){0};
    return (int)syscall(SYS_sched_getattr, 0, attributes, sizeof *attributes, 0);
}

void cores_take_short_turns(void) {
    SchedAttributes attributes;
    if (read_attributes(&attributes) != 0) return;
    attributes.runtime_ns = 100000; // the shortest that the kernel grants
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

uint64_t cores_turn_ns(void) {
    SchedAttributes attributes;
    return read_attributes(&attributes) == 0 ? attributes.runtime_ns : 0;
}
