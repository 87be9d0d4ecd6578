/* 02-reduce-scatter.grade.c: known sums in the complete chunk, each message's sender and receiver,
 * the order of the sum, and messages larger than the buffer between two ranks.
 */
#include "tutorials/14-ring/exercises/02-reduce-scatter.h"

#include <math.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_14_02;

enum { LENGTH = 4, LONG = 60000, MOST_RANKS = 5 }; // 240,000 bytes exceed a pair's buffer

typedef struct Scene {
    size_t length;
    float (*number)(int rank, size_t place);
    float *memory[MOST_RANKS]; // [length], data, [1], [length] to receive into, [1]
    float *data[MOST_RANKS];   // [world * length]
    WatchLog *logs[MOST_RANKS];
    bool may_fail; // the connection is lost
} Scene;

// Guard values before chunk 0, which a negative remainder reaches, and behind data and scratch.
static const float FRONT = -0.5f;

static float whole(int rank, size_t place) {
    return (float)(1 << rank) + (float)(32 * (place % 64 + 1));
}

static float rough(int rank, size_t place) {
    return sinf((float)(1 + place * MOST_RANKS) + (float)rank) *
           ldexpf(1.0f, (int)(((size_t)rank * 7 + place) % 11));
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    const size_t count = scene->length * (size_t)rank->world;
    float *memory = scene->memory[rank->rank];
    float *data = memory + scene->length, *scratch = data + count + 1;
    data[count] = scratch[scene->length] = FRONT;
    for (size_t i = 0; i < scene->length; i++) memory[i] = FRONT;
    for (size_t i = 0; i < count; i++) data[i] = scene->number(rank->rank, i);
    rank->status = STUDENT(rank->grade, ring_reduce_scatter)(rank->group, data, scratch,
                                                             scene->length, &rank->err);
    GRADE_EXPECT(rank->grade, memory[0] == FRONT && memory[scene->length - 1] == FRONT,
                 "Something was written in front of chunk 0: in C, -1 %% 3 is -1 and not 2. Add W "
                 "before you take the remainder.");
    GRADE_EXPECT(rank->grade, data[count] == FRONT && scratch[scene->length] == FRONT,
                 "Something was written behind data or behind scratch: a chunk has %zu numbers.",
                 scene->length);
    GRADE_EXPECT(rank->grade, rank->world > 1 || watch_count(rank->log, PG_SEND) == 0,
                 "There was a round too many: W - 1 are enough. (one rank, which has sent "
                 "something)");
    scene->data[rank->rank] = data;
    *scene->logs[rank->rank] = *rank->log;
    GRADE_EXPECT(rank->grade,
                 rank->err.status == STATUS_OK || watch_count(rank->log, PG_SEND) > 0 ||
                     watch_count(rank->log, PG_RECV) == 0 || scene->may_fail,
                 "A rank waits for a message before it has sent one, and none comes: if all ranks "
                 "receive first, none ever sends. (%d ranks; rank %d's error: %s)",
                 rank->world, rank->rank, rank->err.message);
    GRADE_EXPECT(rank->grade, scene->length < LONG || rank->err.status == STATUS_OK,
                 "All ranks send and none receives: with long messages they wait forever. (%d "
                 "ranks; rank %d's error: %s)",
                 rank->world, rank->rank, rank->err.message);
}

// Memory shared by the ranks.
static void scene_open(Scene *scene, int world, size_t length) {
    scene->length = length;
    for (int r = 0; r < world; r++) {
        scene->memory[r] = grade_shared(((size_t)world * length + 2 * length + 2) * sizeof(float));
        scene->logs[r] = grade_shared(sizeof(WatchLog));
    }
}

static Scene play(Grade *grade, int world, size_t length, float (*number)(int, size_t)) {
    Scene scene = {.number = number};
    scene_open(&scene, world, length);
    grade_ranks(grade, world, run_rank, &scene);
    return scene;
}

// Element i of the chunk that rank holds at the end.
static void check_number(Grade *grade, const Scene *scene, int world, int rank, size_t i) {
    const int left = (rank + world - 1) % world, chunk = (rank + 1) % world;
    const size_t place = (size_t)chunk * scene->length + i;
    const float got = scene->data[rank][place], own = whole(rank, place);
    float sum = 0;
    for (int r = 0; r < world; r++) sum += whole(r, place);
    bool is_first = world > 1 && got != sum;
    bool has_rounds = watch_count(scene->logs[rank], PG_SEND) + 1 >= (size_t)world;
    GRADE_EXPECT(grade, !is_first || got != sum / (float)world,
                 "This is the mean of the ranks; their sum is wanted, and nothing is divided.");
    GRADE_EXPECT(grade, !is_first || got != whole(left, place),
                 "The received numbers replaced the rank's own: add them instead.");
    GRADE_EXPECT(grade, !is_first || got != own + whole(left, (size_t)left * scene->length + i),
                 "Rank r sent chunk r in every round; the chunk that has just grown is sent next.");
    GRADE_EXPECT(grade, !is_first || !has_rounds,
                 "There were W - 1 rounds, and in one of them the wrong chunk was sent or added to "
                 "(in C also the remainder of an unsigned number below 0 is another one: add W "
                 "before you take it). %d ranks: rank %d has %g in chunk %d, and the sum is %g.",
                 world, rank, (double)got, chunk, (double)sum);
    for (int missing = 0; missing < world; missing++)
        GRADE_EXPECT(grade, !is_first || (got != sum - whole(missing, place) && got != own),
                     "A round is missing: there are W - 1, and one rank has not been added. (%d "
                     "ranks, rank %d)",
                     world, rank);
    GRADE_EXPECT(grade, got == sum, "%d ranks: rank %d has %g in chunk %d, and the sum is %g.",
                 world, rank, (double)got, chunk, (double)sum);
}

