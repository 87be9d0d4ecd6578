/* test_subgroups.c: subgroups: every subset of 2 to 5 ranks, all open at once and overlapping;
 * collectives of several groups in different orders on different ranks; the errors of a subgroup
 * that breaks, while the other groups stay sound.
 *
 * Rank g of the job contributes 1 << g, so that a sum identifies the ranks that took part.
 */
#include "tests/rigs/ranks.h"
#include "tests/rigs/zeros_behind.h"

#include <dirent.h>

#define EXPECT(condition)                                                                \
    do {                                                                                 \
        if (!(condition)) problem(outcome, "line %d: not so: %s", __LINE__, #condition); \
    } while (0)

static bool over_mpi; // the argument is "mpi", under mpirun

static void on_threads_and_processes(RankBody *body, int world, const void *argument) {
    if (over_mpi) {
        play_ranks(AS_MPI, world, 60, body, argument, NULL);
        return;
    }
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++)
        if (mode == AS_THREADS || !UNDER_TSAN) play_ranks(mode, world, 60, body, argument, NULL);
}

static bool is_member(int mask, int rank) {
    return mask >> rank & 1;
}

// Lists a set's members in descending order; the group must number them in ascending order.
static int list_members(int mask, int world, int *ranks) {
    int count = 0;
    for (int r = world - 1; r >= 0; r--)
        if (is_member(mask, r)) ranks[count++] = r;
    return count;
}

static ProcessGroup *subgroup(ProcessGroup *parent, int mask, Outcome *outcome) {
    int ranks[RANKS_MAX], count = list_members(mask, pg_size(parent), ranks);
    Error err = {0};
    ProcessGroup *group = pg_new_subgroup(parent, ranks, count, &err);
    if (err.status) problem(outcome, "subgroup %x: %s", (unsigned)mask, err.message);
    EXPECT(!!group == is_member(mask, pg_rank(parent)));
    return group;
}

// ---- all subsets ----------------------------------------------------------------------------

static void check_collectives(ProcessGroup *group, int mask, int me, Outcome *outcome) {
    int32_t mine = 1 << me, sum = mine, gathered[RANKS_MAX], told = me;
    int size = pg_size(group), lowest = pg_global_rank(group, 0), place = 0;
    uint64_t before = pg_sequence(group);
    EXPECT(before == 0);
    if (pg_run(group, pg_all_reduce(&sum, 1, PG_I32, PG_SUM), &outcome->error) != 0 ||
        pg_run(group, pg_all_gather(&mine, gathered, 1, PG_I32), &outcome->error) != 0 ||
        pg_run(group, pg_broadcast(&told, 1, PG_I32, size - 1), &outcome->error) != 0 ||
        pg_run(group, pg_barrier(), &outcome->error) != 0)
        problem(outcome, "subgroup %x: %s", (unsigned)mask, outcome->error.message);
    EXPECT(sum == mask);
    for (int r = 0; r < RANKS_MAX; r++)
        if (is_member(mask, r)) EXPECT(gathered[place++] == 1 << r);
    EXPECT(place == size && told == pg_global_rank(group, size - 1));
    EXPECT(pg_sequence(group) == 4 && is_member(mask, lowest));
    EXPECT(pg_global_rank(group, pg_rank(group)) == me);
}

static void all_subsets(ProcessGroup *world, const void *argument, Outcome *outcome) {
    (void)argument;
    ProcessGroup *groups[1 << 5] = {NULL};
    int me = pg_rank(world), masks = 1 << pg_size(world);
    for (int mask = 1; mask < masks; mask++) groups[mask] = subgroup(world, mask, outcome);
    EXPECT(pg_sequence(world) == (uint64_t)masks - 1); // creating a group is a call of its parent
    for (int mask = 1; mask < masks; mask++)
        if (groups[mask]) check_collectives(groups[mask], mask, me, outcome);
    EXPECT(pg_sequence(world) == (uint64_t)masks - 1); // a subgroup's calls are not
    for (int mask = 1; mask < masks; mask++) pg_close(groups[mask]);
    int32_t sum = 1 << me;
    EXPECT(pg_run(world, pg_all_reduce(&sum, 1, PG_I32, PG_SUM), NULL) == 0 && sum == masks - 1);
}

