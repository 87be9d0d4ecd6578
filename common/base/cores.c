/* cores.c: see cores.h. */
#include "common/base/cores.h"

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
