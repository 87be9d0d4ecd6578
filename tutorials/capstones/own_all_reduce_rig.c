/* own_all_reduce_rig.c: judges one property of an all-reduce of a student's own, through the path
 * by which train_ddp calls it.
 *
 *     ddprun --nproc-per-node 3 tutorial_capstone_all_reduce CHECK FILE
 *
 * A rank that detects a mistake prints "MISS " and a sentence, and the job ends with status 1.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory.h"
#include "common/own/own_file.h"
#include "ddp/group/own_sum.h"
#include "ddp/own/own_all_reduce.h"
#include "ddp/rendezvous/init.h"
#include "tutorials/capstones/rig.h"

enum { GUARD = 64 }; // floats before and behind the values

typedef struct Rig {
    ProcessGroup *group; // sums by the student's function
    ProcessGroup *apart; // the same ranks, for the rig alone
    int rank, size;
} Rig;

__attribute__((noreturn, format(printf, 1, 2))) static void miss(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char sentence[800];
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    printf("MISS %s\n", sentence);
    process_end(STATUS_FAILED);
}

// One sum of the values by the student's function. 0, or -1 with err filled.
static int sum(const Rig *rig, float *values, size_t count, ReduceOp op, Error *err) {
    Collective all = pg_of_bucket(pg_all_reduce(values, count, PG_F32, op), 0);
    PgWork *work = pg_start(rig->group, all, err);
    return work ? pg_work_wait(work, NULL, NULL, err) : -1;
}

// Powers of two by rank, so that a wrong sum shows which rank is missing or was added twice.
static float exact_of(int rank, size_t i) {
    return (float)(1 << (4 * rank)) * (float)(1 + i % 3);
}

static void tell_wrong(const Rig *rig, size_t count, size_t i, float found) {
    const double part = (double)found / (double)(1 + i % 3);
    for (int r = 0; r < rig->size; r++) {
        const long digit = (long)(part / pow(16, r)) % 16;
        if (part < 0 || part != floor(part) || digit == 1) continue;
        miss("Of %zu values on %d ranks, value %zu on rank %d has rank %d's number %ld times, and "
             "not "
             "once.",
             count, rig->size, i, rig->rank, r, digit);
    }
    miss("Of %zu values on %d ranks, value %zu on rank %d is %g: no sum of the ranks' numbers.",
         count, rig->size, i, rig->rank, (double)found);
}

static void check_count(const Rig *rig, size_t count) {
    Error err = {0};
    float *memory = memory_zalloc((count + 2 * GUARD) * sizeof *memory), *values = memory + GUARD;
    for (size_t i = 0; i < count + 2 * GUARD; i++) memory[i] = -77;
    for (size_t i = 0; i < count; i++) values[i] = exact_of(rig->rank, i);
    if (sum(rig, values, count, PG_SUM, &err) != 0)
        miss("The sum of %zu values on %d ranks failed: %s", count, rig->size, err.message);
    for (size_t i = 0; i < count; i++) {
        float wanted = 0;
        for (int r = 0; r < rig->size; r++) wanted += exact_of(r, i);
        if (values[i] != wanted) tell_wrong(rig, count, i, values[i]);
    }
    for (size_t i = 0; i < GUARD; i++)
        if (memory[i] != -77 || values[count + i] != -77)
            miss("Of %zu values on %d ranks, memory %s them was written on rank %d.", count,
                 rig->size, memory[i] != -77 ? "before" : "behind", rig->rank);
    free(memory);
}

static void check_sum(Rig *rig) {
    const size_t counts[] = {840, 60, 7, 1009, 16384, 700001};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) check_count(rig, counts[i]);
}

static void check_few(Rig *rig) {
    for (size_t count = 1; count <= 9; count++) check_count(rig, count);
}

// The caller of the sum computes the mean, once.
static void check_mean(Rig *rig) {
    Error err = {0};
    float values[24];
    for (int i = 0; i < 24; i++) values[i] = (float)rig->rank;
    if (sum(rig, values, 24, PG_AVG, &err) != 0) miss("The sum failed: %s", err.message);
    const float wanted = (float)(rig->size * (rig->size - 1) / 2) * (1.0f / (float)rig->size);
    for (int i = 0; i < 24; i++)
        if (values[i] != wanted)
            miss("The mean of the ranks' numbers on %d ranks is %g, expected %g: sum adds, and the "
                 "trainer divides.",
                 rig->size, (double)values[i], (double)wanted);
}

// Sums that round: all ranks must have the same bits, close to the sum in double.
static void check_bits(Rig *rig) {
    enum { COUNT = 1003 };
    static float values[COUNT], root[COUNT], own[COUNT];
    Error err = {0};
    for (size_t i = 0; i < COUNT; i++)
        own[i] = values[i] = sinf((float)i * 1.7f + (float)rig->rank) * (float)(1 + i % 7) / 3.0f;
    if (sum(rig, values, COUNT, PG_SUM, &err) != 0) miss("The sum failed: %s", err.message);
    memcpy(root, values, sizeof root);
    must_do(pg_run(rig->apart, pg_broadcast(root, COUNT, PG_F32, 0), &err), &err);
    for (size_t i = 0; i < COUNT; i++)
        if (memcmp(&values[i], &root[i], sizeof *root) != 0)
            miss(
                "Value %zu is %.9g on rank %d and %.9g on rank 0: each value is added in one order "
                "for all ranks, by one rank, and its sum is copied.",
                i, (double)values[i], rig->rank, (double)root[i]);
    double *wide = memory_zalloc(COUNT * sizeof *wide);
    for (size_t i = 0; i < COUNT; i++) wide[i] = (double)own[i];
    must_do(pg_run(rig->apart, pg_all_reduce(wide, COUNT, PG_F64, PG_SUM), &err), &err);
    for (size_t i = 0; i < COUNT; i++)
        if (fabs(wide[i] - (double)values[i]) > 1e-5)
            miss("Value %zu is %.9g, and the sum is %.9g.", i, (double)values[i], wide[i]);
    free(wide);
}

// Several sums at once: the second is queued while the first runs.
static void check_several(Rig *rig) {
    enum { SUMS = 6, COUNT = 500 };
    static float values[SUMS][COUNT];
    PgWork *works[SUMS];
    Error err = {0};
    for (int s = 0; s < SUMS; s++) {
        const size_t count = (size_t)(COUNT - 83 * s);
        for (size_t i = 0; i < count; i++) values[s][i] = exact_of(rig->rank, i);
        works[s] = pg_start(
            rig->group, pg_of_bucket(pg_all_reduce(values[s], count, PG_F32, PG_SUM), (size_t)s),
            &err);
        must_do(works[s] ? 0 : -1, &err);
    }
    for (int s = 0; s < SUMS; s++) {
        if (pg_work_wait(works[s], NULL, NULL, &err) != 0)
            miss("Sum %d of %d, each of another size, failed: %s", s + 1, SUMS, err.message);
        for (size_t i = 0; i < (size_t)(COUNT - 83 * s); i++) {
            float wanted = 0;
            for (int r = 0; r < rig->size; r++) wanted += exact_of(r, i);
            if (values[s][i] != wanted) tell_wrong(rig, (size_t)(COUNT - 83 * s), i, values[s][i]);
        }
    }
}

// No rank moves more than a ring's share: bytes sent and received, counted by the group.
static void check_volume(Rig *rig) {
    enum { COUNT = 60000 };
    static float values[COUNT];
    Error err = {0};
    uint64_t before = pg_moved_bytes(rig->group);
    if (sum(rig, values, COUNT, PG_SUM, &err) != 0) miss("The sum failed: %s", err.message);
    double moved = (double)(pg_moved_bytes(rig->group) - before), most = moved;
    must_do(pg_run(rig->apart, pg_all_reduce(&most, 1, PG_F64, PG_MAX), &err), &err);
    const double ring = 2.0 * 2.0 * (rig->size - 1) / rig->size * COUNT * sizeof(float);
    if (rig->rank == 0) printf("SPEED %.2f\n", most / ring);
    if (most > 1.1 * ring)
        miss("For %d values on %d ranks the busiest rank sends and receives %.0f bytes, a ring's "
             "ranks %.0f each: cut the values into as many chunks as there are ranks.",
             COUNT, rig->size, most, ring);
}

// The last rank leaves the job before its second sum: the others' sums fail with the group's error.
static void check_lost(Rig *rig) {
    Error err = {0};
    float values[100] = {0};
    if (sum(rig, values, 100, PG_SUM, &err) != 0) miss("The sum failed: %s", err.message);
    must_do(pg_run(rig->apart, pg_barrier(), &err), &err); // all ranks have completed the sum
    if (rig->rank == rig->size - 1) {
        error_set(&err, STATUS_FAILED, "rank %d is lost", rig->rank);
        (void)pg_abort(rig->group, &err);
    } else if (sum(rig, values, 100, PG_SUM, &err) == 0) {
        miss("Rank %d was lost, and the sum on rank %d returned 0.", rig->size - 1, rig->rank);
    } else if (!strstr(err.message, "is lost")) {
        miss(
            "The error after a lost rank is \"%s\": return -1 with the err that pg_run has filled.",
            err.message);
    }
    (void)pg_run(rig->apart, pg_barrier(), &(Error){0});
}

// The function must return an error of pg_run. Called directly, on a broken group.
static int (*direct)(ProcessGroup *group, float *values, size_t count, Error *err);

static void check_errors(Rig *rig) {
    Error err = {0}, cause = {0};
    float values[100] = {0};
    error_set(&cause, STATUS_FAILED, "the group is broken on purpose");
    (void)pg_abort(rig->group, &cause);
    if (direct(rig->group, values, 100, &err) == 0)
        miss("pg_run returned -1, and sum returned 0: an error is returned on, or the trainer "
             "continues with numbers that were never added.");
    if (!strstr(err.message, "on purpose"))
        miss("sum returned -1 without the err that pg_run has filled (\"%s\").", err.message);
    (void)pg_run(rig->apart, pg_barrier(), &(Error){0});
}

static const struct {
    const char *name;
    void (*run)(Rig *rig);
} CHECKS[] = {
    {"sum", check_sum},   {"few", check_few},         {"mean", check_mean},
    {"bits", check_bits}, {"several", check_several}, {"volume", check_volume},
    {"lost", check_lost}, {"errors", check_errors},
};

int main(int argc, char **argv) {
    Error err = {0};
    char *word = rig_take_word();
    Rendezvous me;
    if (argc != 3) {
        fprintf(stderr, "usage: tutorial_capstone_all_reduce CHECK FILE\n");
        return STATUS_USAGE;
    }
    const OwnAllReduce *file =
        own_file_load(argv[2], "own_all_reduce", OWN_ALL_REDUCE_VERSION, sizeof *file, &err);
    if (!file) miss("%s", err.message);
    direct = file->sum;
    must_do(init_from_env(&me, true, &err), &err);
    Device *device = must_get(device_open("cpu:0", &err), &err);
    Rig rig = {.rank = me.rank, .size = me.world_size};
    rig.group = must_get(init_process_group("shm", &me, device, 5, &err), &err);
    rig.apart = must_get(pg_split(rig.group, 0, &err), &err);
    must_do(pg_set_sum(rig.group, file->sum, &err), &err);
    for (size_t i = 0; i < sizeof CHECKS / sizeof *CHECKS; i++) {
        if (strcmp(CHECKS[i].name, argv[1]) != 0) continue;
        CHECKS[i].run(&rig);
        rig_end(word, rig.rank);
        return STATUS_OK;
    }
    fprintf(stderr, "there is no check %s\n", argv[1]);
    return STATUS_USAGE;
}