static void test_every_subset(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world++) on_threads_and_processes(all_subsets, world, NULL);
}

// ---- collectives of several groups ----------------------------------------------------------

enum { ROUNDS = 30, COUNT = 5003 };

// Each rank starts with another group and waits in another order. Within a group, rounds have the
// same order on all ranks; between groups there is no order.
static void overlapping(ProcessGroup *world, const void *argument, Outcome *outcome) {
    (void)argument;
    int size = pg_size(world), me = pg_rank(world), all = (1 << size) - 1;
    const int masks[] = {all, all & ~1, all & ~(1 << (size - 1)), 1 << (size / 2), all};
    enum { GROUPS = sizeof masks / sizeof *masks };
    ProcessGroup *groups[GROUPS];
    float *data = memory_zalloc(GROUPS * COUNT * sizeof *data);
    for (int g = 0; g < GROUPS; g++) groups[g] = subgroup(world, masks[g], outcome);
    for (int round = 0; round < ROUNDS; round++) {
        PgWork *works[GROUPS] = {NULL};
        for (int turn = 0; turn < GROUPS; turn++) {
            int g = (turn + me + round) % GROUPS;
            if (!groups[g]) continue;
            for (size_t i = 0; i < COUNT; i++) data[g * COUNT + (int)i] = (float)(1 << me);
            works[g] = pg_start(groups[g], pg_all_reduce(&data[g * COUNT], COUNT, PG_F32, PG_SUM),
                                &outcome->error);
        }
        if (me == round % size) // the parent's barrier runs between start and wait
            EXPECT(pg_sequence(world) == GROUPS + (uint64_t)round);
        EXPECT(pg_run(world, pg_barrier(), &outcome->error) == 0);
        for (int g = 0; g < GROUPS; g++) {
            if (!groups[g]) continue;
            EXPECT(works[g] && pg_work_wait(works[g], NULL, NULL, &outcome->error) == 0);
            for (size_t i = 0; i < COUNT; i++) EXPECT(data[g * COUNT + (int)i] == (float)masks[g]);
        }
    }
    if (outcome->error.status) problem(outcome, "%s", outcome->error.message);
    for (int g = 0; g < GROUPS; g++) pg_close(groups[g]);
    free(data);
}

static void test_overlapping_groups_in_any_order(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world++) on_threads_and_processes(overlapping, world, NULL);
}

// A subgroup's shared memory is private to its members.
static void shared_memory(ProcessGroup *world, const void *argument, Outcome *outcome) {
    (void)argument;
    int me = pg_rank(world);
    ProcessGroup *odd = pg_split(world, me % 2, &outcome->error);
    EXPECT(odd != NULL);
    double *block = pg_shared_alloc(odd, COUNT * sizeof *block, &outcome->error);
    EXPECT(block != NULL);
    for (size_t i = 0; block && i < COUNT; i++) block[i] = (double)(1 << me) * (double)i;
    EXPECT(pg_run(odd, pg_all_reduce(block, COUNT, PG_F64, PG_SUM), &outcome->error) == 0);
    int members = 0;
    for (int r = me % 2; r < pg_size(world); r += 2) members |= 1 << r;
    for (size_t i = 0; i < COUNT; i++) EXPECT(block[i] == (double)members * (double)i);
    pg_close(odd);
}

static void test_shared_memory_of_a_subgroup(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world++) on_threads_and_processes(shared_memory, world, NULL);
}

// Open descriptors of this process while its other threads wait; counted on rank 0.
static int descriptors(ProcessGroup *world, Outcome *outcome) {
    int count = 0;
    EXPECT(pg_run(world, pg_barrier(), &outcome->error) == 0);
    if (pg_rank(world) == 0) {
        DIR *folder = opendir("/proc/self/fd");
        while (readdir(folder)) count++;
        closedir(folder);
    }
    EXPECT(pg_run(world, pg_barrier(), &outcome->error) == 0);
    return count;
}

