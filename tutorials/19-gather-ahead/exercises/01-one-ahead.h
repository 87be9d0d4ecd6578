/* 01-one-ahead.h: a unit is whole when it is needed, and the next one is arriving meanwhile.
 *
 * A model has `count` units. Before unit u computes, the program calls use_unit, in forward for
 * units 0, 1, ... with direction 1, in backward for ... 1, 0 with direction -1. On return all of
 * unit u's weights are in `whole`, and the all-gather of the unit that is needed next, u +
 * direction, if there is one, has been started and not waited for. No other unit is gathered: the
 * memory is enough for two units: a unit in use and a unit that arrives.
 *
 * After unit u has computed, the program calls drop_unit: its weights are no longer valid, and the
 * next use has to gather them again. A unit that is whole or arriving is not gathered once more:
 * the last unit is not dropped after forward, because backward begins with it.
 *
 * pg_start hands an all-gather to the group's thread, pg_work_wait waits for it, once. All ranks
 * start the same collectives in the same order.
 */
#ifndef TUTORIALS_ONE_AHEAD_H
#define TUTORIALS_ONE_AHEAD_H

#include <stdbool.h>

#include "ddp/group/process_group.h"

typedef struct AheadUnit {
    size_t share;
    const float *part; // [share]: this rank's
    float *whole;      // [W, share]: to be written by the all-gather
    PgWork *arriving;  // yours; NULL at the beginning
    bool is_whole;     // yours; false at the beginning
} AheadUnit;

// Returns 0, or -1 with err filled.
int use_unit(AheadUnit *units, size_t count, size_t u, int direction, ProcessGroup *group,
             Error *err);
void drop_unit(AheadUnit *unit);

#endif
