/* bench_allocations.c: counts the heap allocations of training steps. There should be none.
 *
 * The program replaces malloc and its relatives by ones that count (all threads: replicas, loader,
 * communication) and runs the real trainer with each strategy. The counter is read at the
 * end of every backward, by a wrapped strategy. Between the end of step 1's backward and the end of
 * the last step's are only training steps. Exit status 1 if anything was allocated in them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>

#include "common/base/memory.h"
#include "common/train/trainer.h"
#include "ddp/distributed_sampler.h"
#include "ddp/fsdp/fully_shard.h"
#include "ddp/fsdp/strategy_fsdp.h"
#include "ddp/strategy_ddp.h"
#include "dp/strategy_dp.h"

enum { STEPS = 20, WORLD = 2 };

// ---- a malloc that counts ------------------------------------------------------------------

// The one mutable global of the project: malloc has no argument to carry state in.
static pthread_mutex_t counter_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counter;

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static void count_one(void) {
    pthread_mutex_lock(&counter_mutex);
    counter++;
    pthread_mutex_unlock(&counter_mutex);
}

static uint64_t allocations(void) {
    pthread_mutex_lock(&counter_mutex);
    uint64_t value = counter;
    pthread_mutex_unlock(&counter_mutex);
    return value;
}

void *malloc(size_t bytes) {
    count_one();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    count_one();
    return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
    count_one();
    return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    count_one();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    count_one();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

// ---- a strategy that reads the counter -----------------------------------------------------

typedef struct Watch {
    Strategy strategy; // the watched one's table, with finish_backward replaced
    Strategy *inner;
    bool allocates; // once in each backward: the proof that it would be counted
    int steps;
    uint64_t after_first, after_last;
} Watch;

static int watch_backward(Strategy *self, Tape *tape, Error *err) {
    Watch *watch = (Watch *)self; // strategy is its first member
    int failed = watch->inner->finish_backward(self, tape, err);
    if (watch->allocates) free(memory_zalloc(1));
    watch->after_last = allocations();
    // The second step still belongs to the first in DDP: its buckets are rebuilt there, once.
    if (watch->steps++ == 1) watch->after_first = watch->after_last;
    return failed;
}

typedef struct Run {
    const char *model;
    const DataSource *data;
    ProcessGroup *group; // this rank's in DDP and fully_shard; NULL without
    int rank;
    bool more; // a step has two micro-batches in bfloat16, and clips
    bool allocates;
    uint64_t allocations;
    int steps;
} Run;

static void train(Run *run, Job *job) {
    Strategy *inner = job->strategy;
    Watch watch = {.strategy = *inner, .inner = inner, .allocates = run->allocates};
    watch.strategy.finish_backward = watch_backward;
    TrainConfig config = train_config_default();
    Options options = {.program = "bench_allocations"};
    Error err = {0};
    config.model = run->model;
    config.steps = STEPS;
    config.no_eval = true;
    config.log_every = 1000000;
    if (run->more) {
        config.amp = PRECISION_BF16;
        config.accumulate_steps = 2;
        config.clip_grad_norm = 0.1;
    }
    train_options(&options, &config);
    job->strategy = &watch.strategy;
    must_do(trainer_run(&config, &options, run->data, job, &err), &err);
    job->strategy = inner;
    run->allocations = watch.after_last - watch.after_first;
    CHECK(watch.steps == STEPS, "watched %d steps of %d", watch.steps, STEPS);
    run->steps = watch.steps - 2;
    job->close(job);
}

static Module *open_model(const Run *run, Device *device, Error *err) {
    TrainConfig config = train_config_default();
    config.model = run->model;
    return must_get(train_create_model(&config, run->data, device, run->rank, err), err);
}

static Device *open_device(int index, Error *err) {
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", index);
    return must_get(device_open(name, err), err);
}

static Sampler *open_sampler(const Run *run) {
    const TrainConfig config = train_config_default();
    const size_t samples = run->data->train.count, batch = config.global_batch;
    if (!run->group) return must_get(sampler_whole(samples, batch, true, false, 0, NULL), NULL);
    return must_get(distributed_sampler(samples, batch, WORLD, run->rank, true, false, 0, NULL),
                    NULL);
}

static void run_single(Run *run) {
    Error err = {0};
    Device *device = open_device(0, &err);
    train(run,
          job_single(strategy_single(open_model(run, device, &err), device, open_sampler(run))));
}

static void run_dp(Run *run) {
    Error err = {0};
    Device *devices[WORLD];
    for (int i = 0; i < WORLD; i++) devices[i] = open_device(i, &err);
    Module *model = open_model(run, devices[0], &err);
    Module *wrapper = must_get(data_parallel(model, devices, WORLD, &err), &err);
    train(run, job_dp(strategy_dp(wrapper, devices[0], open_sampler(run)), devices, WORLD));
}

static void *run_ddp_rank(void *argument) {
    Run *run = argument;
    Error err = {0};
    DdpConfig config = ddp_config_default();
    Device *device = open_device(run->rank, &err);
    Module *model = open_model(run, device, &err);
    Module *wrapper = must_get(distributed_data_parallel(model, run->group, &config, &err), &err);
    const Rendezvous me = {.rank = run->rank, .world_size = WORLD, .local_rank = run->rank};
    train(run, job_ddp(strategy_ddp(wrapper, device, open_sampler(run)), &me));
    return NULL;
}

static void *run_fsdp_rank(void *argument) {
    Run *run = argument;
    Error err = {0};
    FsdpOptions fsdp = {.config = fsdp_config_default()};
    if (run->more) fsdp.config.precision = PRECISION_BF16;
    Device *device = open_device(run->rank, &err);
    Module *model = open_model(run, device, &err);
    const FsdpModules units = fsdp_choose_units(model, "blocks");
    for (size_t i = 0; i < units.count; i++)
        must_do(fully_shard(units.items[i], run->group, &fsdp.config, &err), &err);
    free(units.items);
    must_do(fully_shard(model, run->group, &fsdp.config, &err), &err);
    const Rendezvous me = {.rank = run->rank, .world_size = WORLD, .local_rank = run->rank};
    train(run, job_fsdp(strategy_fsdp(model, &fsdp, device, open_sampler(run)), &me));
    return NULL;
}

static void run_ranks(Run *run, void *(*run_rank)(void *)) {
    Error err = {0};
    ProcessGroup *groups[WORLD];
    Run ranks[WORLD];
    pthread_t threads[WORLD];
    must_do(init_thread_groups(WORLD, 60, groups, &err), &err);
    for (int r = 0; r < WORLD; r++) {
        ranks[r] = *run;
        ranks[r].group = groups[r];
        ranks[r].rank = r;
        int failed = pthread_create(&threads[r], NULL, run_rank, &ranks[r]);
        CHECK(failed == 0, "cannot start the thread of rank %d", r);
    }
    for (int r = 0; r < WORLD; r++) pthread_join(threads[r], NULL);
    *run = ranks[0]; // the counter is the process's: both ranks are in it
}

static void run_ddp(Run *run) {
    run_ranks(run, run_ddp_rank);
}

static void run_fsdp(Run *run) {
    run_ranks(run, run_fsdp_rank);
}

// Each of the functions that allocate counts, and of one allocation in each step, each.
static void check_counter(void) {
    Error err = {0};
    void *aligned = NULL;
    const uint64_t before = allocations();
    // Volatile, because the compiler removes allocations that are only freed.
    void *volatile memory[] = {malloc(1), calloc(1, 1), realloc(NULL, 1), aligned_alloc(64, 64)};
    CHECK(posix_memalign(&aligned, 64, 64) == 0, "no memory for 64 bytes");
    const uint64_t counted = allocations() - before;
    for (int i = 0; i < 4; i++) free(memory[i]);
    free(aligned);
    CHECK(counted == 5, "counted %ju of 5 allocations", (uintmax_t)counted);
    DataSource *data = must_get(dataset_open("digits", 0, &err), &err);
    Run run = {.model = "mlp", .data = data, .allocates = true};
    run_single(&run);
    CHECK(run.allocations == STEPS - 2, "counted %ju allocations of %d", (uintmax_t)run.allocations,
          STEPS - 2);
    dataset_close(data);
}

int main(void) {
    const struct {
        const char *name;
        void (*run)(Run *run);
        bool more;
    } strategies[] = {{"single:1", run_single, false}, {"dp:2", run_dp, false},
                      {"ddp:2", run_ddp, false},       {"fsdp:2", run_fsdp, false},
                      {"ddp:2,more", run_ddp, true},   {"fsdp:2,more", run_fsdp, true}};
    const size_t count = sizeof strategies / sizeof *strategies;
    const struct {
        const char *model, *data;
    } cases[] = {{"mlp", "digits"}, {"convnet", "digits"}, {"segnet", "shapes:16x16@120"}};
    Error err = {0};
    uint64_t total = 0;
    printf("allocations in steps 2 to %d\n", STEPS - 1); // this also takes stdout's buffer
    check_counter();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        DataSource *data = must_get(dataset_open(cases[c].data, 0, &err), &err);
        for (size_t s = 0; s < count; s++) {
            Run run = {.model = cases[c].model, .data = data, .more = strategies[s].more};
            strategies[s].run(&run);
            CHECK(run.steps == STEPS - 2, "%s: %d steps were watched", run.model, run.steps);
            printf("model=%s strategy=%s steps=%d allocations=%llu\n", run.model,
                   strategies[s].name, run.steps, (unsigned long long)run.allocations);
            total += run.allocations;
        }
        dataset_close(data);
    }
    return total == 0 ? STATUS_OK : STATUS_FAILED;
}
