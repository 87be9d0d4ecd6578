/* 01-save-load-remove.grade.c: each rank's calls, and the number of collectives before each. A
 * call of one rank happens before a call of another only if a barrier is between them.
 */
#include "tutorials/17-checkpoints/exercises/01-save-load-remove.h"

#include "tutorials/grading/grading.h"

extern const Grader grader_17_01;

enum { MOST_RANKS = 5 };

typedef struct Calls { // of one kind, by one rank
    size_t count, barriers_before;
    int place; // index among this rank's calls of all kinds, from 1
} Calls;

typedef struct Scene {
    Calls saves[MOST_RANKS], loads[MOST_RANKS], removes[MOST_RANKS];
    size_t barriers[MOST_RANKS];
    bool after_failure[MOST_RANKS]; // the rank made a call after a barrier had failed
} Scene;

typedef struct Player {
    Scene *scene;
    GradeRank *rank;
    int calls; // so far
} Player;

// A started collective counts when it was waited for.
static size_t barriers_over(const WatchLog *log) {
    size_t count = 0;
    for (size_t i = 0; i < log->count; i++) {
        const WatchEvent *event = &log->events[i];
        bool is_run = event->kind == WATCH_RUN && event->collective.kind == PG_BARRIER;
        count += is_run || event->kind == WATCH_WAIT;
    }
    return count;
}

static void note(Player *player, Calls *calls) {
    GradeRank *rank = player->rank;
    if (rank->err.status != STATUS_OK) player->scene->after_failure[rank->rank] = true;
    calls[rank->rank].count++;
    calls[rank->rank].barriers_before = barriers_over(rank->log);
    calls[player->rank->rank].place = ++player->calls;
}

static void save(void *context) {
    Player *player = context;
    note(player, player->scene->saves);
}

static void load(void *context) {
    Player *player = context;
    note(player, player->scene->loads);
}

static void remove_file(void *context) {
    Player *player = context;
    note(player, player->scene->removes);
}

static void run_rank(GradeRank *rank) {
    Scene *scene = rank->context;
    Player player = {scene, rank, 0};
    Storage storage = {&player, save, load, remove_file};
    rank->status = STUDENT(rank->grade, save_load_remove)(rank->group, &storage, &rank->err);
    scene->barriers[rank->rank] = watch_count(rank->log, PG_BARRIER);
}

static void alone(Grade *grade) {
    Scene s = {0};
    grade_ranks(grade, 1, run_rank, &s);
    GRADE_EXPECT(grade, s.saves[0].count == 1 && s.loads[0].count == 1 && s.removes[0].count == 1,
                 "Alone, rank 0 saves, loads and removes once each; yours: %zu, %zu and %zu times.",
                 s.saves[0].count, s.loads[0].count, s.removes[0].count);
    GRADE_EXPECT(grade, s.saves[0].place == 1 && s.loads[0].place == 2 && s.removes[0].place == 3,
                 "The order is: save, load, remove.");
}

static void who(Grade *grade) {
    for (int i = 1; i < 4; i++) {
        int world = GRADE_WORLDS[i];
        Scene s = {0};
        grade_ranks(grade, world, run_rank, &s);
        for (int r = 0; r < world; r++) {
            GRADE_EXPECT(grade, s.saves[r].count == (r == 0),
                         "Rank %d saved: all ranks write into one file at the same time. Only rank "
                         "0 may save.",
                         r);
            GRADE_EXPECT(grade, s.removes[r].count == (r == 0),
                         "Rank %d removed the file %zu times; only rank 0 may, once.", r,
                         s.removes[r].count);
            GRADE_EXPECT(grade, s.loads[r].count == 1,
                         "Rank %d loaded %zu times: every rank needs the weights, rank 0 too.", r,
                         s.loads[r].count);
        }
        GRADE_EXPECT(grade, s.loads[0].place == 2 && s.removes[0].place == 3,
                     "The order is: save, load, remove. (rank 0 of %d)", world);
    }
}

static void load_after_save(Grade *grade) {
    for (int i = 1; i < 4; i++) {
        int world = GRADE_WORLDS[i];
        Scene s = {0};
        grade_ranks(grade, world, run_rank, &s);
        for (int r = 1; r < world; r++)
            GRADE_EXPECT(grade, s.loads[r].barriers_before > s.saves[0].barriers_before,
                         "Rank %d may load before rank 0 has saved: no barrier stands between "
                         "them. (%d ranks)",
                         r, world);
    }
}

static void remove_after_load(Grade *grade) {
    for (int i = 1; i < 4; i++) {
        int world = GRADE_WORLDS[i];
        Scene s = {0};
        grade_ranks(grade, world, run_rank, &s);
        for (int r = 1; r < world; r++)
            GRADE_EXPECT(grade, s.removes[0].barriers_before > s.loads[r].barriers_before,
                         "Rank 0 may remove the file before rank %d has loaded it: no barrier "
                         "stands between them. (%d ranks)",
                         r, world);
        GRADE_EXPECT(grade, s.barriers[0] <= 3, // the third at the end
                     "Two barriers are needed, and a third may end it; yours are %zu, and in each "
                     "all wait for the "
                     "slowest.",
                     s.barriers[0]);
    }
    Scene broken = {0};
    grade_broken_ranks(grade, 2, run_rank, &broken);
    GRADE_EXPECT(grade, !broken.after_failure[0] && !broken.after_failure[1],
                 "A barrier had failed, and the file was loaded or removed nevertheless: how far "
                 "the other ranks are is unknown.");
}

const Grader grader_17_01 = {"17-checkpoints/01-save-load-remove",
                             {{"one rank", 1, NULL, alone},
                              {"who saves, loads, removes", 3, "one rank", who},
                              {"load after save", 3, "who saves, loads, removes", load_after_save},
                              {"remove after load", 3, "load after save", remove_after_load}}};
