/* 02-add-in-turn.grade.c: threads are started in a chosen order, each early enough to arrive before
 * the next. The sum of the chosen values depends on the order of additions, and so shows it.
 */
#include "tutorials/03-threads/exercises/02-add-in-turn.h"

#include <math.h>

#include "common/base/clock.h"
#include "common/base/memory.h"
#include "tutorials/grading/grading.h"

extern const Grader grader_03_02;

enum { SHARDS = 3, COUNT = 5 };

// (2^24 + 1) - 2^24 is 0 in floats, since 2^24 + 1 has 25 digits; in any other order it is 1.
static const float GRADIENTS[SHARDS][COUNT] = {
    {16777216.0f, 1.0f, 2.0f, 3.0f, 4.0f},
    {1.0f, 10.0f, 20.0f, 30.0f, 40.0f},
    {-16777216.0f, 100.0f, 200.0f, 300.0f, 400.0f},
};
static const float SUM[COUNT] = {0.0f, 111.0f, 222.0f, 333.0f, 444.0f};

typedef struct Scene {
    Grade *grade;
    Turn turn;
    float sum[COUNT + 1];  // the last must not change
    pthread_mutex_t mutex; // protects returned
    pthread_cond_t changed;
    bool returned[SHARDS];
} Scene;

typedef struct Actor {
    Scene *scene;
    int shard;
    const float *gradients;
    clockid_t clock; // of its thread's processor time
} Actor;

static void open_scene(Grade *grade, Scene *scene) {
    *scene = (Scene){.grade = grade,
                     .turn = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER,
                              .sum = scene->sum,
                              .count = COUNT},
                     .mutex = PTHREAD_MUTEX_INITIALIZER,
                     .changed = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i <= COUNT; i++) scene->sum[i] = 1000.0f; // old contents
    scene->sum[2] = NAN;
}

static void *act(void *argument) {
    Actor *actor = argument;
    Scene *scene = actor->scene;
    STUDENT(scene->grade, add_in_turn)(&scene->turn, actor->shard, actor->gradients);
    pthread_mutex_lock(&scene->mutex);
    scene->returned[actor->shard] = true;
    pthread_cond_broadcast(&scene->changed);
    pthread_mutex_unlock(&scene->mutex);
    return NULL;
}

static bool wait_for_return(Scene *scene, int shard, double seconds) {
    struct timespec deadline = clock_deadline(seconds);
    pthread_mutex_lock(&scene->mutex);
    int late = 0;
    while (!scene->returned[shard] && !late)
        late = pthread_cond_clockwait(&scene->changed, &scene->mutex, CLOCK_MONOTONIC, &deadline);
    bool returned = scene->returned[shard];
    pthread_mutex_unlock(&scene->mutex);
    return returned;
}

// Whether the shard's call returns within this time.
static bool has_returned(Scene *scene, int shard, double seconds) {
    bool returned = grade_plays(scene->grade) && wait_for_return(scene, shard, seconds);
    GRADE_OUT(scene->grade, returned);
    GRADE_OUT(scene->grade, scene->sum);
    GRADE_OUT(scene->grade, scene->turn.next);
    return returned;
}

// Uses the actor's gradients if set, otherwise GRADIENTS.
static void enter(Scene *scene, Actor *actor, int shard) {
    pthread_t thread;
    if (!grade_plays(scene->grade)) return;
    if (!actor->gradients) actor->gradients = GRADIENTS[shard];
    (void)STUDENT(scene->grade, add_in_turn); // loads the file, before there are several threads
    actor->scene = scene;
    actor->shard = shard;
    int failed = pthread_create(&thread, NULL, act, actor);
    CHECK(failed == 0, "no thread");
    pthread_getcpuclockid(thread, &actor->clock);
    pthread_detach(thread); // a hanging thread ends with the check's process
}

// Another thread that waits for the turn, as the task says.
typedef struct Listener {
    Turn *turn;
    pthread_cond_t listens;
    bool is_there, was_woken;
} Listener;

static void *listen_for_turn(void *argument) {
    Listener *self = argument;
    struct timespec deadline = clock_deadline(2.0);
    pthread_mutex_lock(&self->turn->mutex);
    self->is_there = true;
    pthread_cond_signal(&self->listens);
    self->was_woken = pthread_cond_clockwait(&self->turn->changed, &self->turn->mutex,
                                             CLOCK_MONOTONIC, &deadline) == 0;
    pthread_mutex_unlock(&self->turn->mutex);
    return NULL;
}

