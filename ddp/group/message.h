/* message.h: what is said when ranks are waited for in vain, built piece by piece, by the backends
 * that wait themselves (shm, mpi). What a backend knows of a rank's state it says in its own words.
 */
#ifndef DDP_GROUP_MESSAGE_H
#define DDP_GROUP_MESSAGE_H

#include "common/base/format.h"
#include "ddp/group/backend.h"

enum { PG_MESSAGE_MAX = 1024 };

// A message that begins as "". What does not fit is cut off.
typedef char PgMessage[PG_MESSAGE_MAX];

// Appends "collective 18 all_reduce(F32, 10, sum)".
void pg_message_add_call(PgMessage message, const PgCall *call);

typedef struct PgLate { // the ranks that had not come at the deadline; all zero: none
    PgMessage names;    // "1, 3"
    int count;
} PgLate;

// Adds a rank. Returns false, and adds none, if the call is a barrier that is monitored for the
// first such rank only, and there is one.
bool pg_late_add(PgLate *late, const PgCall *call, int rank);
// Appends "rank 1, 3 did not arrive within 30.0 s; ", or PyTorch's words for a monitored barrier.
void pg_message_add_late(PgMessage message, const PgCall *call, const PgLate *late);

#endif
