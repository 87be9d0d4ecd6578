/* 02-who-departed.h: a job hangs. Which rank is at fault?
 *
 * The flight record of each rank has the last collective that it finished, and whether it is in the
 * next one now. Collectives are numbered 1, 2, 3, ... on each rank, in the order of issue.
 *
 * The trouble began at the first collective that some rank has not finished. Look at that one only;
 * a rank that is further ahead is not at fault.
 *
 * - LAGS: one rank has not begun it, though another one has begun or finished it. The rank is the
 *   lowest that has not begun it. It idles, and all others wait for it.
 * - DIFFERS: all ranks have begun it, and the ranks that are in it call different collectives (kind
 *   or count). The rank is the one whose call differs, if all others that are in it, two or more,
 *   agree; else -1, as with two ranks: then the right call is unknown.
 * - NONE: no difference between the ranks. The rank is -1.
 */
#ifndef TUTORIALS_WHO_DEPARTED_H
#define TUTORIALS_WHO_DEPARTED_H

#include "ddp/group/process_group.h"

typedef struct LastSeen { // of one rank
    uint64_t finished;    // the number of the last collective that it finished; 0: none
    bool waits;           // it is in collective finished + 1, of this kind and count:
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
