/* test_group_parts.c: parts of a process group that need no ranks: messages about a disagreement
 * and about late ranks, shared memory segments and blocks, the list of backends, the watch over a
 * call, and a user's own sum.
 */
#include "tests/rigs/captured.h"
#include "tests/rigs/check.h"
#include "tests/rigs/files.h"
#include "tests/rigs/play_backend.h"
#include "tests/rigs/sanitizers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/group/backends.h"
#include "ddp/group/buffer.h"
#include "ddp/group/call_watch.h"
#include "ddp/group/debug_level.h"
#include "ddp/group/message.h"
#include "ddp/group/own_sum.h"
#include "ddp/group/shm/segment.h"

static float x[16];

// ---- error messages -----------------------------------------------------------------------------

// Each aspect alone, then all; in a subgroup the message has the ranks' global numbers.
static void a_disagreement_names_each_aspect(void **state) {
    (void)state;
    const int global[] = {4, 5, 6, 9};
    const PgCall call = {
        .operation = PG_REDUCE, .collective = pg_reduce(x, 8, PG_F32, PG_SUM, 1), .sequence = 5};
    const PgFingerprint first = pg_fingerprint(&call);
    const struct Case {
        PgFingerprint other;
        const char *runs, *aspects;
    } CASES[] = {
        {{6, 8, PG_REDUCE, PG_F32, PG_SUM, 1}, "reduce(F32, 8, sum, root 1)", "sequence number"},
        {{5, 8, PG_ALL_REDUCE, PG_F32, PG_SUM, 1}, "all_reduce(F32, 8, sum)", "operation"},
        {{5, 9, PG_REDUCE, PG_F32, PG_SUM, 1}, "reduce(F32, 9, sum, root 1)", "size"},
        {{5, 8, PG_REDUCE, PG_I32, PG_SUM, 1}, "reduce(I32, 8, sum, root 1)", "type"},
        {{5, 8, PG_REDUCE, PG_F32, PG_MAX, 1}, "reduce(F32, 8, max, root 1)", "reduction"},
        {{5, 8, PG_REDUCE, PG_F32, PG_SUM, 2}, "reduce(F32, 8, sum, root 2)", "root"},
        {{6, 9, PG_BROADCAST, PG_I32, PG_MAX, 2},
         "broadcast(I32, 9, root 2)",
         "sequence number, operation, size, type, reduction, root"},
    };
    Error err = {0};
    assert_int_equal(pg_fingerprint_compare(&call, &first, &first, 3, &err), 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char expected[400];
        err = (Error){0};
        assert_int_equal(pg_fingerprint_compare(&call, &first, &CASES[i].other, 3, &err), -1);
        snprintf(expected, sizeof expected,
                 "collective 5: ranks disagree: rank 0 runs reduce(F32, 8, sum, root 1), rank 3 "
                 "runs %s; they differ in %s",
                 CASES[i].runs, CASES[i].aspects);
        assert_string_equal(err.message, expected);
    }
    PgCall inside = call;
    inside.global = global;
    err = (Error){0};
    assert_int_equal(pg_fingerprint_compare(&inside, &first, &CASES[0].other, 3, &err), -1);
    check_message(&err, "rank 0 (global 4) runs reduce");
    check_message(&err, "rank 3 (global 9) runs reduce");
}