static void check_sums(Grade *grade, int world) {
    Scene scene = play(grade, world, LENGTH, whole);
    for (int rank = 0; rank < world && world > 2; rank++)
        for (size_t e = 0; e < scene.logs[rank]->count; e++) {
            const Collective *c = &scene.logs[rank]->events[e].collective;
            bool sends = scene.logs[rank]->events[e].kind != WATCH_WAIT && c->kind == PG_SEND;
            GRADE_EXPECT(grade, !sends || c->root != (rank + world - 1) % world,
                         "The ring goes the other way: a rank sends to its right neighbour, rank + "
                         "1, and receives from its left one.");
        }
    for (int rank = 0; rank < world; rank++)
        for (size_t i = 0; i < LENGTH; i++) check_number(grade, &scene, world, rank, i);
}

static void two_ranks(Grade *grade) {
    check_sums(grade, 2);
}

static void all_worlds(Grade *grade) {
    for (int i = 0; i < 4; i++) check_sums(grade, GRADE_WORLDS[i]);
}

static void check_log(Grade *grade, const WatchLog *log, int world, int rank) {
    const int right = (rank + 1) % world, left = (rank + world - 1) % world;
    size_t sends = watch_count(log, PG_SEND), receives = watch_count(log, PG_RECV);
    for (size_t e = 0; e < log->count; e++) {
        const Collective *collective = &log->events[e].collective;
        if (log->events[e].kind == WATCH_WAIT) continue;
        GRADE_EXPECT(grade, collective->kind == PG_SEND || collective->kind == PG_RECV,
                     "This is a collective of the library; the exercise is to make one of sends "
                     "and receives.");
        GRADE_EXPECT(grade, collective->root == (collective->kind == PG_SEND ? right : left),
                     "A rank exchanged a message with a rank that is not its neighbour: a ring has "
                     "no central rank. (rank %d of %d, with rank %d)",
                     rank, world, collective->root);
    }
    GRADE_EXPECT(grade, sends < (size_t)world && receives < (size_t)world,
                 "There was a round too many: W - 1 are enough. (%d ranks: rank %d has sent %zu "
                 "messages)",
                 world, rank, sends);
    GRADE_EXPECT(grade, watch_bytes(log, PG_SEND) == sends * LENGTH * sizeof(float),
                 "A message is one chunk; rank %d has sent %zu bytes in %zu messages.", rank,
                 watch_bytes(log, PG_SEND), sends);
}

static void neighbours(Grade *grade) {
    for (int i = 0; i < 4; i++) {
        Scene scene = play(grade, GRADE_WORLDS[i], LENGTH, whole);
        for (int rank = 0; rank < GRADE_WORLDS[i]; rank++)
            check_log(grade, scene.logs[rank], GRADE_WORLDS[i], rank);
    }
    Scene broken = {.number = whole, .may_fail = true};
    scene_open(&broken, 3, LENGTH);
    grade_broken_ranks(grade, 3, run_rank, &broken);
}

static void order(Grade *grade) {
    for (int world = 3; world <= 5; world += 2) {
        Scene scene = play(grade, world, LENGTH, rough);
        for (int rank = 0; rank < world; rank++)
            for (size_t i = 0; i < LENGTH; i++) {
                const int chunk = (rank + 1) % world;
                const size_t place = (size_t)chunk * LENGTH + i;
                float sum = rough(chunk, place);
                for (int k = 1; k < world; k++) sum += rough((chunk + k) % world, place);
                GRADE_EXPECT(grade, scene.data[rank][place] == sum,
                             "The sum is right except for its last bits, which depend on the "
                             "order: chunk c begins at rank c and goes to the right. (%d ranks)",
                             world);
            }
    }
}

static void long_messages(Grade *grade) {
    for (int world = 2; world <= 3; world++) {
        Scene scene = play(grade, world, LONG, whole);
        check_number(grade, &scene, world, 0, 0);
        check_number(grade, &scene, world, world - 1, LONG - 1);
    }
}

const Grader grader_14_02 = {"14-ring/02-reduce-scatter",
                             {{"the sums of two ranks", 2, NULL, two_ranks},
                              {"one, three and five ranks", 2, "the sums of two ranks", all_worlds},
                              {"neighbours only", 2, "the sums of two ranks", neighbours},
                              {"the order of the sum", 2, "one, three and five ranks", order},
                              {"long messages", 2, "the sums of two ranks", long_messages}}};
