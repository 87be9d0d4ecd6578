/* test_warnings.c: notes that features print once: find_unused_parameters found no unused
 * parameter; Join waits for ranks with many more inputs.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/captured.h"
#include "tests/rigs/ddp_toy.h"

#include "ddp/features/join.h"

// Asserts that two ranks (processes) together print the line to stderr `times` times.
static void assert_printed(RankBody *body, const void *argument, int times, const char *line) {
    Captured captured = captured_begin();
    play_ranks(AS_PROCESSES, 2, 60, body, argument, NULL);
    char *text = captured_end(&captured);
    int count = 0;
    for (const char *at = text; (at = strstr(at, line)); at++) count++;
    if (count != times) fail_msg("%d times, not %d: %s", count, times, text);
    if (times == 0) assert_string_equal(text, "");
    free(text);
}

// ---- find_unused_parameters -------------------------------------------------------------------

enum { TASKS = 2, STEPS = 3 };

typedef struct Uses { // of the second task: [step][rank]
    bool by[STEPS][2];
} Uses;

static void train_toy(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Uses *uses = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    config.find_unused_parameters = true;
    rig_wrap_with(rig, toy_model(rig->device, TASKS, 0), &config);
    for (int step = 0; step < STEPS; step++)
        toy_train(rig, (float[]){1, uses->by[step][rig->rank] ? 1 : 0});
    rig_close(rig);
}

// Rank 0 prints the note, once, if its first backward uses all parameters.
static void the_hint_is_printed_once(void **state) {
    (void)state;
    static const char HINT[] = "did not find any unused parameters in the first backward";
    const Uses all = {{{true, true}, {true, true}, {true, true}}},
               later = {{{true, true}, {false, false}, {true, true}}},
               first = {{{false, true}, {true, true}, {true, true}}},
               other = {{{true, false}, {true, true}, {true, true}}};
    assert_printed(train_toy, &all, 1, HINT);
    assert_printed(train_toy, &later, 1, HINT);
    assert_printed(train_toy, &first, 0, HINT);
    assert_printed(train_toy, &other, 1, HINT); // rank 0 does not know the other rank's uses
}

// ---- Join -------------------------------------------------------------------------------------

static void join_with_skew(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const int inputs = pg_rank(group) == 0 ? 2 : 2 + *(const int *)argument;
    int joinable_state;
    const Joinable joinable = {.state = &joinable_state, .group = group};
    Join *join = join_open(&joinable, 1, &(JoinConfig){.disable = false}, &outcome->error);
    for (int i = 0; join && i < inputs; i++)
        if (join_notify(join, &joinable_state, &outcome->error) != 0)
            problem(outcome, "%s", outcome->error.message);
    if (!join || join_end(join, &outcome->error) != 0)
        problem(outcome, "%s", outcome->error.message);
}

static void skew_is_printed_once(void **state) {
    (void)state;
    static const char LINE[] = "Detected uneven input skew of greater than 1000. This means that "
                               "rank 0 has at least 1000 fewer inputs than other";
    static const int SKEWS[] = {0, 999, 1000, 1001, 2100};
    for (size_t i = 0; i < sizeof SKEWS / sizeof *SKEWS; i++)
        assert_printed(join_with_skew, &SKEWS[i], SKEWS[i] > 1000, LINE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hint_is_printed_once),
        cmocka_unit_test(skew_is_printed_once),
    };
    return UNDER_TSAN ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