static void a_message_has_the_size_and_type_of_its_receive(void **state) {
    (void)state;
    const PgCall call = {.operation = PG_RECV, .collective = pg_recv(x, 7, PG_F32, 2)};
    const struct Case {
        uint64_t count;
        PgType type;
        const char *sent; // the message's call; NULL: it matches
    } CASES[] = {{7, PG_F32, NULL},
                 {8, PG_F32, "send(F32, 8, to rank 1)"},
                 {7, PG_I32, "send(I32, 7, to rank 1)"},
                 {0, PG_F64, "send(F64, 0, to rank 1)"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char expected[200];
        Error err = {0};
        const int status = pg_message_compare(&call, 1, CASES[i].count, (int)CASES[i].type, &err);
        assert_int_equal(status, CASES[i].sent ? -1 : 0);
        if (!CASES[i].sent) continue;
        snprintf(expected, sizeof expected,
                 "ranks disagree: rank 2 runs %s, rank 1 runs recv(F32, 7, from rank 2)",
                 CASES[i].sent);
        assert_string_equal(err.message, expected);
    }
}

static void late_ranks_are_listed(void **state) {
    (void)state;
    const struct Case {
        PgMonitor monitor;
        int ranks, added; // late ranks; ranks that the message has room for
        const char *message;
    } CASES[] = {
        {MONITOR_NONE, 1, 1, "rank 0 did not arrive within 1.5 s; "},
        {MONITOR_NONE, 3, 3, "rank 0, 1, 2 did not arrive within 1.5 s; "},
        {MONITOR_FIRST, 3, 1, "Rank 0 failed to pass monitoredBarrier in 1500 ms; "},
        {MONITOR_ALL, 1, 1, "Rank 0 failed to pass monitoredBarrier in 1500 ms; "},
        {MONITOR_ALL, 2, 2, "Ranks 0, 1 failed to pass monitoredBarrier in 1500 ms; "},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        const PgCall call = {.operation = PG_BARRIER,
                             .collective = pg_barrier(),
                             .timeout_s = 1.5,
                             .monitor = c->monitor};
        PgLate late = {.count = 0};
        PgMessage message = "";
        for (int r = 0; r < c->ranks; r++)
            assert_int_equal(pg_late_add(&late, &call, r), r < c->added);
        assert_int_equal(late.count, c->added);
        pg_message_add_late(message, &call, &late);
        assert_string_equal(message, c->message);
    }
}

static void a_call_is_named_by_its_number(void **state) {
    (void)state;
    PgMessage message = "", pair = "at ";
    pg_message_add_call(
        message, &(PgCall){.operation = PG_BARRIER, .collective = pg_barrier(), .sequence = 1});
    assert_string_equal(message, "collective 1 barrier");
    pg_message_add_call(pair,
                        &(PgCall){.operation = PG_SEND, .collective = pg_send(x, 3, PG_U8, 2)});
    assert_string_equal(pair, "at send(U8, 3, to rank 2)");
}

// ---- shared memory ------------------------------------------------------------------------------

static void blocks_are_whole_pages(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t cases[][2] = {{0, 1}, {1, 1}, {page, 1}, {page + 1, 2}, {2 * page, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(segment_whole_pages(cases[i][0]), cases[i][1] * page);
}

// A segment can be opened by its number until it is sealed, and is freed with its last user.
static void a_segment_is_open_until_it_is_sealed(void **state) {
    (void)state;
    const size_t bytes = segment_whole_pages(1);
    const int before = count_descriptors();
    Error err = {0};
    PgShmSegment *made = segment_create(bytes, &err);
    CHECK_OK(made, err);
    const int fd = made->fd;
    assert_true(fd >= 0 && made->bytes == bytes);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(made->base[i], 0);
    for (size_t asked = 0; asked <= bytes; asked += bytes) { // 0: any size
        PgShmSegment *found = segment_open(getpid(), fd, asked, &err);
        CHECK_OK(found, err);
        assert_true(found->bytes == bytes && found->fd == -1 && found->base != made->base);
        made->base[bytes - 1] = 7;
        assert_int_equal(found->base[bytes - 1], 7);
        made->base[bytes - 1] = 0;
        segment_release(found);
    }
    assert_null(segment_open(getpid(), fd, bytes + 1, &err));
    check_message(&err, "is not the shared memory that was announced");
    PgShmSegment *twice = segment_share(made);
    assert_ptr_equal(twice, made);
    segment_release(made);
    twice->base[0] = 1; // still mapped
    assert_int_equal(count_descriptors(), before + 1);
    segment_seal(twice);
    assert_int_equal(twice->fd, -1);
    segment_seal(twice);
    assert_int_equal(count_descriptors(), before);
    err = (Error){0};
    assert_null(segment_open(getpid(), fd, bytes, &err));
    check_message(&err, "cannot open the shared memory of process ");
    segment_release(twice);
    segment_release(NULL);
    assert_int_equal(count_descriptors(), before);
}

// Descriptor 0 is valid, in a process that has closed stdin.
static void a_segment_of_a_process_without_input(void **state) {
    (void)state;
    Error err = {0};
    const int input = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    PgShmSegment *made = segment_create(1, &err);
    CHECK_OK(made, err);
    assert_int_equal(made->fd, STDIN_FILENO);
    segment_seal(made);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    segment_release(made);
    if (input >= 0) assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    made = segment_create(1, &err);
    close(STDIN_FILENO);
    PgShmSegment *found = segment_open(getpid(), made->fd, 0, &err); // as descriptor 0
    CHECK_OK(found, err);
    segment_release(found);
    segment_release(made);
    if (input >= 0) assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    if (input >= 0) close(input);
}

// The kernel refuses the size or the address space: an error, and no descriptor leaks.
static void memory_that_cannot_be_had(void **state) {
    (void)state;
    const int before = count_descriptors();
    Error err = {0};
    assert_null(segment_create(SIZE_MAX, &err));
    check_message(&err, "cannot make 18446744073709551615 bytes of shared memory: ");
    err = (Error){0};
    assert_null(segment_create((size_t)1 << 60, &err));
    check_message(&err, "cannot map 1152921504606846976 bytes of shared memory: ");
    assert_int_equal(count_descriptors(), before);
}

enum { STRIDE = 64, BLOCKS = 3 };

// Two allocations with blocks of three ranks, as rank 1: only addresses in rank 1's block are
// found.
static void a_buffer_is_found_in_this_ranks_block(void **state) {
    (void)state;
    unsigned char *first = malloc(BLOCKS * STRIDE), *second = malloc(BLOCKS * STRIDE);
    SharedBlocks *list = NULL;
    blocks_add(&list, (SharedBlocks){.id = 4, .base = first, .stride = STRIDE, .rank = 1});
    blocks_add(&list, (SharedBlocks){.id = 9, .base = second, .stride = STRIDE, .rank = 1});
    const struct Case {
        const unsigned char *buffer;
        size_t bytes;
        uint64_t id; // 0: none
        size_t offset;
    } CASES[] = {
        {first + STRIDE, 0, 4, 0},
        {first + STRIDE, STRIDE, 4, 0},
        {first + STRIDE, STRIDE + 1, 0, 0},
        {first + STRIDE - 1, 1, 0, 0}, // in rank 0's block
        {first + STRIDE + 8, STRIDE - 8, 4, 8},
        {first + STRIDE + 8, STRIDE - 7, 0, 0},
        {first + 2 * STRIDE - 1, 1, 4, STRIDE - 1},
        {first + 2 * STRIDE, 0, 0, 0}, // in rank 2's block
        {second + STRIDE + 3, 1, 9, 3},
        {second, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct Case *c = &CASES[i];
        const SharedBlocks *found = blocks_find(list, c->buffer, c->bytes);
        assert_int_equal(found ? found->id : 0, c->id);
        if (!found) continue;
        assert_int_equal(blocks_offset(found, c->buffer), c->offset);
        assert_ptr_equal(blocks_own(found), found->base + STRIDE);
        for (int r = 0; r < BLOCKS; r++)
            assert_ptr_equal(blocks_peer(found, c->buffer, r),
                             found->base + r * STRIDE + c->offset);
    }
    blocks_free(&list);
    assert_null(list);
}

static void copies_of_nothing_and_onto_itself(void **state) {
    (void)state;
    unsigned char bytes[] = {1, 2, 3, 4};
    buffer_copy(NULL, NULL, 0);
    buffer_copy(bytes, bytes, sizeof bytes);
    assert_ptr_equal(buffer_at(bytes, 3, 1), bytes + 3);
    assert_ptr_equal(buffer_at(x, 3, sizeof *x), x + 3);
    buffer_copy(bytes, buffer_at(bytes, 2, 1), 2);
    assert_memory_equal(bytes, ((unsigned char[]){3, 4, 3, 4}), 4);
}

// ---- the list of backends -----------------------------------------------------------------------

static void levels_are_read_in_any_case(void **state) {
    (void)state;
    static const struct Case {
        const char *text; // NULL: unset
        int level;        // -1: an error
    } CASES[] = {
        {NULL, DEBUG_OFF},        {"", DEBUG_OFF}, {"OFF", DEBUG_OFF}, {"info", DEBUG_INFO},
        {"Detail", DEBUG_DETAIL}, {"details", -1}, {"1", -1}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        DebugLevel level = DEBUG_DETAIL;
        Error err = {0};
        unsetenv("TORCH_DISTRIBUTED_DEBUG");
        if (CASES[i].text) setenv("TORCH_DISTRIBUTED_DEBUG", CASES[i].text, 1);
        const int status = debug_level_read(&level, &err);
        unsetenv("TORCH_DISTRIBUTED_DEBUG");
        assert_int_equal(status, CASES[i].level < 0 ? -1 : 0);
        if (status == 0) assert_int_equal(level, CASES[i].level);
        if (status != 0) check_message(&err, "must be OFF, INFO, or DETAIL. (not '");
    }
}

static void backends_are_found_by_name(void **state) {
    (void)state;
    Error err = {0};
    assert_ptr_equal(pg_backend_find("shm", NULL, &err), &pg_opener_shm);
    assert_ptr_equal(pg_backend_find("auto", NULL, &err), &pg_opener_shm);
    if (pg_opener_mpi.built) assert_ptr_equal(pg_backend_find("mpi", NULL, &err), &pg_opener_mpi);
    assert_int_equal(err.status, STATUS_OK);
    assert_null(pg_backend_find("gloo", NULL, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(err.message, "unknown backend 'gloo': known are auto, shm, mpi, nccl");
    err = (Error){0};
    assert_null(pg_backend_find("nccl", NULL, &err)); // for host memory
    assert_int_equal(err.status, pg_opener_nccl.built ? STATUS_USAGE : STATUS_SKIPPED);
    check_message(&err, pg_opener_nccl.built ? "use --device cuda, not the host's memory"
                                             : "backend nccl is not built in (");
}

// A device whose functions are a GPU's but that is none.
static void gpus_have_a_backend_of_their_own(void **state) {
    (void)state;
    Error err = {0};
    Device *device = device_open("cpu:0", &err);
    CHECK_OK(device, err);
    Device gpu = *device;
    Kernels kernels = *device->kernels;
    kernels.is_addressable = false;
    gpu.kernels = &kernels;
    snprintf(gpu.name, sizeof gpu.name, "cuda:3");
    assert_ptr_equal(pg_backend_find("auto", device, &err), &pg_opener_shm);
    assert_null(pg_backend_find("shm", &gpu, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(err.message,
                        "backend shm cannot reach the memory of cuda:3: use --backend nccl");
    if (pg_opener_nccl.built) {
        assert_ptr_equal(pg_backend_find("auto", &gpu, &err), &pg_opener_nccl);
        assert_ptr_equal(pg_backend_find("nccl", &gpu, &err), &pg_opener_nccl);
    } else {
        err = (Error){0};
        assert_null(pg_backend_find("auto", &gpu, &err));
        assert_int_equal(err.status, STATUS_SKIPPED);
        assert_string_equal(err.message, "cuda:3 needs backend nccl, which is not built in");
    }
    device_close(device);
}

// ---- the watch over a call ----------------------------------------------------------------------

static void a_call_that_returns_is_forgotten(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) call_watch_end(call_watch_begin(NULL, "a call", 3600));
}

static void a_call_that_does_not_return_ends_the_process(void **state) {
    (void)state;
    if (UNDER_TSAN) skip(); // forks a process that has threads
    for (int has_reason = 0; has_reason < 2; has_reason++) {
        int status = 0;
        Captured captured = captured_begin();
        const pid_t child = fork();
        if (child == 0) {
            call_watch_begin(has_reason ? "the cable is cut" : NULL, "MPI_Init", 0.05);
            for (;;) pause();
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        char *printed = captured_end(&captured);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == STATUS_FAILED);
        assert_string_equal(
            printed, has_reason
                         ? "error: the cable is cut; and MPI_Init did not return within 0.05 s\n"
                         : "error: MPI_Init did not return within 0.05 s: are all ranks there?\n");
        free(printed);
    }
}

// ---- a user's own sum ---------------------------------------------------------------------------

static struct {
    int calls;
    const char *fails; // its error message; "": fails without one
    Collective inner;  // the collective that it runs or starts, unless `nothing`
    bool nothing, starts;
    bool inside; // own_sum_inside during the call
} summing;

static int sum_of_ours(ProcessGroup *group, float *values, size_t count, Error *err) {
    summing.calls++;
    summing.inside = own_sum_inside(group);
    for (size_t i = 0; i < count; i++) values[i] = 6;
    if (summing.fails) return *summing.fails ? error_set(err, STATUS_FAILED, summing.fails, 1) : -1;
    if (summing.nothing) return 0;
    if (summing.starts) return pg_start(group, summing.inner, err) ? 0 : -1;
    return pg_run(group, summing.inner, err);
}

static ProcessGroup *open_summing(Play *play, int size) {
    Error err = {0};
    ProcessGroup *group = open_group(play, &SIMPLE, size);
    memset(&summing, 0, sizeof summing);
    summing.nothing = true;
    CHECK_OK(pg_set_sum(group, sum_of_ours, &err) == 0, err);
    return group;
}

// The user's sum is called for float32 buckets with PG_SUM or PG_AVG only; an average is scaled
// afterwards.
static void buckets_are_summed_by_it(void **state) {
    (void)state;
    const Collective sum = pg_all_reduce(x, 4, PG_F32, PG_SUM);
    const struct Case {
        Collective collective;
        int size;
        float result; // 0: the backend reduces
    } CASES[] = {
        {pg_of_bucket(sum, 0), 3, 6},
        {pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_AVG), 2), 3, 6 * (float)(1.0 / 3)},
        {pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_MAX), 0), 3, 0},
        {pg_of_bucket(pg_all_reduce(x, 2, PG_F64, PG_SUM), 0), 3, 0},
        {pg_of_bucket(pg_reduce(x, 4, PG_F32, PG_SUM, 0), 0), 3, 0},
        {sum, 3, 0},
        {pg_of_bucket(sum, 0), 1, 0},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Play play;
        Error err = {0};
        const struct Case *c = &CASES[i];
        ProcessGroup *group = open_summing(&play, c->size);
        memset(x, 0, sizeof x);
        CHECK_OK(pg_run(group, c->collective, &err) == 0, err);
        const bool is_ours = c->result > 0;
        assert_int_equal(summing.calls, is_ours);
        assert_int_equal(summing.inside, is_ours);
        assert_false(own_sum_inside(group));
        for (int k = 0; k < 5; k++) assert_true(x[k] == (k < 4 ? c->result : 0));
        diary_is(&play, is_ours || c->size == 1 ? "" : "run 1; ");
        pg_close(group);
    }
}

static void it_sends_and_receives_only(void **state) {
    (void)state;
    const struct Case {
        Collective inner;
        bool starts;
        const char *says; // the error; NULL: allowed
    } CASES[] = {
        {pg_send(x, 1, PG_F32, 1), false, NULL},
        {pg_recv(x, 1, PG_F32, 2), false, NULL},
        {pg_barrier(), false, "own_all_reduce.sum called barrier: it runs on the communication"},
        {pg_send(x, 1, PG_F32, 1), true, "own_all_reduce.sum called pg_start of send: it runs"},
        {pg_recv(x, 1, PG_F32, 1), true, "own_all_reduce.sum called pg_start of recv: it runs"},
        {pg_send(x, 1, PG_F32, 0), false, "a rank cannot send to itself"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int awaited = 0; awaited < 2; awaited++) {
            Play play;
            Error err = {0};
            ProcessGroup *group = open_summing(&play, 3);
            const Collective bucket = pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_SUM), 0);
            summing.nothing = false;
            summing.starts = CASES[i].starts;
            summing.inner = CASES[i].inner;
            PgWork *work = awaited ? NULL : pg_start(group, bucket, &err);
            const int status =
                awaited ? pg_run(group, bucket, &err) : pg_work_wait(work, NULL, NULL, &err);
            assert_int_equal(status, CASES[i].says ? -1 : 0);
            if (CASES[i].says) check_message(&err, CASES[i].says);
            assert_int_equal(summing.calls, 1);
            pthread_mutex_lock(&play.mutex);
            const bool ran = strstr(play.diary, "run 0; ");
            pthread_mutex_unlock(&play.mutex);
            assert_int_equal(ran, !CASES[i].says);
            assert_int_equal(pg_check_sound(group, NULL), CASES[i].says ? -1 : 0);
            pg_close(group);
        }
}

static void its_failure_is_the_groups(void **state) {
    (void)state;
    static const char *const WORDS[] = {"the ring is cut in %d place", ""};
    for (int i = 0; i < 2; i++) {
        Play play;
        Error err = {0};
        ProcessGroup *group = open_summing(&play, 3);
        summing.fails = WORDS[i];
        assert_int_equal(pg_run(group, pg_of_bucket(pg_all_reduce(x, 4, PG_F32, PG_SUM), 0), &err),
                         -1);
        assert_string_equal(err.message, i == 0 ? "the ring is cut in 1 place"
                                                : "own_all_reduce.sum failed and did not say why");
        assert_false(own_sum_inside(group));
        pg_close(group);
    }
}

static void a_device_that_sums_itself_refuses_it(void **state) {
    (void)state;
    Play play;
    Error err = {0};
    ProcessGroup *group = open_group(&play, &QUEUED, 3);
    assert_int_equal(pg_set_sum(group, sum_of_ours, &err), -1);
    assert_int_equal(err.status, STATUS_USAGE);
    assert_string_equal(
        err.message, "--all-reduce sums in the host's memory, and queue's gradients are on GPUs");
    pg_close(group);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disagreement_names_each_aspect),
        cmocka_unit_test(a_message_has_the_size_and_type_of_its_receive),
        cmocka_unit_test(late_ranks_are_listed),
        cmocka_unit_test(a_call_is_named_by_its_number),
        cmocka_unit_test(blocks_are_whole_pages),
        cmocka_unit_test(a_segment_is_open_until_it_is_sealed),
        cmocka_unit_test(a_segment_of_a_process_without_input),
        cmocka_unit_test(memory_that_cannot_be_had),
        cmocka_unit_test(a_buffer_is_found_in_this_ranks_block),
        cmocka_unit_test(copies_of_nothing_and_onto_itself),
        cmocka_unit_test(levels_are_read_in_any_case),
        cmocka_unit_test(backends_are_found_by_name),
        cmocka_unit_test(gpus_have_a_backend_of_their_own),
        cmocka_unit_test(a_call_that_returns_is_forgotten),
        cmocka_unit_test(a_call_that_does_not_return_ends_the_process),
        cmocka_unit_test(buckets_are_summed_by_it),
        cmocka_unit_test(it_sends_and_receives_only),
        cmocka_unit_test(its_failure_is_the_groups),
        cmocka_unit_test(a_device_that_sums_itself_refuses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