static void check_sum(Grade *grade, const Scene *scene) {
    for (size_t i = 1; i < COUNT; i++)
        GRADE_EXPECT(grade, scene->sum[i] == SUM[i],
                     "The sum of three shards is %g at %zu and should be %g.",
                     (double)scene->sum[i], i, (double)SUM[i]);
    GRADE_EXPECT(grade, scene->sum[0] == SUM[0],
                 "The sum is that of another order than shard 0, 1, 2.");
}

static void shard_zero(Grade *grade) {
    static Scene scene; // static: a thread that hangs may outlive this function
    static Actor actor;
    open_scene(grade, &scene);
    enter(&scene, &actor, 0);
    GRADE_EXPECT(grade, has_returned(&scene, 0, 2.0), "Shard 0, whose turn it was, never added.");
    GRADE_EXPECT(grade, scene.sum[1] != 1001.0f,
                 "The sum's old contents were added, too: shard 0 sets it.");
    GRADE_EXPECT(grade, scene.sum[1] == 1.0f && scene.sum[COUNT - 1] == 4.0f,
                 "After shard 0 the sum is its gradients, 1 to 4 at the end; yours has %g and %g.",
                 (double)scene.sum[1], (double)scene.sum[COUNT - 1]);
    GRADE_EXPECT(
        grade, !isnan(scene.sum[2]),
        "The sum contained a NaN before the call, and still does: 0 times NaN is NaN, too.");
    GRADE_EXPECT(grade, scene.sum[COUNT] == 1000.0f,
                 "Something was written behind the end of the sum, which has turn->count numbers.");
    bool is_free = grade_plays(grade) && pthread_mutex_trylock(&scene.turn.mutex) == 0;
    GRADE_OUT(grade, is_free);
    GRADE_EXPECT(
        grade, is_free,
        "The mutex was still locked when the function returned: no other thread can ever add.");
    GRADE_EXPECT(grade, scene.turn.next == 1,
                 "The turn was not passed on: after the addition turn->next is the next shard's "
                 "number.");
}

// While another thread holds the mutex, the turn and the sum belong to it.
static void locked(Grade *grade) {
    static Scene scene;
    static Actor actor;
    open_scene(grade, &scene);
    scene.turn.count = 2;
    pthread_mutex_lock(&scene.turn.mutex);
    enter(&scene, &actor, 0);
    GRADE_EXPECT(
        grade, !has_returned(&scene, 0, 0.05),
        "It read the turn without the mutex, which another thread had locked: lock it first.");
    pthread_mutex_unlock(&scene.turn.mutex);
    GRADE_EXPECT(grade, has_returned(&scene, 0, 2.0), "Shard 0, whose turn it was, never added.");
    GRADE_EXPECT(grade, scene.sum[1] == 1.0f && scene.sum[3] == 1000.0f,
                 "turn->count was 2: exactly 2 numbers must be added.");
}

static void in_order(Grade *grade) {
    static Scene scene;
    static Actor actors[SHARDS];
    open_scene(grade, &scene);
    for (int shard = 0; shard < SHARDS; shard++) {
        enter(&scene, &actors[shard], shard);
        GRADE_EXPECT(grade, has_returned(&scene, shard, 2.0),
                     "Shard %d, whose turn it was, never added.", shard);
    }
    check_sum(grade, &scene);
}

// Returns whether shard 0 timed out before passing the turn on. *last: its last sum at that time.
static int wait_for_many(Grade *grade, float *last) {
    enum { MANY = 1 << 24 };
    static Scene scene;
    static Actor actor;
    float *gradients = memory_zalloc(MANY * sizeof *gradients);
    gradients[MANY - 1] = 1.0f;
    open_scene(grade, &scene);
    scene.turn.sum = memory_zalloc(MANY * sizeof(float));
    scene.turn.count = MANY;
    actor.gradients = gradients;
    enter(&scene, &actor, 0);
    struct timespec deadline = clock_deadline(5.0);
    int late = 0;
    pthread_mutex_lock(&scene.turn.mutex);
    while (scene.turn.next == 0 && !late)
        late = pthread_cond_clockwait(&scene.turn.changed, &scene.turn.mutex, CLOCK_MONOTONIC,
                                      &deadline);
    *last = scene.turn.sum[MANY - 1];
    pthread_mutex_unlock(&scene.turn.mutex);
    return late;
}

// A thread that has waited for shard 1's turn finds all of shard 0's many numbers.
static void added_first(Grade *grade) {
    float last = 0;
    int late = 0;
    if (grade_plays(grade)) late = wait_for_many(grade, &last);
    GRADE_OUT(grade, last);
    GRADE_OUT(grade, late);
    GRADE_EXPECT(grade, !late, "Shard 0, whose turn it was, never added.");
    GRADE_EXPECT(grade, last == 1.0f,
                 "The turn was passed on before all numbers had been added: the next shard would "
                 "add at the same time.");
}

