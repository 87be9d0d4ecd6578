/* message.c: see message.h. */
#include "ddp/group/message.h"

void pg_message_add_call(PgMessage message, const PgCall *call) {
    char name[PG_DESCRIPTION_MAX];
    if (call->sequence != 0)
        format_append(message, PG_MESSAGE_MAX, "collective %ju ", (uintmax_t)call->sequence);
    format_append(message, PG_MESSAGE_MAX, "%s",
                  pg_describe(call->operation, &call->collective, name));
}

bool pg_late_add(PgLate *late, const PgCall *call, int rank) {
    char name[PG_RANK_NAME_MAX];
    if (late->count > 0 && call->monitor == MONITOR_FIRST) return false;
    format_append(late->names, PG_MESSAGE_MAX, "%s%s", late->count++ ? ", " : "",
                  pg_rank_name(call->global, rank, name));
    return true;
}

void pg_message_add_late(PgMessage message, const PgCall *call, const PgLate *late) {
    if (call->monitor == MONITOR_NONE)
        format_append(message, PG_MESSAGE_MAX, "rank %.300s did not arrive within %.1f s; ",
                      late->names, call->timeout_s);
    else
        format_append(message, PG_MESSAGE_MAX,
                      "Rank%s %.300s failed to pass monitoredBarrier in %.0f ms; ",
                      late->count == 1 ? "" : "s", late->names, call->timeout_s * 1e3);
}