// A segment's descriptor is closed as soon as the other ranks have opened it.
static void no_descriptor_is_left(ProcessGroup *world, const void *argument, Outcome *outcome) {
    (void)argument;
    const int before = descriptors(world, outcome);
    ProcessGroup *pair = subgroup(world, 1 << 0 | 1 << 1, outcome);
    ProcessGroup *other = subgroup(world, 1 << 0 | 1 << 2, outcome);
    EXPECT(pg_shared_alloc(world, 5000, &outcome->error));
    EXPECT(descriptors(world, outcome) == before);
    pg_close(pair);
    pg_close(other);
    EXPECT(descriptors(world, outcome) == before);
}

static void test_descriptors(void **state) {
    (void)state;
    if (!over_mpi) on_threads_and_processes(no_descriptor_is_left, 3, NULL);
}

// ---- splitting ------------------------------------------------------------------------------

static void split(ProcessGroup *world, const void *argument, Outcome *outcome) {
    (void)argument;
    int me = pg_rank(world), colors[] = {7, -1, 3, 7, 3};
    ProcessGroup *group = pg_split(world, colors[me], &outcome->error);
    EXPECT(outcome->error.status == STATUS_OK && !!group == (colors[me] >= 0));
    if (!group) return;
    int32_t sum = 1 << me;
    EXPECT(pg_size(group) == 2 && pg_rank(group) == (me > 2));
    EXPECT(pg_run(group, pg_all_reduce(&sum, 1, PG_I32, PG_SUM), &outcome->error) == 0);
    EXPECT(sum == (colors[me] == 7 ? 1 << 0 | 1 << 3 : 1 << 2 | 1 << 4));
    ProcessGroup *alone = pg_split(group, me, &outcome->error); // one rank, of a subgroup
    EXPECT(alone && pg_size(alone) == 1 && pg_global_rank(alone, 0) == me);
    pg_close(group);
    sum = 5;
    EXPECT(pg_run(alone, pg_all_reduce(&sum, 1, PG_I32, PG_SUM), &outcome->error) == 0);
    EXPECT(sum == 5);
    pg_close(alone);
}

static void test_split_by_color_and_again(void **state) {
    (void)state;
    on_threads_and_processes(split, 5, NULL);
}

// ---- errors ---------------------------------------------------------------------------------

static void must_contain(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

// Ranks 1 and 3 of four break their subgroup; the parent and a second subgroup of the same ranks
// still work.
static void go_wrong(ProcessGroup *world, const void *argument, Outcome *outcome) {
    const char *how = argument;
    int me = pg_rank(world);
    float x[4] = {0};
    Error err = {0};
    ProcessGroup *pair = subgroup(world, 1 << 1 | 1 << 3, outcome);
    ProcessGroup *other = subgroup(world, 1 << 1 | 1 << 3, outcome);
    if (pair && strcmp(how, "disagree") == 0)
        pg_run(pair, pg_all_reduce(x, me == 1 ? 3 : 4, PG_F32, PG_SUM), &outcome->error);
    if (pair && strcmp(how, "message") == 0)
        pg_run(pair, me == 1 ? pg_send(x, 2, PG_F32, 1) : pg_recv(x, 3, PG_F32, 0),
               &outcome->error);
    if (pair && strcmp(how, "root") == 0)
        pg_run(pair, pg_broadcast(x, 1, PG_F32, me == 1 ? 0 : 3), &outcome->error);
    if (pair && strcmp(how, "leave") == 0 && me == 1)
        pg_run(pair, pg_barrier(), &outcome->error);
    else if (pair && strcmp(how, "leave") == 0)
        pg_close(pair), pair = NULL;
    EXPECT(pg_run(world, pg_barrier(), &err) == 0);
    if (other) EXPECT(pg_run(other, pg_all_reduce(x, 4, PG_F32, PG_SUM), &err) == 0);
    if (err.status) problem(outcome, "a group beside it: %s", err.message);
    pg_close(pair);
    pg_close(other);
}

static void check_words(const char *how, const char *words, int ranks_that_know) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        Outcome outcomes[RANKS_MAX];
        play_ranks(mode, 4, 60, go_wrong, how, outcomes);
        for (int r = 0; r < 4; r++)
            if (ranks_that_know >> r & 1) must_contain(outcomes[r].error.message, words);
    }
}

