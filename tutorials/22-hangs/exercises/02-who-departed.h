/* 02-who-departed.h: all ranks have stopped working. Who is to blame?
 *
 * The flight recorder says of each rank which collective it finished last, and whether it is in the
 * next one now. Collectives are numbered 1, 2, 3, ... on each rank, in the order of issue.
 *
 * The trouble began at the first collective that some rank has not finished. Look at that one only;
 * who is further ahead than that is not to blame.
 *
 * - LAGS: one rank has not begun it, though another one has begun or finished it. The rank is the
 *   lowest that has not begun it. It idles, and all others wait for it.
 * - DIFFERS: all have begun it, and the calls of those that are in it are not the same (kind or
 *   count). The rank is that of the call that differs, if all others that are in it, two or
 *   more, agree; else -1, as with two ranks: then which of them is right is unknown.
 * - NONE: no difference between the ranks. The rank is -1.
 */
#ifndef TUTORIALS_WHO_DEPARTED_H
#define TUTORIALS_WHO_DEPARTED_H

#include "ddp/group/process_group.h"

typedef struct LastSeen { // of one rank
    uint64_t finished;    // the number of the last collective that it finished; 0: none
    bool waits;           // it is in collective finished + 1, which is the following:
    CollectiveKind kind;
    size_t count;
} LastSeen;

typedef enum Trouble { TROUBLE_NONE, TROUBLE_LAGS, TROUBLE_DIFFERS } Trouble;

typedef struct Verdict {
    Trouble trouble;
    int rank;          // or -1
    uint64_t sequence; // the number of the collective at which the trouble began
} Verdict;

// ranks [world], world > 0.
Verdict who_departed(const LastSeen *ranks, int world);

#endif
