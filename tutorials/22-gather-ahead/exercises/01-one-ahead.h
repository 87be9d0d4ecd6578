/* 01-one-ahead.h: a unit is whole when it computes, while the next one is being gathered.
 *
 * A model has `count` units. Before unit u computes, the program calls use_unit, in forward for
 * units 0, 1, ... with direction 1, in backward for ... 1, 0 with direction -1. On return all of
 * unit u's weights are in `whole`, and the all-gather of the next unit, u + direction, if there is
 * one, is in flight: started and not waited for. No other unit is gathered, because there is memory
 * for two units only: the unit in use and the one in flight.
 *
 * After unit u has computed, the program calls drop_unit: its weights are no longer valid, and the
 * next use must gather them again. A unit that is whole or in flight is not gathered again: the
 * last unit is not dropped after forward, because backward begins with it.
 *
 * pg_start starts an all-gather on the group's thread; call pg_work_wait once for each. All ranks
 * start the same collectives in the same order.
 */
#ifndef TUTORIALS_ONE_AHEAD_H
#define TUTORIALS_ONE_AHEAD_H

#include <stdbool.h>

#include "ddp/group/process_group.h"

typedef struct AheadUnit {
    size_t share;
    const float *part; // [share]: this rank's
    float *whole;      // [W, share]: the all-gather's output
    PgWork *arriving;  // yours; initially NULL
    bool is_whole;     // yours; initially false
} AheadUnit;

// Returns 0, or -1 with err filled.
int use_unit(AheadUnit *units, size_t count, size_t u, int direction, ProcessGroup *group,
             Error *err);
void drop_unit(AheadUnit *unit);

#endif
