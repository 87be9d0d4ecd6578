/* data.c: symptoms of wrong sampling (which rank has which samples) and of wrong reports (numbers
 * of one rank printed as if of all).
 */
#include "tutorials/symptoms/symptoms.h"

#include <string.h>

#include "common/base/rng.h"
#include "ddp/distributed_sampler.h"

enum { TRAIN = 1500, TEST = 297, BATCH = 60 };

// The mistake: sampler_set_epoch is never called with the next epoch.
static double no_set_epoch(SymptomRank *me) {
    Sampler *sampler = must_get(
        distributed_sampler(TRAIN, BATCH, me->world, me->rank, true, false, 0, &me->err), &me->err);
    size_t first[TRAIN], count = sampler->start[sampler->batch_count], moved = 0;
    memcpy(first, sampler->indices, count * sizeof *first);
    sampler_set_epoch(sampler, me->broken ? 0 : 1);
    for (size_t i = 0; i < count; i++) moved += first[i] != sampler->indices[i];
    sampler_close(sampler);
    return (double)moved;
}

// The mistake: the sampler of training, which pads, deals out the test set.
static double padding(SymptomRank *me) {
    Sampler *sampler = me->broken ? distributed_sampler(TEST, BATCH, me->world, me->rank, false,
                                                        false, 0, &me->err)
                                  : sampler_evaluation(TEST, BATCH, me->world, me->rank);
    double counted = symptom_sum(me, (double)sampler->start[sampler->batch_count]);
    sampler_close(sampler);
    return counted;
}

// The mistake: every rank draws its noise with the same seed.
static double same_noise(SymptomRank *me) {
    enum { DRAWS = 100 };
    float mine[DRAWS], all[2 * DRAWS];
    uint64_t seed = me->broken ? 7 : 7 + (uint64_t)me->rank;
    int equal = 0;
    for (uint64_t i = 0; i < DRAWS; i++)
        mine[i] = rng_uniform(seed, RNG_STREAM_AUGMENT, i, -1.0f, 1.0f);
    symptom_run(me, pg_all_gather(mine, all, DRAWS, PG_F32));
    for (int i = 0; i < DRAWS; i++) equal += all[i] == all[DRAWS + i];
    return equal;
}

// The mistake: every rank prints the loss of its own rows.
static double prints(SymptomRank *me) {
    double loss = me->rank + 1.0, sum = symptom_sum(me, loss); // 1, 2, 3 and 4
    bool speaks = me->broken || me->rank == 0;
    if (speaks) printf("step=0 loss=%.2f\n", me->broken ? loss : sum / me->world);
    fflush(stdout);
    return symptom_sum(me, speaks);
}

const Symptom SYMPTOMS_OF_DATA[] = {
    {"no-set-epoch", "rank 0's samples at another position in the second epoch, of 750", 700, 750,
     2, no_set_epoch, 0},
    {"padding", "samples counted, of a test set of 297", TEST, TEST, 2, padding, 0},
    {"same-noise", "random numbers equal on both ranks, of 100", 0, 1, 2, same_noise, 0},
    {"prints", "lines for one step", 1, 1, 4, prints, 0},
    {0}};
