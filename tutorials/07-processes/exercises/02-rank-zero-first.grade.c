/* 02-rank-zero-first.grade.c: a slow preparation detects a rank that does not wait. */
#include "tutorials/07-processes/exercises/02-rank-zero-first.h"

#include <pthread.h>
#include <time.h>

#include "tutorials/grading/grading.h"

extern const Grader grader_07_02;

typedef struct Scene {
    pthread_mutex_t mutex;   // protects the fields below
    int prepared, used;      // number of times
    bool too_early;          // used before it was prepared
    bool by_other;           // prepared by another rank than 0
    bool silent;             // a rank has used it without any collective
    bool used_after_failure; // a rank other than 0 has used it after its barrier failed
} Scene;

typedef struct Seat { // context of a rank's jobs
    Scene *scene;
    int rank;
    const Error *err; // filled by a failed barrier
    bool is_lost;     // the rank used the result after its barrier failed
} Seat;

static void prepare(void *context) {
    Seat *seat = context;
    struct timespec moment = {.tv_nsec = 30 * 1000 * 1000};
    nanosleep(&moment, NULL);
    pthread_mutex_lock(&seat->scene->mutex);
    seat->scene->prepared++;
    seat->scene->by_other = seat->scene->by_other || seat->rank != 0;
    pthread_mutex_unlock(&seat->scene->mutex);
}

static void use(void *context) {
    Seat *seat = context;
    pthread_mutex_lock(&seat->scene->mutex);
    seat->is_lost = seat->is_lost || seat->err->status != STATUS_OK;
    seat->scene->used++;
    seat->scene->too_early = seat->scene->too_early || seat->scene->prepared == 0;
    pthread_mutex_unlock(&seat->scene->mutex);
}

static void run_rank(GradeRank *rank) {
    Seat seat = {.scene = rank->context, .rank = rank->rank, .err = &rank->err};
    rank->status =
        STUDENT(rank->grade, rank_zero_first)(rank->group, prepare, use, &seat, &rank->err);
    pthread_mutex_lock(&seat.scene->mutex);
    seat.scene->silent = seat.scene->silent || watch_calls(rank->log) == 0;
    seat.scene->used_after_failure =
        seat.scene->used_after_failure || (rank->rank != 0 && seat.is_lost);
    pthread_mutex_unlock(&seat.scene->mutex);
}

static Scene play(Grade *grade, int world) {
    Scene scene = {.mutex = grade_mutex()};
    grade_ranks(grade, world, run_rank, &scene);
    return scene;
}

static void alone(Grade *grade) {
    Scene scene = play(grade, 1);
    GRADE_EXPECT(grade, scene.prepared == 1, "A rank alone prepares once, and not %d times.",
                 scene.prepared);
    GRADE_EXPECT(grade, !scene.too_early, "use was called before prepare, even on rank 0.");
}

static void once(Grade *grade) {
    for (int i = 1; i < 4; i++) {
        Scene scene = play(grade, GRADE_WORLDS[i]);
        GRADE_EXPECT(
            grade, scene.prepared < 2,
            "prepare was called more than once: only rank 0 may call it. (%d ranks, %d times)",
            GRADE_WORLDS[i], scene.prepared);
        GRADE_EXPECT(grade, scene.prepared == 1 && !scene.by_other,
                     "prepare was called on another rank than 0, or not at all.");
    }
}

static void in_order(Grade *grade) {
    for (int i = 1; i < 4; i++) {
        Scene scene = play(grade, GRADE_WORLDS[i]);
        GRADE_EXPECT(grade, !scene.too_early,
                     "A rank called use before prepare had ended: a barrier belongs between them.");
        GRADE_EXPECT(grade, !scene.silent,
                     "A rank continued without a message from rank 0: a fixed sleep does not "
                     "suffice, as rank 0 may take longer.");
    }
}

static void broken(Grade *grade) {
    Scene scene = {.mutex = grade_mutex()};
    grade_broken_ranks(grade, 2, run_rank, &scene);
    GRADE_EXPECT(grade, !scene.used_after_failure,
                 "The barrier failed, and a rank called use, though prepare may not have ended: "
                 "return -1 instead.");
}

static void by_all(Grade *grade) {
    for (int i = 0; i < 4; i++) {
        Scene scene = play(grade, GRADE_WORLDS[i]);
        GRADE_EXPECT(
            grade, scene.used >= GRADE_WORLDS[i],
            "A rank did not call use: every rank must call it, rank 0, too. (%d of %d did)",
            scene.used, GRADE_WORLDS[i]);
        GRADE_EXPECT(grade, scene.used == GRADE_WORLDS[i], "%d ranks used it %d times.",
                     GRADE_WORLDS[i], scene.used);
    }
}

const Grader grader_07_02 = {"07-processes/02-rank-zero-first",
                             {{"a rank alone", 1, NULL, alone},
                              {"prepared once, by rank 0", 3, "a rank alone", once},
                              {"never used too early", 3, "prepared once, by rank 0", in_order},
                              {"used by every rank", 2, "a rank alone", by_all},
                              {"a barrier that fails", 1, "used by every rank", broken}}};
