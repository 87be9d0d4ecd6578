/* message.c: see message.h. */
#include "ddp/group/message.h"

#include <stdarg.h>

void pg_message_add(PgMessage *message, const char *format, ...) {
    size_t room = sizeof message->data - message->length;
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(message->data + message->length, room, format, arguments);
    va_end(arguments);
    if (wanted > 0) message->length += (size_t)wanted < room ? (size_t)wanted : room - 1;
}

void pg_message_add_call(PgMessage *message, const PgCall *call) {
    char name[PG_DESCRIPTION_MAX];
    if (call->sequence != 0) pg_message_add(message, "collective %ju ", (uintmax_t)call->sequence);
    pg_message_add(message, "%s", pg_describe(call->operation, &call->collective, name));
}

bool pg_late_add(PgLate *late, const PgCall *call, int rank) {
    char name[PG_RANK_NAME_MAX];
    if (late->count > 0 && call->monitor == MONITOR_FIRST) return false;
    pg_message_add(&late->names, "%s%s", late->count++ ? ", " : "",
                   pg_rank_name(call->global, rank, name));
    return true;
}

void pg_message_add_late(PgMessage *message, const PgCall *call, const PgLate *late) {
    if (call->monitor == MONITOR_NONE)
        pg_message_add(message, "rank %.300s did not arrive within %.1f s; ", late->names.data,
                       call->timeout_s);
    else
        pg_message_add(message, "Rank%s %.300s failed to pass monitoredBarrier in %.0f ms; ",
                       late->count == 1 ? "" : "s", late->names.data, call->timeout_s * 1e3);
}
