/* 03-all-gather.grade.c: each rank holds one complete chunk and old numbers of its own. */
#include "tutorials/14-ring/exercises/03-all-gather.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_14_03;

enum { LENGTH = 3, LONG = 60000, MOST_RANKS = 5 }; // 240,000 bytes exceed a pair's buffer

typedef struct Scene {
    size_t length;
    float *memory[MOST_RANKS]; // [length], data, [1]
    float *data[MOST_RANKS];   // [world * length]
    WatchLog *logs[MOST_RANKS];
    bool may_fail; // the connection is lost
} Scene;

static float complete(int chunk, size_t i) {
    return (float)(65536 + 1024 * chunk + (int)(i % 1000));
}

// Guard values before chunk 0, which a negative remainder reaches, and behind the data.
static const float FRONT = -0.5f;

static float old(int rank) {
    return -(float)(rank + 1);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    const size_t length = scene->length;
    const size_t count = length * (size_t)rank->world;
    float *memory = scene->memory[rank->rank];
    float *data = memory + length;
    data[count] = FRONT;
    for (size_t i = 0; i < length; i++) memory[i] = FRONT;
    for (int chunk = 0; chunk < rank->world; chunk++)
        for (size_t i = 0; i < length; i++)
            data[(size_t)chunk * length + i] =
                chunk == (rank->rank + 1) % rank->world ? complete(chunk, i) : old(rank->rank);
    rank->status = STUDENT(rank->grade, ring_all_gather)(rank->group, data, length, &rank->err);
    GRADE_EXPECT(rank->grade, memory[0] == FRONT && memory[length - 1] == FRONT,
                 "Something was written in front of chunk 0: in C, -1 %% 3 is -1 and not 2. Add W "
                 "before you take the remainder.");
    GRADE_EXPECT(rank->grade, data[count] == FRONT, "Something was written behind the data.");
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
    GRADE_EXPECT(rank->grade, length < LONG || rank->err.status == STATUS_OK,
                 "All ranks send and none receives: with long messages they wait forever. (%d "
                 "ranks; rank %d's error: %s)",
                 rank->world, rank->rank, rank->err.message);
}

static void check_number(Grade *grade, const Scene *scene, int world, int rank, int chunk,
                         size_t i) {
    const float got = scene->data[rank][(size_t)chunk * scene->length + i];
    const float wanted = complete(chunk, i);
    for (int other = 0; other < world; other++) {
        GRADE_EXPECT(grade, other == rank || got != old(other),
                     "Rank r holds chunk r + 1, and sent another chunk, which is not complete. (%d "
                     "ranks, rank %d, chunk %d)",
                     world, rank, chunk);
        GRADE_EXPECT(grade, other == chunk || got != complete(other, i),
                     "A rank sent the same chunk in every round; the chunk that has just arrived "
                     "is sent next. (%d ranks, rank %d, chunk %d)",
                     world, rank, chunk);
    }
    GRADE_EXPECT(grade, got != wanted + old(rank),
                 "The received chunk was added: it is complete, and must replace the old numbers.");
    GRADE_EXPECT(grade,
                 got != old(rank) || watch_count(scene->logs[rank], PG_SEND) + 1 < (size_t)world,
                 "There were W - 1 rounds, and in one of them the wrong chunk was sent or received "
                 "(in C also the remainder of an unsigned number below 0 is another one: add W "
                 "before you take it). %d ranks: nothing came to rank %d for chunk %d.",
                 world, rank, chunk);
    GRADE_EXPECT(grade, got != old(rank),
                 "A round is missing: there are W - 1, and one chunk has not arrived everywhere. "
                 "(%d ranks, rank %d, chunk %d)",
                 world, rank, chunk);
    GRADE_EXPECT(grade, got == wanted, "%d ranks: rank %d has %g in chunk %d, and %g is right.",
                 world, rank, (double)got, chunk, (double)wanted);
}

static void check_log(Grade *grade, const WatchLog *log, int world, int rank) {
    const int right = (rank + 1) % world, left = (rank + world - 1) % world;
    size_t sends = watch_count(log, PG_SEND);
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
    GRADE_EXPECT(grade, sends < (size_t)world,
                 "There was a round too many: W - 1 are enough. (%d ranks: rank %d has sent %zu "
                 "messages)",
                 world, rank, sends);
    GRADE_EXPECT(grade, watch_bytes(log, PG_SEND) == sends * LENGTH * sizeof(float),
                 "A message is one chunk; rank %d has sent %zu bytes in %zu messages.", rank,
                 watch_bytes(log, PG_SEND), sends);
}

// Memory shared by the ranks.
static void scene_open(Scene *scene, int world, size_t length) {
    scene->length = length;
    for (int r = 0; r < world; r++) {
        scene->memory[r] = grade_shared((length + (size_t)world * length + 1) * sizeof(float));
        scene->logs[r] = grade_shared(sizeof(WatchLog));
    }
}

static void check(Grade *grade, int world, size_t length, bool judges_messages) {
    Scene scene = {0};
    scene_open(&scene, world, length);
    grade_ranks(grade, world, run_rank, &scene);
    for (int rank = 0; rank < world; rank++) {
        for (int c = 1; c <= world; c++) // its own complete chunk first
            for (size_t i = 0; i < length; i++)
                check_number(grade, &scene, world, rank, (rank + c) % world, i);
        if (judges_messages) check_log(grade, scene.logs[rank], world, rank);
    }
}

static void two_ranks(Grade *grade) {
    check(grade, 2, LENGTH, false);
}

static void all_worlds(Grade *grade) {
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], LENGTH, false);
}

static void neighbours(Grade *grade) {
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], LENGTH, true);
    Scene broken = {.may_fail = true};
    scene_open(&broken, 3, LENGTH);
    grade_broken_ranks(grade, 3, run_rank, &broken);
}

static void long_messages(Grade *grade) {
    check(grade, 2, LONG, false);
    check(grade, 3, LONG, false);
}

const Grader grader_14_03 = {"14-ring/03-all-gather",
                             {{"two ranks", 3, NULL, two_ranks},
                              {"one, three and five ranks", 3, "two ranks", all_worlds},
                              {"neighbours only", 2, "two ranks", neighbours},
                              {"long messages", 2, "two ranks", long_messages}}};
