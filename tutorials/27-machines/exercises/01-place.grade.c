/* 01-place.grade.c: equal nodes, unequal ones, and numbers out of range. */
#include "tutorials/27-machines/exercises/01-place.h"

#include <sys/mman.h>
#include <unistd.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_27_01;

// All ranks of the job, in order.
static void all_ranks(Grade *grade, const int *ranks_of_node, int nodes) {
    int rank = 0;
    for (int node = 0; node < nodes; node++)
        for (int local = 0; local < ranks_of_node[node]; local++, rank++) {
            Place got = GRADE_CALL(grade, place_of_rank, ranks_of_node, nodes, rank);
            GRADE_EXPECT(grade, got.node != local || got.local_rank != node || node == local,
                         "Rank %d was dealt out like a card, node after node; ranks are numbered "
                         "node by node.",
                         rank);
            GRADE_EXPECT(grade, got.node == node, "Rank %d is on node %d, and not on node %d.",
                         rank, node, got.node);
            GRADE_EXPECT(grade, got.local_rank != rank || local == rank,
                         "Rank %d is local rank %d: numbers on a node begin with 0, as its devices "
                         "do.",
                         rank, local);
            GRADE_EXPECT(grade, got.local_rank == local, "Rank %d is local rank %d, and not %d.",
                         rank, local, got.local_rank);
        }
}

static void one_node(Grade *grade) {
    all_ranks(grade, (int[]){4}, 1);
    all_ranks(grade, (int[]){1}, 1);
}

static void equal(Grade *grade) {
    all_ranks(grade, (int[]){2, 2}, 2);
    all_ranks(grade, (int[]){3, 3, 3}, 3);
    all_ranks(grade, (int[]){1, 1, 1, 1, 1}, 5);
}

static void unequal(Grade *grade) {
    all_ranks(grade, (int[]){8, 4}, 2);
    all_ranks(grade, (int[]){1, 2, 3, 1}, 4);
}

static void nobody(Grade *grade) {
    // Behind the last node is memory that cannot be read: reading there crashes.
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + page, page, PROT_NONE) != 0)
        grade_miss(grade, "There is no memory for two pages.");
    int *nodes = (int *)(void *)(memory + page) - 2;
    nodes[0] = 2, nodes[1] = 3;
    static const int NUMBERS[] = {5, 6, 100, -1, -5};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        Place got = GRADE_CALL(grade, place_of_rank, nodes, 2, NUMBERS[i]);
        GRADE_EXPECT(grade, got.node == -1 && got.local_rank == -1,
                     "No rank of 5 has the number %d, and it was put on node %d as %d.", NUMBERS[i],
                     got.node, got.local_rank);
    }
}

const Grader grader_27_01 = {"27-machines/01-place",
                             {{"one node", 2, NULL, one_node},
                              {"equal nodes", 3, "one node", equal},
                              {"unequal nodes", 3, "equal nodes", unequal},
                              {"numbers out of range", 2, "one node", nobody}}};