enum { LISTENERS = 2 };

// Returns the number of woken threads that waited for the turn.
static int count_woken(Grade *grade) {
    static Scene scene;
    Listener listeners[LISTENERS];
    pthread_t threads[LISTENERS];
    int woken = 0;
    open_scene(grade, &scene);
    for (int i = 0; i < LISTENERS; i++) {
        Listener *listener = &listeners[i];
        *listener = (Listener){.turn = &scene.turn, .listens = PTHREAD_COND_INITIALIZER};
        int failed = pthread_create(&threads[i], NULL, listen_for_turn, listener);
        CHECK(failed == 0, "no thread");
        pthread_mutex_lock(&scene.turn.mutex);
        while (!listener->is_there) pthread_cond_wait(&listener->listens, &scene.turn.mutex);
        pthread_mutex_unlock(&scene.turn.mutex); // from here on, it waits for `changed`
    }
    STUDENT(grade, add_in_turn)(&scene.turn, 0, GRADIENTS[0]);
    for (int i = 0; i < LISTENERS; i++) {
        pthread_join(threads[i], NULL);
        woken += listeners[i].was_woken;
    }
    return woken;
}

static void wakes(Grade *grade) {
    int woken = grade_plays(grade) ? count_woken(grade) : 0;
    GRADE_OUT(grade, woken);
    GRADE_EXPECT(grade, woken > 0,
                 "A thread that waited on turn->changed was not woken when the turn changed: to "
                 "look again from time to time is no way to wait.");
    GRADE_EXPECT(grade, woken == LISTENERS,
                 "The turn was passed on, but a thread that waited for it was not woken: "
                 "pthread_cond_broadcast.");
    added_first(grade);
}

static void too_early(Grade *grade) {
    static Scene scene;
    static Actor actors[SHARDS];
    open_scene(grade, &scene);
    for (int shard = SHARDS - 1; shard > 0; shard--) {
        enter(&scene, &actors[shard], shard);
        GRADE_EXPECT(grade, !has_returned(&scene, shard, 0.05),
                     "A shard added before its turn had come: wait until turn->next is its number. "
                     "(shard %d, before shard 0 was there)",
                     shard);
    }
    (void)has_returned(&scene, 1, 0.3);
    struct timespec used = {0};
    if (grade_plays(grade)) clock_gettime(actors[1].clock, &used);
    GRADE_OUT(grade, used);
    GRADE_EXPECT(
        grade, used.tv_sec == 0 && used.tv_nsec < 20 * 1000 * 1000,
        "A thread that waited kept a core busy: pthread_cond_wait sleeps until it is woken.");
    enter(&scene, &actors[0], 0);
    GRADE_EXPECT(grade, has_returned(&scene, 0, 2.0), "Shard 0, whose turn it was, never added.");
    GRADE_EXPECT(grade, has_returned(&scene, 1, 2.0),
                 "The turn was passed on, but a thread that waited for it was not woken: "
                 "pthread_cond_broadcast.");
    GRADE_EXPECT(grade, has_returned(&scene, 2, 2.0),
                 "Shard 2 waited for its turn and was never woken.");
    check_sum(grade, &scene);
}

static void woken_for_another(Grade *grade) {
    static Scene scene;
    static Actor actors[SHARDS];
    open_scene(grade, &scene);
    enter(&scene, &actors[2], 2);
    (void)has_returned(&scene, 2, 0.05);
    enter(&scene, &actors[0], 0);
    GRADE_EXPECT(grade, has_returned(&scene, 0, 2.0), "Shard 0, whose turn it was, never added.");
    GRADE_EXPECT(grade, !has_returned(&scene, 2, 0.05),
                 "A woken shard added although it was another's turn: look again, with while and "
                 "not if.");
    enter(&scene, &actors[1], 1);
    GRADE_EXPECT(grade, has_returned(&scene, 1, 2.0) && has_returned(&scene, 2, 2.0),
                 "After shards 2 and 0, shard 1 came, and not all of them ended.");
    check_sum(grade, &scene);
}

const Grader grader_03_02 = {
    "03-threads/02-add-in-turn",
    {{"shard 0", 2, NULL, shard_zero},
     {"the mutex protects the turn", 1, "shard 0", locked},
     {"three shards that come in order", 1, "shard 0", in_order},
     {"woken when it is another's turn", 3, "three shards that come in order", woken_for_another},
     {"waiting threads are woken", 1, "three shards that come in order", wakes},
     {"shards that come too early", 2, "three shards that come in order", too_early}}};
