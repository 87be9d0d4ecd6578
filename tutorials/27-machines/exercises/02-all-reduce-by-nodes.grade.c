/* 02-all-reduce-by-nodes.grade.c: clusters of several shapes. Values are powers of two, so that a
 * wrong sum shows which rank is missing or was counted twice.
 */
#include "tutorials/27-machines/exercises/02-all-reduce-by-nodes.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_27_02;

enum { MOST_RANKS = 5, COUNT = 5 };

typedef struct Scene {
    int node_of[MOST_RANKS]; // ascending
    size_t count;            // numbers to be added; COUNT if 0
    float sums[MOST_RANKS][COUNT];
    size_t all_reduced[MOST_RANKS]; // bytes
    size_t calls[MOST_RANKS];
} Scene;

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    int me = rank->rank;
    bool first = me == 0 || scene->node_of[me] != scene->node_of[me - 1];
    float *numbers = scene->sums[me];
    size_t count = scene->count > 0 ? scene->count : COUNT;
    for (int i = 0; i < COUNT; i++) numbers[i] = (float)((1 << me) * (i + 1));
    static ProcessGroup *node, *firsts; // of this process, opened before it is confined
    if (!node) {
        node = pg_split(rank->group, scene->node_of[me], &rank->err);
        firsts = pg_split(rank->group, first ? 0 : -1, &rank->err);
    }
    if (rank->err.status != STATUS_OK) return;
    rank->status =
        STUDENT(rank->grade, all_reduce_by_nodes)(node, firsts, numbers, count, &rank->err);
    scene->all_reduced[me] = first ? 0 : watch_bytes(rank->log, PG_ALL_REDUCE);
    scene->calls[me] = watch_calls(rank->log);
}

static int sum_of_node(const Scene *scene, int world, int node) {
    int sum = 0;
    for (int r = 0; r < world; r++) sum += scene->node_of[r] == node ? 1 << r : 0;
    return sum;
}

static void check(Grade *grade, Scene scene, int world) {
    grade_ranks(grade, world, run_rank, &scene);
    int all = (1 << world) - 1;
    for (int r = world - 1; r >= 0; r--) {
        GRADE_EXPECT(grade,
                     scene.sums[r][0] >= (float)(1 << r) ||
                         scene.sums[r][0] == (float)(int)scene.sums[r][0],
                     "Rank %d has %g, which is less than its own number, %d: this is a mean, and "
                     "the sum is wanted.",
                     r, (double)scene.sums[r][0], 1 << r);
        int got = (int)scene.sums[r][0], own = sum_of_node(&scene, world, scene.node_of[r]);
        GRADE_EXPECT(grade, got == all || got != 1 << r,
                     "Rank %d still has its own numbers: the sum did not come back to it.", r);
        GRADE_EXPECT(grade, got == all || got != own,
                     "Rank %d has the sum of its own node: the other nodes are missing.", r);
        GRADE_EXPECT(grade, got == all || got != sum_of_node(&scene, world, 0),
                     "Rank %d has the sum of node 0: it was handed out, and the other nodes were "
                     "not added.",
                     r);
        GRADE_EXPECT(grade, got <= all,
                     "Rank %d has %d, and all numbers together are %d: some were added more than "
                     "once.",
                     r, got, all);
        GRADE_EXPECT(grade, got == all, "%d ranks: the sum is %d, and rank %d has %d.", world, all,
                     r, got);
        int count = scene.count > 0 ? (int)scene.count : COUNT;
        for (int i = count; i < COUNT; i++)
            GRADE_EXPECT(grade, (int)scene.sums[r][i] == (1 << r) * (i + 1),
                         "count was %d, and number %d was changed.", count, i);
        for (int i = 1; i < count; i++)
            GRADE_EXPECT(grade, (int)scene.sums[r][i] == all * (i + 1),
                         "Only a part of the numbers was added up: number %d is %g, not %d.", i,
                         (double)scene.sums[r][i], all * (i + 1));
    }
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, scene.all_reduced[r] == 0,
                     "Rank %d is not the first of its node and all-reduced %zu bytes: inside a "
                     "node, a reduce and a broadcast are enough.",
                     r, scene.all_reduced[r]);
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(
            grade, scene.calls[r] <= 3,
            "Rank %d called %zu collectives, and three are enough: each takes all numbers.", r,
            scene.calls[r]);
}

static void one_rank_each(Grade *grade) {
    check(grade, (Scene){.node_of = {0}}, 1);
    check(grade, (Scene){.node_of = {0, 1}}, 2);
    check(grade, (Scene){.node_of = {0, 1, 2}}, 3);
}

static void one_node(Grade *grade) {
    check(grade, (Scene){.node_of = {0, 0}}, 2);
    check(grade, (Scene){.node_of = {0, 0, 0, 0, 0}}, 5);
}

static void clusters(Grade *grade) {
    check(grade, (Scene){.node_of = {0, 0, 1, 1}}, 4);
    check(grade, (Scene){.node_of = {0, 0, 1, 1}, .count = 3}, 4);
    check(grade, (Scene){.node_of = {0, 0, 1}}, 3);
    check(grade, (Scene){.node_of = {0, 1, 1, 1, 2}}, 5);
    Scene apart = {.node_of = {0, 1}};
    grade_broken_ranks(grade, 2, run_rank, &apart);
}

const Grader grader_27_02 = {"27-machines/02-all-reduce-by-nodes",
                             {{"one rank on each node", 3, NULL, one_rank_each},
                              {"one node", 3, NULL, one_node},
                              {"several of each", 4, "one node", clusters}}};
