/* symptoms.c: tutorial_symptoms: shows the symptoms of symptoms.md, and that they can be cured.
 *
 * Without --break every number is right; --break=NAME makes one mistake and prints its number, and
 * rank 0's error, if there is one. --only=NAME is the same without the mistake.
 */
#include "tutorials/symptoms/symptoms.h"

#include <pthread.h>
#include <string.h>

#include "common/base/memory.h"

static const char SUMMARY[] = "Makes the mistakes of tutorials/symptoms.md, one at a time.\n"
                              "Example: tutorial_symptoms --break=no-set-epoch";

static const Symptom *const LISTS[] = {
    SYMPTOMS_OF_SPEED,   SYMPTOMS_OF_DATA,     SYMPTOMS_OF_GRADIENTS, SYMPTOMS_OF_STATE,
    SYMPTOMS_OF_WAITING, SYMPTOMS_OF_MESSAGES, SYMPTOMS_OF_SHARDING};
enum { LIST_COUNT = sizeof LISTS / sizeof *LISTS };

void symptom_run(const SymptomRank *me, Collective collective) {
    Error err = {0};
    must_do(pg_run(me->group, collective, &err), &err);
}

double symptom_sum(const SymptomRank *me, double number) {
    symptom_run(me, pg_all_reduce(&number, 1, PG_F64, PG_SUM));
    return number;
}

// ---- all ranks ----------------------------------------------------------------------------------

typedef struct RankThread {
    SymptomRank rank;
    pthread_t thread;
    const Symptom *symptom;
    double number;
} RankThread;

static void *run_rank(void *argument) {
    RankThread *self = argument;
    self->number = self->symptom->run(&self->rank);
    pg_close(self->rank.group);
    return NULL;
}

// Returns rank 0's number; *err receives its error.
static double run(const Symptom *symptom, bool broken, Error *err) {
    Error failure = {0};
    int world = symptom->world;
    ProcessGroup **groups = memory_zalloc((size_t)world * sizeof *groups);
    RankThread *ranks = memory_zalloc((size_t)world * sizeof *ranks);
    double timeout = broken && symptom->timeout_s > 0 ? symptom->timeout_s : TIMEOUT_S;
    must_do(init_thread_groups(world, timeout, groups, &failure), &failure);
    for (int r = 0; r < world; r++) {
        SymptomRank rank = {r, world, groups[r], lesson_device(r), broken, {0}};
        ranks[r] = (RankThread){.rank = rank, .symptom = symptom};
        int failed = pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
        CHECK(failed == 0, "no thread for rank %d", r);
    }
    for (int r = 0; r < world; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < world; r++) device_close(ranks[r].rank.device);
    double number = ranks[0].number;
    *err = ranks[0].rank.err;
    free(ranks);
    free(groups);
    return number;
}

static void show(const Symptom *symptom, bool broken) {
    Error err = {0};
    double number = run(symptom, broken, &err);
    bool right = symptom->least <= number && number <= symptom->most;
    printf("%s: %s: %.6g (%s)\n", symptom->name, symptom->what, number, right ? "right" : "wrong");
    if (err.status != STATUS_OK) printf("    rank 0 was told: %s\n", err.message);
    fflush(stdout);
}

// ---- options ------------------------------------------------------------------------------------

// "all|slow|...": the words of an option, in memory that is the caller's.
static char *names(const char *first) {
    char *words = memory_format("%s", first);
    for (int i = 0; i < LIST_COUNT; i++)
        for (const Symptom *symptom = LISTS[i]; symptom->name; symptom++) {
            char *longer = memory_format("%s|%s", words, symptom->name);
            free(words);
            words = longer;
        }
    return words;
}

int main(int argc, char **argv) {
    Error err = {0};
    const char *broken = "none", *only = "all";
    char *breaks = names("none"), *onlies = names("all");
    Options options = {.program = "tutorial_symptoms", .summary = SUMMARY};
    options_add_choice(&options, "break", &broken, breaks, "make this mistake");
    options_add_choice(&options, "only", &only, onlies, "show this number, without the mistake");
    must_do(options_parse(&options, argc, argv, &err), &err);
    const char *wanted = strcmp(broken, "none") != 0 ? broken : only;
    for (int i = 0; i < LIST_COUNT; i++)
        for (const Symptom *symptom = LISTS[i]; symptom->name; symptom++)
            if (strcmp(wanted, "all") == 0 || strcmp(wanted, symptom->name) == 0)
                show(symptom, strcmp(broken, "none") != 0);
    free(breaks);
    free(onlies);
    return STATUS_OK;
}
