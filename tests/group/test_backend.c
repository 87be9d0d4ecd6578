/* test_backend.c: the group's queue, communication thread and records with a simulated backend, as
 * rank 0 of three. Single calls: test_backend_calls.c. Real backends: test_process_group.c.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/files.h"
#include "tests/rigs/peak_memory.h"
#include "tests/rigs/play_backend.h"
#include "tests/rigs/sanitizers.h"
#include "tests/rigs/temp_folder.h"

#include <errno.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "common/base/sync.h"
#include "common/base/trace.h"

static bool no_thread; // pthread_create fails

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument) {
    return no_thread ? EAGAIN : __real_pthread_create(thread, attributes, body, argument);
}

// ---- the queue ----------------------------------------------------------------------------------

// At most PG_MAX_WORKS works are outstanding, in the queue or (a single rank's) run by the caller;
// waiting for one frees its place in the pool.
static void the_pool_of_works_is_bounded(void **state) {
    (void)state;
    static PgWork *works[PG_MAX_WORKS];
    for (int world = 1; world <= 3; world += 2) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, world);
        for (int round = 0; round < 2; round++) {
            for (int w = 0; w < PG_MAX_WORKS; w++) {
                works[w] = pg_start(group, pg_barrier(), &err);
                CHECK_OK(works[w], err);
            }
            for (int w = 0; round == 0 && w < PG_MAX_WORKS; w++) {
                uint64_t begin_ns, end_ns;
                assert_int_equal(pg_work_wait(works[w], &begin_ns, &end_ns, &err), 0);
                assert_true(begin_ns > 0 && begin_ns <= end_ns);
            }
        }
        assert_int_equal(pg_work_wait(works[0], NULL, NULL, &err), 0);
        assert_non_null(pg_start(group, pg_barrier(), &err));
        assert_null(pg_start(group, pg_barrier(), &err));
        assert_string_equal(err.message, "rank 0: more than 1024 collectives are outstanding");
        assert_int_equal(pg_check_sound(group, &err), -1);
        pg_close(group);
    }
}

// An invalid subgroup breaks the group, but calls enqueued before it complete.
static void a_wrong_subgroup_spares_the_calls_before_it(void **state) {
    (void)state;
    static const struct Case {
        int ranks[2], count;
        bool is_member;
        const char *wrong; // the expected error; NULL: none
    } CASES[] = {{{2, 1}, 2, false, NULL},
                 {{2, 0}, 2, true, NULL},
                 {{2, 3}, 2, false, "rank 0: a subgroup with rank 3 of a group of 3"},
                 {{0, 0}, 2, false, "rank 0: a subgroup with rank 0 twice"},
                 {{0}, 0, false, "rank 0: a subgroup needs at least one rank"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Play play;
        PgWork *works[3];
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        play.slow = true;
        for (int w = 0; w < 3; w++) works[w] = pg_start(group, pg_barrier(), &err);
        ProcessGroup *inner = pg_new_subgroup(group, CASES[i].ranks, CASES[i].count, &err);
        assert_int_equal(inner != NULL, CASES[i].is_member);
        if (inner) assert_true(pg_size(inner) == 2 && pg_rank(inner) == 0);
        if (inner) assert_true(pg_global_rank(inner, 1) == 2);
        if (CASES[i].wrong) assert_string_equal(err.message, CASES[i].wrong);
        for (int w = 0; w < 3; w++) assert_int_equal(pg_work_wait(works[w], NULL, NULL, NULL), 0);
        assert_int_equal(pg_check_sound(group, NULL), CASES[i].wrong ? -1 : 0);
        pg_close(inner);
        pg_close(group);
    }
}

// If the communication thread cannot start, pg_start fails and breaks the group; pg_run needs no
// thread.
static void a_thread_that_cannot_start_breaks_the_group(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    no_thread = true;
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    assert_null(pg_start(group, pg_barrier(), &err));
    assert_int_equal(err.status, STATUS_FAILED);
    assert_string_equal(err.message, "rank 0: cannot start the communication thread: Resource "
                                     "temporarily unavailable");
    assert_int_equal(pg_run(group, pg_barrier(), &(Error){0}), -1);
    no_thread = false;
    assert_null(pg_start(group, pg_barrier(), &(Error){0}));
    diary_is(&play, "run 1; abort: rank 0: cannot start the communication thread: Resource "
                    "temporarily unavailable; ");
    pg_close(group);
}

// The group breaks after pg_start has issued the call to the device and before it enqueues the
// call: the work fails at once.
static void a_call_that_is_issued_while_the_group_breaks(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0); // starts the thread
    play.breaks = group;
    play.records = true; // recording does not delay the failure
    PgWork *work = pg_start(group, pg_barrier(), &err);
    CHECK_OK(work, err);
    pthread_mutex_lock(&group->mutex);
    assert_true(work->done && work->failed);
    pthread_mutex_unlock(&group->mutex);
    assert_int_equal(pg_work_wait(work, NULL, NULL, &err), -1);
    assert_string_equal(err.message, "a late failure");
    diary_is(&play, "issue; run 1; issue; abort: a late failure; ");
    pg_close(group);
}

// A call on a recording stream runs in the caller's thread: CUDA allows one recording thread.
static void a_call_that_is_recorded_has_run_when_it_is_issued(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    play.records = true;
    PgWork *work = pg_start(group, pg_barrier(), &err);
    diary_is(&play, "issue; run 1; ");
    assert_int_equal(pg_work_wait(work, NULL, NULL, &err), 0);
    pg_close(group);
}

// Calls queued behind a failed call get its error and are not passed to the backend. They are
// marked as failed before the next poll.
static void calls_behind_a_failed_one_fail(void **state) {
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        PgWork *works[4];
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 3);
        Error err = {0};
        play.fails_in = 2;
        pthread_mutex_lock(&play.gate);
        for (int w = 0; w < 4; w++) CHECK_OK(works[w] = pg_start(group, pg_barrier(), &err), err);
        play.behind = works[3];
        pthread_mutex_unlock(&play.gate);
        for (int w = 0; w < 4; w++) {
            uint64_t begin_ns, end_ns;
            const int status = pg_work_wait(works[w], &begin_ns, &end_ns, &err);
            if (w > 0) assert_int_equal(status, -1);
            assert_true(begin_ns > 0);
            if (w >= 2) assert_true(end_ns == begin_ns); // never ran
        }
        assert_string_equal(err.message, "a cable is loose");
        diary_is(&play, queued ? "issue; issue; issue; issue; run 1; run 2; abort: a cable is "
                                 "loose; "
                               : "run 1; run 2; abort: a cable is loose; ");
        pg_close(group);
    }
}

// Returns the number of polls since the last call of this function.
static int play_polls(Play *play) {
    pthread_mutex_lock(&play->mutex);
    const int polls = play->polls;
    play->polls = 0;
    pthread_mutex_unlock(&play->mutex);
    return polls;
}

// CPU time of the group's communication thread. (The process's would include OpenBLAS's spinning
// threads.)
static uint64_t processor_ns(const ProcessGroup *group) {
    clockid_t clock;
    struct timespec now;
    assert_int_equal(pthread_getcpuclockid(group->thread, &clock), 0);
    assert_int_equal(clock_gettime(clock, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// The communication thread of an idle group sleeps. With a backend that needs polling it wakes ten
// times a second when idle, and every millisecond with calls in flight.
static void an_idle_group_takes_no_processor(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, way ? &QUEUED : &SIMPLE, 3);
        play.holds = way == 2;
        PgWork *work = pg_start(group, pg_barrier(), &err);
        assert_int_equal(pg_work_wait(work, NULL, NULL, &err), 0);
        const uint64_t began = clock_ns(), before = processor_ns(group);
        play_polls(&play);
        nanosleep(&(struct timespec){.tv_nsec = 80000000}, NULL);
        const uint64_t ms = (clock_ns() - began) / 1000000;
        if (way < 2) assert_true(processor_ns(group) - before < 4000000);
        assert_in_range(play_polls(&play), 0, way == 2 ? ms + 2 : ms / 100 + 2);
        pthread_mutex_lock(&play.mutex);
        play.holds = false;
        pthread_mutex_unlock(&play.mutex);
        pg_close(group);
    }
}

// With a backend that enqueues on a device, waiting makes the stream wait for the call, which may
// still be in flight.
static void the_device_ends_calls_that_are_in_flight(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    float x[4] = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    assert_int_equal(pg_run(group, pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_SUM), 0), &err), 0);
    assert_int_equal(play.joined, 1);
    PgWork *works[3];
    for (int w = 0; w < 3; w++) works[w] = pg_start(group, pg_barrier(), &err);
    for (int w = 0; w < 3; w++) {
        uint64_t begin_ns, end_ns;
        assert_int_equal(pg_work_wait(works[w], &begin_ns, &end_ns, &err), 0);
        assert_true(begin_ns > 0 && end_ns == 0); // still in flight
    }
    assert_int_equal(play.joined, 4);
    pg_close(group); // drains the calls in flight
    assert_int_equal(play.flying_count, 0);
}

// A failed poll breaks the group even if no call is outstanding. Later calls return the error; no
// stream waits.
static void a_failure_of_the_device_breaks_the_group(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    pthread_mutex_lock(&play.mutex);
    play.holds = true;
    pthread_mutex_unlock(&play.mutex);
    assert_int_equal(pg_run(group, pg_barrier(), &err), 0);
    pthread_mutex_lock(&play.mutex);
    play.poll_fails = true;
    pthread_mutex_unlock(&play.mutex);
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 20000 && pg_check_sound(group, &err) == 0; i++) nanosleep(&pause, NULL);
    assert_string_equal(err.message, "the device is gone");
    err = (Error){0};
    assert_int_equal(pg_run(group, pg_barrier(), &err), -1);
    assert_string_equal(err.message, "the device is gone");
    assert_int_equal(play.joined, 1);
    pthread_mutex_lock(&play.mutex);
    play.flying_count = 0;
    pthread_mutex_unlock(&play.mutex);
    pg_close(group);
}

// ---- records ------------------------------------------------------------------------------------

static void has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("no %s in %s", part, text);
}

// A trace has each call's bytes and number; for a bucket also the time at which it was ready.
static void a_trace_has_each_call(void **state) {
    for (int queued = 0; queued < 2; queued++) {
        Play play;
        Error err = {0};
        float x[6] = {0};
        Trace *trace = trace_open(0, "rank");
        trace_track(trace, "another", 16);
        ProcessGroup *group = open_group(&play, queued ? &QUEUED : &SIMPLE, 3);
        pg_set_trace(group, trace, trace_track(trace, "comm", 16));
        Collective sum = pg_all_reduce(x, 6, PG_F32, PG_SUM);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pg_run(group, pg_broadcast(x, 5, PG_F32, 0), &err), 0);
        assert_int_equal(pg_totals(group).bucket_ns, 0);
        const uint64_t before = clock_ns();
        assert_int_equal(pg_run(group, pg_of_bucket(sum, 3), &err), 0);
        if (!queued) assert_in_range(pg_totals(group).bucket_ns, 1, clock_ns() - before);
        pg_close(group);
        char *path = temp_folder_path(state, "trace.json"), text[4096];
        assert_int_equal(trace_write(trace, path, &err), 0);
        FILE *file = fopen(path, "r");
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        free(path);
        has(text, "\"broadcast\"");
        has(text, "\"all_reduce\"");
        has(text, "\"bytes\": 20");
        has(text, "\"bytes\": 24");
        has(text, "\"bucket\": 3");
        const char *first = strstr(text, "\"broadcast\"");
        assert_true(strstr(first, "\"tid\": 1") < strchr(first, '\n'));
        const char *ready = strstr(text, "bucket is ready");
        assert_true(ready && !strstr(ready + 1, "bucket is ready")); // one event, of the bucket
        trace_close(trace);
    }
}

// Flight records that cannot be written are an error, and no part of them is left.
static void records_whose_name_is_in_use(void **state) {
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &SIMPLE, 3);
    char *path = temp_folder_path(state, "flight_world_rank_0.json");
    assert_int_equal(mkdir(path, 0700), 0); // occupies the file's name
    assert_int_equal(pg_write_flight(group, *state, &err), -1);
    assert_non_null(strstr(err.message, "/flight_world_rank_0.json: Is a directory"));
    assert_int_equal(count_files(*state, ""), 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(pg_write_flight(group, *state, &err), 0);
    assert_int_equal(count_files(*state, ""), 1);
    pg_close(group);
    free(path);
}

// ---- pg_close -----------------------------------------------------------------------------------

static int open_and_close_often(const char *unused) {
    (void)unused;
    for (int i = 0; i < 100; i++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_group(&play, &SIMPLE, 3);
        if (pg_run(group, pg_barrier(), &err) != 0 || pg_write_flight(group, NULL, &err) != 0)
            return 1;
        pg_close(group);
        // A group whose pipe cannot be created must not leak either.
        const PgOptions options = {.timeout_s = TIMEOUT_S, .flight_pipe = "/dev/null/"};
        if (pg_new(&SIMPLE, &play, 0, 3, &options, &err)) return 1;
    }
    return 0;
}

// Leaks would add up: a group takes several hundred KiB with its recorder, and so does a written
// record.
static void a_closed_group_leaves_no_memory(void **state) {
    (void)state;
    if (UNDER_ASAN || UNDER_TSAN) skip(); // freed memory is kept; ASan reports leaks itself
    assert_peak_below(8, open_and_close_often, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pool_of_works_is_bounded),
        cmocka_unit_test(a_wrong_subgroup_spares_the_calls_before_it),
        cmocka_unit_test(a_thread_that_cannot_start_breaks_the_group),
        cmocka_unit_test(a_call_that_is_issued_while_the_group_breaks),
        cmocka_unit_test(a_call_that_is_recorded_has_run_when_it_is_issued),
        cmocka_unit_test(calls_behind_a_failed_one_fail),
        cmocka_unit_test(an_idle_group_takes_no_processor),
        cmocka_unit_test(the_device_ends_calls_that_are_in_flight),
        cmocka_unit_test(a_failure_of_the_device_breaks_the_group),
        cmocka_unit_test_setup_teardown(a_trace_has_each_call, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test_setup_teardown(records_whose_name_is_in_use, temp_folder_make,
                                        temp_folder_remove),
        cmocka_unit_test(a_closed_group_leaves_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
