/* test_closes.c: every _close accepts NULL, so that a caller frees in any order after a failure.
 * (Those with tests of their own are not repeated here.)
 */
#include "tests/rigs/check.h"

#include "common/device/arena.h"
#include "common/device/link.h"
#include "common/nn/clip.h"
#include "common/nn/module.h"
#include "common/nn/optimizer.h"
#include "common/nn/tape.h"
#include "common/train/step.h"
#include "common/train/step_graph.h"
#include "ddp/features/powersgd_hook.h"
#include "ddp/features/used_map.h"
#include "ddp/group/flight_trigger.h"
#include "ddp/group/process_group.h"
#include "ddp/reducer.h"
#include "ddp/rendezvous/meeting_file.h"

static void nothing_to_close(void **state) {
    (void)state;
    arena_close(NULL);
    device_close(NULL);
    link_close(NULL);
    module_close(NULL);
    tape_close(NULL);
    optimizer_close(NULL);
    grad_clip_close(NULL);
    step_graph_close(NULL);
    step_close(NULL);
    flight_trigger_close(NULL);
    pg_close(NULL);
    meeting_file_leave(NULL);
    used_map_close(NULL);
    power_sgd_close(NULL);
    reducer_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_to_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
