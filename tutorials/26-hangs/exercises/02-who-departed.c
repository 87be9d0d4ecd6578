/* 02-who-departed.c: the first rank that lags. The task is in 02-who-departed.h. */
#include "tutorials/26-hangs/exercises/02-who-departed.h"

// SOLUTION BEGIN
// How many of the ranks that are in this collective make the same call as rank r.
static int count_same(const LastSeen *ranks, int world, int r, uint64_t sequence) {
    int same = 0;
    for (int k = 0; k < world; k++)
        same += ranks[k].finished + 1 == sequence && ranks[k].kind == ranks[r].kind &&
                ranks[k].count == ranks[r].count;
    return same;
}

Verdict who_departed(const LastSeen *ranks, int world) {
    uint64_t sequence = ranks[0].finished + 1;
    for (int r = 1; r < world; r++)
        if (ranks[r].finished + 1 < sequence) sequence = ranks[r].finished + 1;
    bool begun = false;
    int late = -1, inside = 0, alone = -1, most = 0;
    for (int r = world - 1; r >= 0; r--) {
        if (ranks[r].finished + 1 > sequence) {
            begun = true;
            continue;
        }
        if (!ranks[r].waits) {
            late = r;
            continue;
        }
        begun = true;
        inside++;
        int same = count_same(ranks, world, r, sequence);
        if (same > most) most = same;
        if (same == 1) alone = r;
    }
    if (late >= 0 && begun) return (Verdict){TROUBLE_LAGS, late, sequence};
    if (late >= 0 || most == inside) return (Verdict){TROUBLE_NONE, -1, sequence};
    return (Verdict){TROUBLE_DIFFERS, most == inside - 1 && most > 1 ? alone : -1, sequence};
}
// SOLUTION END
