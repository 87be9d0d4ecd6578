/* 01-one-ahead.c: start, wait, start the next. The task is in 01-one-ahead.h. */
#include "tutorials/22-gather-ahead/exercises/01-one-ahead.h"

// SOLUTION BEGIN
static int start_unit(AheadUnit *unit, ProcessGroup *group, Error *err) {
    if (unit->is_whole || unit->arriving) return 0;
    unit->arriving =
        pg_start(group, pg_all_gather(unit->part, unit->whole, unit->share, PG_F32), err);
    return unit->arriving ? 0 : -1;
}

int use_unit(AheadUnit *units, size_t count, size_t u, int direction, ProcessGroup *group,
             Error *err) {
    AheadUnit *unit = &units[u];
    if (start_unit(unit, group, err) != 0) return -1;
    if (unit->arriving) {
        PgWork *work = unit->arriving;
        unit->arriving = NULL;
        if (pg_work_wait(work, NULL, NULL, err) != 0) return -1;
        unit->is_whole = true;
    }
    if (direction > 0 && u + 1 < count) return start_unit(&units[u + 1], group, err);
    if (direction < 0 && u > 0) return start_unit(&units[u - 1], group, err);
    return 0;
}

void drop_unit(AheadUnit *unit) {
    unit->is_whole = false;
}
// SOLUTION END
