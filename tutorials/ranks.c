/* ranks.c: rendezvous of the ranks, collectives, samples, and comparison of their numbers. */
#include "tutorials/ranks.h"

#include <string.h>

#include "common/base/memory.h"
#include "ddp/distributed_sampler.h"

ProcessGroup *ranks_join(Rendezvous *me, Lesson *lesson) {
    Error err = {0};
    if (init_from_env(me, true, &err) != 0) error_exit(&err); // no launcher: a single rank
    ProcessGroup *group = init_process_group("shm", me, NULL, lesson->timeout_s, &err);
    if (!group) error_exit(&err);
    const size_t fewer = lesson->uneven * (size_t)me->rank;
    lesson->quiet = me->rank > 0;
    lesson->steps -= fewer < lesson->steps ? fewer : lesson->steps;
    return group;
}

void ranks_run(ProcessGroup *group, Collective collective) {
    Error err = {0};
    if (pg_run(group, collective, &err) != 0) error_exit(&err);
}

PgWork *ranks_start(ProcessGroup *group, Collective collective) {
    Error err = {0};
    PgWork *work = pg_start(group, collective, &err);
    if (!work) error_exit(&err);
    return work;
}

void ranks_wait(PgWork **work) {
    Error err = {0};
    if (*work && pg_work_wait(*work, NULL, NULL, &err) != 0) error_exit(&err);
    *work = NULL;
}

// Whether this rank's parameter has other bits than rank 0's. Collective.
static bool is_different(ProcessGroup *group, const Tensor *mine) {
    size_t bytes = tensor_bytes(mine);
    void *other = memory_zalloc(bytes);
    memcpy(other, mine->data, bytes);
    ranks_run(group, pg_broadcast(other, bytes, PG_U8, 0)); // other = rank 0's parameter
    bool different = memcmp(other, mine->data, bytes) != 0;
    free(other);
    return different;
}

void ranks_print_whether_equal(ProcessGroup *group, Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    size_t different = 0;
    for (size_t k = 0; k < parameters.count; k++) {
        int32_t differs = is_different(group, parameters.items[k].tensor);
        ranks_run(group, pg_all_reduce(&differs, 1, PG_I32, PG_MAX)); // 1: on some rank
        different += differs != 0;
    }
    if (pg_rank(group) == 0 && different == 0) printf("replicas: equal\n");
    if (pg_rank(group) == 0 && different > 0)
        printf("replicas: DIFFERENT in %zu of %zu parameters\n", different, parameters.count);
    named_tensors_free(&parameters);
}

void ranks_share_samples(ProcessGroup *group, Lesson *lesson) {
    Error err = {0};
    const TrainConfig *config = &lesson->config;
    Sampler *sampler =
        distributed_sampler(lesson->data->train.count, config->global_batch, pg_size(group),
                            pg_rank(group), !config->no_shuffle, false, config->seed, &err);
    if (!sampler) error_exit(&err);
    lesson_use_sampler(lesson, sampler);
}

// ---- the ranks' numbers -------------------------------------------------------------------------

enum { MOST_RANKS = 64, FIRST_SAMPLES = 4 };

void ranks_print(ProcessGroup *group, const char *name, double number, int decimals) {
    double numbers[MOST_RANKS];
    CHECK(pg_size(group) <= MOST_RANKS, "%d ranks are too many to print", pg_size(group));
    ranks_run(group, pg_all_gather(&number, numbers, 1, PG_F64));
    for (int rank = 0; pg_rank(group) == 0 && rank < pg_size(group); rank++)
        printf("rank %d: %s%.*f\n", rank, name, decimals, numbers[rank]);
}

void ranks_print_collectives(const ProcessGroup *group, uint64_t before, size_t steps) {
    if (pg_rank(group) == 0)
        printf("collectives in a step: %zu\n", (size_t)(pg_sequence(group) - before) / steps);
}

void ranks_print_norm(const ProcessGroup *group, uint64_t before, double norm) {
    if (pg_rank(group) == 0)
        printf("collectives=%zu norm=%.6f\n", (size_t)(pg_sequence(group) - before), norm);
}

void ranks_print_all_collectives(const ProcessGroup *group, uint64_t before) {
    if (pg_rank(group) == 0) printf("collectives=%zu\n", (size_t)(pg_sequence(group) - before));
}

void ranks_print_part(const ProcessGroup *group, const Optimizer *optimizer, size_t share,
                      size_t count) {
    size_t begin = (size_t)pg_rank(group) * share, end = begin + share, states = 0;
    while (states < 2 && optimizer_state_name(optimizer, (int)states)) states++;
    printf("rank %d steps weights %zu to %zu of %zu, state_bytes=%zu\n", pg_rank(group), begin,
           end < count ? end : count, count, states * share * sizeof(float));
}

void ranks_print_running_mean(ProcessGroup *group, Module *model) {
    NamedTensors buffers = module_tensors(model, MODULE_BUFFERS);
    for (size_t k = 0; k < buffers.count; k++)
        if (strcmp(buffers.items[k].name, "bn1.running_mean") == 0)
            ranks_print(group,
                        "bn1.running_mean[0]=", (double)tensor_f32(buffers.items[k].tensor)[0], 6);
    named_tensors_free(&buffers);
}

static void print_first_samples(ProcessGroup *group, const Sampler *sampler) {
    int64_t own[FIRST_SAMPLES] = {0}, all[MOST_RANKS][FIRST_SAMPLES];
    CHECK(pg_size(group) <= MOST_RANKS, "%d ranks are too many to print", pg_size(group));
    for (size_t i = 0; i < FIRST_SAMPLES && i < sampler->start[sampler->batch_count]; i++)
        own[i] = (int64_t)sampler->indices[i];
    ranks_run(group, pg_all_gather(own, all, FIRST_SAMPLES, PG_I64));
    for (int rank = 0; pg_rank(group) == 0 && rank < pg_size(group); rank++)
        printf("  rank %d begins with samples %d, %d, %d, %d\n", rank, (int)all[rank][0],
               (int)all[rank][1], (int)all[rank][2], (int)all[rank][3]);
}

static size_t count_seen(ProcessGroup *group, const Sampler *sampler) {
    int32_t *seen = memory_zalloc(sampler->samples * sizeof *seen);
    size_t count = 0;
    for (size_t i = 0; i < sampler->start[sampler->batch_count]; i++) seen[sampler->indices[i]] = 1;
    ranks_run(group, pg_all_reduce(seen, sampler->samples, PG_I32, PG_MAX)); // 1: by some rank
    for (size_t i = 0; i < sampler->samples; i++) count += seen[i] != 0;
    free(seen);
    return count;
}

void ranks_print_epoch(ProcessGroup *group, const Lesson *lesson, double lr) {
    const Sampler *sampler = lesson->sampler;
    if (!lesson->show || (lesson->step - 1) % sampler->batch_count != 0) return;
    size_t seen = count_seen(group, sampler);
    if (pg_rank(group) == 0)
        printf("epoch %zu: %zu steps, %zu of %zu samples are seen, lr=%.4f\n",
               (lesson->step - 1) / sampler->batch_count, sampler->batch_count, seen,
               sampler->samples, lr);
    print_first_samples(group, sampler);
}
