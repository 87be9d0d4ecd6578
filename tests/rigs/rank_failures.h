/* rank_failures.h: helpers for tests in which ranks must fail (with tests/rigs/ranks.h): all ranks
 * with the same message, which later calls repeat.
 */
#ifndef TESTS_RIGS_RANK_FAILURES_H
#define TESTS_RIGS_RANK_FAILURES_H

#include "tests/rigs/ranks.h"

static inline void must_contain(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

static inline void sleep_ms(long ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

// Asserts that every further call fails with the first error.
static inline void check_sticky(ProcessGroup *group, Outcome *outcome) {
    Error errors[3] = {{0}};
    float x = 0;
    if (pg_run(group, pg_barrier(), &errors[0]) == 0) problem(outcome, "pg_run on a broken group");
    if (pg_start(group, pg_all_reduce(&x, 1, PG_F32, PG_SUM), &errors[1]))
        problem(outcome, "pg_start on a broken group");
    if (pg_shared_alloc(group, 64, &errors[2]))
        problem(outcome, "pg_shared_alloc on a broken group");
    for (int i = 0; i < 3; i++)
        if (strcmp(errors[i].message, outcome->error.message) != 0)
            problem(outcome, "first \"%s\", then \"%s\"", outcome->error.message,
                    errors[i].message);
}

// Asserts that a call has failed, with its error in the outcome.
static inline void check_failure(ProcessGroup *group, int status, Outcome *outcome) {
    if (!status)
        problem(outcome, "a call succeeded that must not");
    else if (outcome->error.status != STATUS_FAILED || strchr(outcome->error.message, '\n'))
        problem(outcome, "status %d: %s", outcome->error.status, outcome->error.message);
    else
        check_sticky(group, outcome);
    sync_store(&outcome->failed, 1);
}

static inline void expect_failure(ProcessGroup *group, Collective collective, Outcome *outcome) {
    check_failure(group, pg_run(group, collective, &outcome->error), outcome);
}

// Returns after rank `rank` has failed; the calling rank makes no call until then.
static inline void wait_for_failure_of(ProcessGroup *group, int rank, Outcome *outcome) {
    Outcome *its = outcome - pg_rank(group) + rank;
    if (sync_wait(&its->failed, 1, NULL, clock_ns() + 60000000000u, SYNC_SPINS) != SYNC_DONE)
        problem(outcome, "rank %d did not fail", rank);
}
static inline void wait_for_failure(ProcessGroup *group, Outcome *outcome) {
    wait_for_failure_of(group, 0, outcome);
}

// Asserts that all ranks have the same message, which contains all parts (separated by '|').
static inline void check_messages(const Outcome *outcomes, int world, const char *parts) {
    char copy[512], *rest = copy;
    snprintf(copy, sizeof copy, "%s", parts);
    for (char *part = strtok_r(copy, "|", &rest); part; part = strtok_r(NULL, "|", &rest))
        must_contain(outcomes[0].error.message, part);
    for (int r = 1; r < world; r++)
        assert_string_equal(outcomes[r].error.message, outcomes[0].error.message);
}

#endif
