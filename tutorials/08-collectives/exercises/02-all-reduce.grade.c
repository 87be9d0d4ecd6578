/* 02-all-reduce.grade.c: against a reference on every rank, never rank against rank only: ranks
 * that agree may all be wrong.
 */
#include "tutorials/08-collectives/exercises/02-all-reduce.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_08_02;

enum { COUNT = 103, ROOM = 4 * COUNT, MOST_RANKS = 5 }; // room for who counts bytes

typedef struct Scene {
    float (*number)(int rank, size_t i);
    float data[MOST_RANKS][ROOM];
    size_t sends, others; // of all ranks; sends of floats [COUNT]
    size_t counts[MOST_RANKS][3];
    bool behind_scratch[MOST_RANKS]; // something was written there
} Scene;

static float whole(int rank, size_t i) {
    return (float)(1 << rank) + (float)(64 * (i % 5));
}

static float rough(int rank, size_t i) {
    return sinf((float)(1 + i * MOST_RANKS) + (float)rank) *
           ldexpf(1.0f, (int)(((size_t)rank * 7 + i) % 11));
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    float scratch[ROOM] = {0};
    float *data = scene->data[rank->rank];
    for (size_t i = 0; i < ROOM; i++)
        data[i] = i < COUNT ? scene->number(rank->rank, i) : -1.0f - (float)rank->rank;
    rank->status =
        STUDENT(rank->grade, all_reduce_by_hand)(rank->group, data, scratch, COUNT, &rank->err);
    scene->behind_scratch[rank->rank] = scratch[COUNT] != 0;
    scene->counts[rank->rank][0] = watch_count(rank->log, PG_SEND);
    scene->counts[rank->rank][1] = watch_count(rank->log, PG_RECV);
    scene->counts[rank->rank][2] = watch_calls(rank->log);
}

static void play(Grade *grade, Scene *scene, int world, float (*number)(int, size_t)) {
    *scene = (Scene){.number = number};
    grade_ranks(grade, world, run_rank, scene);
    for (int r = 0; r < world; r++) {
        scene->sends += scene->counts[r][0];
        scene->others += scene->counts[r][2] - scene->counts[r][0] - scene->counts[r][1];
    }
}

static void check_number(Grade *grade, const Scene *scene, int world, int rank, size_t i) {
    float sum = 0, got = scene->data[rank][i];
    for (int r = 0; r < world; r++) sum += whole(r, i);
    GRADE_EXPECT(grade, got != 0.0f, "The sum is 0 on every rank: all agree, and all are wrong.");
    GRADE_EXPECT(grade, world == 1 || got != sum / (float)world,
                 "This is the mean of the ranks; their sum is wanted.");
    GRADE_EXPECT(
        grade, world == 1 || rank == 0 || got != whole(world - 1, i) || scene->counts[rank][1] == 0,
        "What was sent back are the last rank's numbers, which were received into "
        "scratch; the sum is in data.");
    GRADE_EXPECT(grade, world == 1 || rank == 0 || got != whole(rank, i),
                 "Only rank 0 has the sum; the other ranks still have their own numbers.");
    GRADE_EXPECT(grade, i < COUNT / 4 * 4 || got != whole(0, i) || world == 1,
                 "The last numbers were not added: count need not be a multiple of anything.");
    GRADE_EXPECT(grade, rank != 1 || got != whole(0, i) + whole(1, i) || world < 3,
                 "Rank 1 got a sum in which later ranks are missing: send when all have been "
                 "added.");
    GRADE_EXPECT(grade, got == sum, "%d ranks: rank %d has %g at %zu, and the sum is %g.", world,
                 rank, (double)got, i, (double)sum);
}

static void check_sums(Grade *grade, int world) {
    static Scene scene;
    play(grade, &scene, world, whole);
    for (int rank = 0; rank < world; rank++) {
        GRADE_EXPECT(grade, scene.data[rank][COUNT] == -1.0f - (float)rank,
                     "More than count numbers were sent and added: pg_send and pg_recv count "
                     "numbers, and not bytes.");
        for (size_t i = 0; i < COUNT; i++) check_number(grade, &scene, world, rank, i);
    }
    for (int rank = 0; rank < world; rank++)
        GRADE_EXPECT(grade, !scene.behind_scratch[rank],
                     "Something was written behind scratch, which has count numbers.");
}

static void two_ranks(Grade *grade) {
    check_sums(grade, 2);
}

static void all_worlds(Grade *grade) {
    check_sums(grade, 1);
    check_sums(grade, 3);
    check_sums(grade, 5);
    static Scene scene;
    scene = (Scene){.number = whole};
    grade_broken_ranks(grade, 3, run_rank, &scene);
}

static bool is_rounded_once(const Scene *scene, int world) {
    for (size_t i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < world; r++) sum += (double)rough(r, i);
        if (scene->data[0][i] != (float)sum) return false;
    }
    return true;
}

static void same_bits(Grade *grade) {
    static Scene scene;
    for (int world = 3; world <= 5; world += 2) {
        play(grade, &scene, world, rough);
        GRADE_EXPECT(grade, !is_rounded_once(&scene, world),
                     "The sums were kept in doubles and rounded once; the library adds floats, and "
                     "each addition rounds.");
        for (int rank = 0; rank < world; rank++)
            for (size_t i = 0; i < COUNT; i++) {
                float sum = rough(0, i);
                for (int r = 1; r < world; r++) sum += rough(r, i);
                GRADE_EXPECT(grade, scene.data[rank][i] == sum,
                             "The sum is right except for its last bits, which depend on the "
                             "order: rank 0, 1, 2. (on rank %d of %d)",
                             rank, world);
            }
    }
}

static void messages(Grade *grade) {
    static Scene scene;
    for (int i = 0; i < 4; i++) {
        size_t needed = 2 * ((size_t)GRADE_WORLDS[i] - 1);
        play(grade, &scene, GRADE_WORLDS[i], whole);
        GRADE_EXPECT(grade, scene.others == 0,
                     "This is the library's all-reduce; the exercise is to make one of sends and "
                     "receives.");
        GRADE_EXPECT(grade, scene.sends <= needed,
                     "%d ranks sent %zu messages, and 2 (W - 1) = %zu are enough.", GRADE_WORLDS[i],
                     scene.sends, needed);
    }
}

const Grader grader_08_02 = {"08-collectives/02-all-reduce",
                             {{"the sum on two ranks", 3, NULL, two_ranks},
                              {"one, three and five ranks", 2, "the sum on two ranks", all_worlds},
                              {"the same bits on all", 3, "one, three and five ranks", same_bits},
                              {"2 (W - 1) messages", 2, "the sum on two ranks", messages}}};
