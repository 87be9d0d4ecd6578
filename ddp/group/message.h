/* message.h: builds the error message of a wait that ended without all ranks, for all backends.
 * Each adds the ranks' state in its own words.
 */
#ifndef DDP_GROUP_MESSAGE_H
#define DDP_GROUP_MESSAGE_H

#include "common/base/format.h"
#include "ddp/group/backend.h"

enum { PG_MESSAGE_MAX = 1024 };

// A message under construction, initially "". Truncated at the end of the array.
typedef char PgMessage[PG_MESSAGE_MAX];

// Appends "collective 18 all_reduce(F32, 10, sum)".
void pg_message_add_call(PgMessage message, const PgCall *call);

typedef struct PgLate { // ranks missing at the deadline; all zero: none
    PgMessage names;    // "1, 3"
    int count;
} PgLate;

// Adds a rank. Returns false without adding it if the call is a barrier monitored for the first
// missing rank only and one is known.
bool pg_late_add(PgLate *late, const PgCall *call, int rank);
// Appends "rank 1, 3 did not arrive within 30.0 s; ", or PyTorch's words for a monitored barrier.
void pg_message_add_late(PgMessage message, const PgCall *call, const PgLate *late);

#endif
