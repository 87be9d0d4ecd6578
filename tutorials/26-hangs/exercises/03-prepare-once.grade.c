/* 03-prepare-once.grade.c: a slow preparation that succeeds or fails. */
#include "tutorials/26-hangs/exercises/03-prepare-once.h"

#include <pthread.h>
#include <time.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_26_03;

enum { MOST_RANKS = 5 };

typedef struct Scene {
    bool succeeds;
    pthread_mutex_t mutex;                      // protects calls, over
    int calls, over;                            // calls and returns of prepare
    bool prepared[MOST_RANKS][sizeof(int64_t)]; // byte 0: the result; others unchanged
    bool called[MOST_RANKS], early[MOST_RANKS];
} Scene;

typedef struct Preparation { // context of a rank
    Scene *scene;
    int rank;
} Preparation;

static bool prepare(void *context) {
    Preparation *mine = context;
    struct timespec moment = {.tv_nsec = 100 * 1000 * 1000};
    mine->scene->called[mine->rank] = true;
    pthread_mutex_lock(&mine->scene->mutex);
    mine->scene->calls++;
    pthread_mutex_unlock(&mine->scene->mutex);
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&mine->scene->mutex);
    mine->scene->over++;
    pthread_mutex_unlock(&mine->scene->mutex);
    return mine->scene->succeeds;
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Preparation mine = {scene, rank->rank};
    bool *prepared = scene->prepared[rank->rank];
    for (size_t i = 0; i < sizeof(int64_t); i++) prepared[i] = rank->rank % 2 != 0;
    *prepared = !scene->succeeds;
    rank->status =
        STUDENT(rank->grade, prepare_once)(rank->group, prepare, &mine, prepared, &rank->err);
    pthread_mutex_lock(&scene->mutex);
    scene->early[rank->rank] = scene->over == 0;
    pthread_mutex_unlock(&scene->mutex);
}

static void check(Grade *grade, int world, bool succeeds) {
    Scene scene = {.succeeds = succeeds, .mutex = grade_mutex()};
    grade_ranks(grade, world, run_rank, &scene);
    GRADE_EXPECT(grade, scene.calls > 0, "No rank has called prepare.");
    int callers = 0;
    for (int r = 0; r < world; r++) callers += scene.called[r];
    GRADE_EXPECT(grade, callers > 1 || scene.calls == 1,
                 "One rank has called prepare %d times: a failure is reported to the other ranks, "
                 "not retried.",
                 scene.calls);
    GRADE_EXPECT(grade, scene.calls == 1, "%d ranks have called prepare; only rank 0 may call it.",
                 scene.calls);
    GRADE_EXPECT(grade, scene.called[0], "Another rank than 0 has called prepare.");
    for (int r = 0; r < world; r++)
        GRADE_EXPECT(grade, !scene.early[r],
                     "Rank %d went on before rank 0 was done: it would find half a file.", r);
    for (int r = 0; r < world; r++) {
        for (size_t i = 1; i < sizeof(int64_t); i++)
            GRADE_EXPECT(grade, scene.prepared[r][i] == (r % 2 != 0),
                         "More than *prepared was written: a bool is one byte, and a PG_I32 has "
                         "four.");
        GRADE_EXPECT(grade, succeeds || !scene.prepared[r][0],
                     "Rank 0 failed, and rank %d continues as if all were well.", r);
        GRADE_EXPECT(grade, scene.prepared[r][0] == succeeds,
                     "Rank 0 succeeded, and rank %d believes that it failed.", r);
    }
}

static void success(Grade *grade) {
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], true);
}

static void failure(Grade *grade) {
    for (int i = 0; i < 4; i++) check(grade, GRADE_WORLDS[i], false);
    Scene scene = {.succeeds = true, .mutex = grade_mutex()};
    grade_broken_ranks(grade, 2, run_rank, &scene);
}

const Grader grader_26_03 = {
    "26-hangs/03-prepare-once",
    {{"it succeeds", 4, NULL, success}, {"it fails", 6, "it succeeds", failure}}};