static void test_errors_name_both_numbers_of_a_rank(void **state) {
    (void)state;
    check_words("disagree",
                "collective 1: ranks disagree: rank 0 (global 1) runs all_reduce(F32, 3, sum), "
                "rank 1 (global 3) runs all_reduce(F32, 4, sum)",
                1 << 1 | 1 << 3);
    check_words("message",
                "rank 0 (global 1) runs send(F32, 2, to rank 1), rank 1 (global 3) runs "
                "recv(F32, 3, from rank 0)",
                1 << 3);
    check_words("root",
                "global rank 3: rank 1 of 2: broadcast(F32, 1, root 3): there is no such rank",
                1 << 1 | 1 << 3);
    check_words("leave", "rank 1 (global 3) has closed its group", 1 << 1);
}

// ---- invalid subgroups ----------------------------------------------------------------------

typedef struct Request {
    int ranks[3], count;
} Request;

// Rank 1 passes `request`, the others pass ranks 0 and 1: no rank gets a group.
static void ask_in_vain(ProcessGroup *world, const void *argument, Outcome *outcome) {
    static const Request usual = {{0, 1}, 2};
    const Request *request = pg_rank(world) == 1 ? argument : &usual;
    ProcessGroup *group = pg_new_subgroup(world, request->ranks, request->count, &outcome->error);
    EXPECT(!group && outcome->error.status == STATUS_FAILED);
    EXPECT(pg_run(world, pg_barrier(), NULL) != 0);
}

static void check_refused(Request request, const char *words) {
    for (Mode mode = AS_THREADS; mode <= AS_PROCESSES; mode++) {
        if (mode == AS_PROCESSES && UNDER_TSAN) continue;
        Outcome outcomes[RANKS_MAX];
        play_ranks(mode, 3, 60, ask_in_vain, &request, outcomes);
        for (int r = 0; r < 3; r++) must_contain(outcomes[r].error.message, words);
    }
}

static void test_groups_that_cannot_be_made(void **state) {
    (void)state;
    check_refused((Request){{2, 1}, 2},
                  "collective 1: ranks disagree: rank 0 runs new_subgroup(ranks 0, 1), rank 1 runs "
                  "new_subgroup(ranks 1, 2)");
    check_refused((Request){{0}, 0}, "rank 1: a subgroup needs at least one rank");
    check_refused((Request){{0, 3}, 2}, "rank 1: a subgroup with rank 3 of a group of 3");
    check_refused((Request){{-1, 0}, 2}, "rank 1: a subgroup with rank -1 of a group of 3");
    check_refused((Request){{0, 1, 0}, 3}, "rank 1: a subgroup with rank 0 twice");
}

int main(int argc, char **argv) {
    over_mpi = argc > 1 && strcmp(argv[1], "mpi") == 0;
    if (over_mpi) join_mpi();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_subset),
        cmocka_unit_test(test_overlapping_groups_in_any_order),
        cmocka_unit_test(test_shared_memory_of_a_subgroup),
        cmocka_unit_test(test_split_by_color_and_again),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_errors_name_both_numbers_of_a_rank),
        cmocka_unit_test(test_groups_that_cannot_be_made),
    };
    // Over MPI, a broken group ends its process: mpi_ends.sh.
    const struct CMUnitTest whole[] = {tests[0], tests[1], tests[2], tests[3]};
    if (over_mpi) return cmocka_run_group_tests(whole, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
