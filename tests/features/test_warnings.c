/* test_warnings.c: what features print once: that find_unused_parameters found none, and that Join
 * waits for ranks with many more inputs.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"
#include "tests/rigs/temp_folder.h"

#include <fcntl.h>

#include "common/base/memory.h"
#include "ddp/features/join.h"

// Returns what two ranks, each a process, print to stderr. The caller frees it.
static char *printed(void **state, RankBody *body, const void *argument) {
    char *path = temp_folder_path(state, "stderr"), *text = memory_zalloc(4096);
    fflush(stderr);
    int old = dup(STDERR_FILENO), file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(old >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    play_ranks(AS_PROCESSES, 2, 60, body, argument, NULL);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    assert_true(pread(file, text, 4095, 0) >= 0);
    close(old);
    close(file);
    free(path);
    return text;
}

static void assert_printed(void **state, RankBody *body, const void *argument, int times,
                           const char *line) {
    char *text = printed(state, body, argument);
    int count = 0;
    for (const char *at = text; (at = strstr(at, line)); at++) count++;
    if (count != times) fail_msg("%d times, not %d: %s", count, times, text);
    if (times == 0) assert_string_equal(text, "");
    free(text);
}

// ---- find_unused_parameters -------------------------------------------------------------------

enum { TASKS = 2, STEPS = 3 };

typedef struct Uses { // of the second task, by step and rank
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

// Rank 0 prints it, once, if its first backward uses all parameters.
static void the_hint_is_printed_once(void **state) {
    static const char HINT[] = "did not find any unused parameters in the first backward";
    const Uses all = {{{true, true}, {true, true}, {true, true}}},
               later = {{{true, true}, {false, false}, {true, true}}},
               first = {{{false, true}, {true, true}, {true, true}}},
               other = {{{true, false}, {true, true}, {true, true}}};
    assert_printed(state, train_toy, &all, 1, HINT);
    assert_printed(state, train_toy, &later, 1, HINT);
    assert_printed(state, train_toy, &first, 0, HINT);
    assert_printed(state, train_toy, &other, 1, HINT); // what another rank uses is unknown
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
    static const char LINE[] = "Detected uneven input skew of greater than 1000. This means that "
                               "rank 0 has at least 1000 fewer inputs than other";
    static const int SKEWS[] = {0, 999, 1000, 1001, 2100};
    for (size_t i = 0; i < sizeof SKEWS / sizeof *SKEWS; i++)
        assert_printed(state, join_with_skew, &SKEWS[i], SKEWS[i] > 1000, LINE);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_hint_is_printed_once),
        IN_FOLDER(skew_is_printed_once),
    };
    return UNDER_TSAN ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
