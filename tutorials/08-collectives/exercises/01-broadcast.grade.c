/* 01-broadcast.grade.c: every root of every world: the data received, and the messages sent. */
#include "tutorials/08-collectives/exercises/01-broadcast.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_08_01;

enum { COUNT = 7, MOST_RANKS = 5 };

typedef struct Scene {
    int root;
    size_t count; // of each data; the floats behind them must not change
    float data[MOST_RANKS][COUNT];
    size_t sends[MOST_RANKS], receives[MOST_RANKS], others[MOST_RANKS], bytes[MOST_RANKS];
} Scene;

static float number(int rank, size_t i) {
    return (float)(100 * (rank + 1)) + (float)i;
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    int r = rank->rank;
    for (size_t i = 0; i < COUNT; i++) scene->data[r][i] = number(r, i);
    rank->status = STUDENT(rank->grade, broadcast_by_hand)(rank->group, scene->data[r],
                                                           scene->count, scene->root, &rank->err);
    scene->sends[r] = watch_count(rank->log, PG_SEND);
    scene->receives[r] = watch_count(rank->log, PG_RECV);
    scene->others[r] = watch_calls(rank->log) - scene->sends[r] - scene->receives[r];
    scene->bytes[r] = watch_bytes(rank->log, PG_SEND);
}

static void check_data(Grade *grade, int world, int root) {
    const size_t count = root == 1 ? COUNT - 4 : COUNT;
    Scene scene = {.root = root, .count = count};
    grade_ranks(grade, world, run_rank, &scene);
    for (int r = 0; r < world; r++) {
        GRADE_EXPECT(grade, scene.bytes[r] != 16 * count * scene.sends[r] || scene.bytes[r] == 0,
                     "pg_send counts numbers, and was given their bytes: four times as many.");
        GRADE_EXPECT(grade, root == 0 || scene.data[r][0] != number(0, 0),
                     "With another root than 0 the wrong data arrived: it is the root that sends. "
                     "(%d ranks, root %d)",
                     world, root);
        GRADE_EXPECT(grade,
                     r == root || scene.data[r][count - 1] != number(r, count - 1) ||
                         scene.data[r][0] == number(r, 0),
                     "The last number did not arrive: count floats are to be sent.");
        for (size_t i = count; i < COUNT; i++)
            GRADE_EXPECT(grade, scene.data[r][i] == number(r, i),
                         "Something was written behind the last of %zu numbers.", count);
        for (size_t i = 0; i < count; i++)
            GRADE_EXPECT(grade, scene.data[r][i] == number(root, i),
                         "%d ranks, root %d: rank %d has %g and should have the root's %g.", world,
                         root, r, (double)scene.data[r][i], (double)number(root, i));
    }
}

static void from_zero(Grade *grade) {
    for (int i = 0; i < 4; i++) check_data(grade, GRADE_WORLDS[i], 0);
}

static void broken(Grade *grade) {
    Scene scene = {.root = 0, .count = COUNT};
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

static void from_any(Grade *grade) {
    for (int i = 0; i < 4; i++)
        for (int root = 1; root < GRADE_WORLDS[i]; root++) check_data(grade, GRADE_WORLDS[i], root);
}

static void messages(Grade *grade) {
    for (int i = 0; i < 4; i++) {
        int world = GRADE_WORLDS[i], root = world - 1;
        Scene scene = {.root = root, .count = COUNT};
        grade_ranks(grade, world, run_rank, &scene);
        for (int r = 0; r < world; r++) {
            GRADE_EXPECT(grade, scene.others[r] == 0,
                         "This is the library's broadcast; the exercise is to make one of sends "
                         "and receives.");
            size_t sends = r == root ? (size_t)world - 1 : 0;
            GRADE_EXPECT(grade, r == root || scene.sends[r] == 0,
                         "Rank %d sent, and is not the root: the root itself sends to every other "
                         "rank. (%d ranks, root %d)",
                         r, world, root);
            GRADE_EXPECT(grade, scene.sends[r] <= sends,
                         "There are more messages than needed: one for each other rank, with all "
                         "numbers in it. (%d ranks: rank %d of root %d sent %zu)",
                         world, r, root, scene.sends[r]);
            GRADE_EXPECT(grade, scene.bytes[r] == sends * COUNT * sizeof(float),
                         "%d ranks: rank %d sent %zu bytes, and %zu are needed.", world, r,
                         scene.bytes[r], sends * COUNT * sizeof(float));
        }
    }
}

const Grader grader_08_01 = {"08-collectives/01-broadcast",
                             {{"from rank 0", 4, NULL, from_zero},
                              {"from any root", 3, "from rank 0", from_any},
                              {"sends, receives and bytes", 2, "from rank 0", messages},
                              {"a lost connection", 1, "from rank 0", broken}}};
