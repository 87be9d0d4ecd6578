/* bench_allreduce.c: how fast a group's all_reduce is, from 4 bytes to 256 MiB, in the shape of
 * nccl-tests: verified in the timed run, and compared with the machine's bound.
 *
 * This file starts the ranks: processes of its own, threads, or those of a launcher. Each is
 * bound to a core. allreduce.c measures.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/allreduce.h"
#include "common/base/memory.h"
#include "common/base/options.h"
#include "ddp/group/backends.h"
#include "ddp/group/shm/pg_shm.h"
#include "ddp/rendezvous/init.h"

typedef AllReduceSettings Settings;

typedef struct RankThread {
    const Settings *settings;
    ProcessGroup *group;
    pthread_t thread;
    int status;
} RankThread;

static void *rank_thread(void *context) {
    RankThread *rank = context;
    rank->status = allreduce_run_rank(rank->settings, rank->group, NULL);
    return NULL;
}

static int run_threads(const Settings *settings, Error *err) {
    ProcessGroup *groups[PG_SHM_MAX_WORLD];
    RankThread ranks[PG_SHM_MAX_WORLD];
    int status = STATUS_OK;
    if (pg_shm_threads(settings->world, &(PgOptions){.timeout_s = settings->timeout_s}, groups,
                       err) != 0)
        return err->status;
    for (int r = 0; r < settings->world; r++) {
        ranks[r] = (RankThread){.settings = settings, .group = groups[r]};
        int failed = pthread_create(&ranks[r].thread, NULL, rank_thread, &ranks[r]);
        CHECK(!failed, "pthread_create: %s", strerror(failed));
    }
    for (int r = 0; r < settings->world; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (ranks[r].status) status = ranks[r].status;
    }
    return status;
}

static int run_process(const Settings *settings, PgEndpoint *endpoint, int rank) {
    Error error = {0};
    endpoint->rank = rank;
    ProcessGroup *group = pg_opener_shm.open(endpoint, &error);
    if (group) return allreduce_run_rank(settings, group, NULL);
    fprintf(stderr, "error: %s\n", error.message);
    return error.status;
}

static int run_child(const Settings *settings, PgEndpoint *endpoint, int rank) {
    Error error = {0};
    must_do(pg_opener_shm.reach(endpoint, &error), &error);
    return run_process(settings, endpoint, rank);
}

// This process is rank 0; the others are its children, forked before any thread exists.
static int run_processes(const Settings *settings, Error *err) {
    const PgOptions options = {.timeout_s = settings->timeout_s};
    PgEndpoint endpoint = {.world = settings->world, .options = &options};
    if (pg_opener_shm.create(&endpoint, err) != 0) return err->status;
    for (int r = 1; r < settings->world; r++) {
        pid_t child = fork();
        CHECK(child >= 0, "cannot fork rank %d", r);
        if (child == 0) _exit(run_child(settings, &endpoint, r));
    }
    int status = run_process(settings, &endpoint, 0), child_status;
    while (wait(&child_status) > 0)
        if (!WIFEXITED(child_status) || WEXITSTATUS(child_status)) status = STATUS_FAILED;
    return status;
}

// Under ddprun, torchrun or mpirun, this process is one rank.
static int run_launched(const Settings *settings, Error *err) {
    Rendezvous me;
    Device *device = NULL;
    char name[16];
    if (init_from_env(&me, false, err) != 0) return err->status;
    snprintf(name, sizeof name, "cuda:%d", me.local_rank);
    if (strcmp(settings->device, "cuda") == 0 && !(device = device_open(name, err)))
        return err->status;
    ProcessGroup *group =
        init_process_group(settings->backend, &me, device, settings->timeout_s, err);
    if (!group || (settings->fast_sums && pg_use_fast_sums(group, err) != 0)) return err->status;
    int status = allreduce_run_rank(settings, group, device);
    device_close(device);
    return status;
}

static int check_options(const Settings *s, Error *err) {
    if (s->threads && s->processes)
        return error_set(err, STATUS_USAGE, "--threads and --processes exclude each other");
    if (s->min_bytes > s->max_bytes)
        return error_set(err, STATUS_USAGE, "--min-bytes %zu is more than --max-bytes %zu",
                         s->min_bytes, s->max_bytes);
    if (s->fast_sums && strcmp(s->backend, "mpi") != 0)
        return error_set(err, STATUS_USAGE, "--fast-sums is for --backend mpi");
    if (strcmp(s->device, "cuda") == 0 && !getenv("RANK"))
        return error_set(err, STATUS_USAGE, "--device cuda: start the ranks with ddprun");
    return 0;
}

static int parse_options(Settings *s, int argc, char **argv, Error *err) {
    Options *options = memory_zalloc(sizeof *options);
    options->program = "bench_allreduce";
    options->summary = "Measures all_reduce, and checks every result.\n"
                       "Example: bench_allreduce --world 4 --min-bytes 4096 --max-bytes 1048576";
    double most = (double)((size_t)1 << 34);
    options_add_int(options, "world", &s->world, 1, PG_SHM_MAX_WORLD,
                    "ranks (under ddprun, its world)");
    options_add_count(options, "min-bytes", &s->min_bytes, 4, most, "smallest buffer");
    options_add_count(options, "max-bytes", &s->max_bytes, 4, most, "largest buffer");
    options_add_count(options, "factor", &s->factor, 2, 1024,
                      "each buffer is so many times larger than the one before");
    options_add_count(options, "iterations", &s->iterations, 0, 1e6,
                      "timed all_reduces per size (0: 10 to 1000, by size)");
    options_add_flag(options, "processes", &s->processes, "ranks are processes (the default)");
    options_add_flag(options, "threads", &s->threads, "ranks are threads of one process");
    options_add_choice(options, "device", &s->device, "cpu|cuda",
                       "cuda: ranks of ddprun, each with its GPU, through NCCL");
    options_add_choice(options, "backend", &s->backend, "auto|shm|mpi|nccl",
                       "how ranks that a launcher started communicate; mpi: mpirun -np N "
                       "bench_allreduce --backend mpi");
    options_add_flag(options, "fast-sums", &s->fast_sums,
                     "MPI's own all-reduce, in an order of its own");
    options_add_float(options, "timeout", &s->timeout_s, 0.1, 86400, "deadline of each collective");
    options_metavar(options, "SECONDS");
    int status = options_parse(options, argc, argv, err);
    free(options);
    return status ? status : check_options(s, err);
}

int main(int argc, char **argv) {
    Settings settings = {.world = 2,
                         .min_bytes = 4,
                         .max_bytes = (size_t)256 * 1024 * 1024,
                         .factor = 4,
                         .device = "cpu",
                         .backend = "auto",
                         .timeout_s = 30};
    Error error = {0};
    if (parse_options(&settings, argc, argv, &error) != 0) error_exit(&error);
    bool launched = getenv("RANK") != NULL || strcmp(settings.backend, "mpi") == 0;
    int status = launched           ? run_launched(&settings, &error)
                 : settings.threads ? run_threads(&settings, &error)
                                    : run_processes(&settings, &error);
    if (error.status) error_exit(&error);
    return status;
}
