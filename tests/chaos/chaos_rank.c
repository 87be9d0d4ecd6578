/* chaos_rank.c: train_ddp with a fault planted in it, for tests/chaos/chaos.c.
 *
 * The program is train_ddp.c and the libraries as they are: the linker's --wrap leads a few calls
 * through here (tests/CMakeLists.txt lists them). The environment says what is to happen:
 *
 *     DDP_CHAOS="POINT NTH FAULT RANK VICTIM"  DDP_CHAOS_MARK=FILE
 *
 * When rank RANK comes to POINT for the NTH time, VICTIM (rank: itself, launcher: its parent)
 * suffers FAULT, and FILE receives the time, the store's port and the run's steps so far.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/nn/tape.h"
#include "common/train/trainer.h"
#include "ddp/distributed_data_parallel.h"
#include "ddp/group/shm/shm_internal.h"
#include "ddp/strategy_ddp.h"

// Global state, because the wrapped functions have no context argument.
static struct {
    bool armed;
    char point[16], fault[16], victim[16];
    int nth, visits, steps;
    Strategy *strategy;
    ProcessGroup *group;
    Tensor *(*forward)(Module *self, Tape *tape, Tensor *x); // the model's own forward
} chaos;

// Called before any second thread runs.
static void arm(void) {
    int rank = -1;
    const char *plan = getenv("DDP_CHAOS"), *me = getenv("RANK");
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL); // a sanitizer may have installed a handler
    if (!plan || !me) return;
    int fields = sscanf(plan, "%15s %d %15s %d %15s", chaos.point, &chaos.nth, chaos.fault, &rank,
                        chaos.victim);
    CHECK(fields == 5, "DDP_CHAOS=%s", plan);
    chaos.armed = atoi(me) == rank && strcmp(getenv("TORCHELASTIC_RESTART_COUNT"), "0") == 0;
}

static bool fault_is(const char *fault) {
    return strcmp(chaos.fault, fault) == 0;
}

static void leave_mark(void) {
    FILE *file = fopen(getenv("DDP_CHAOS_MARK"), "we");
    CHECK(file, "cannot write DDP_CHAOS_MARK");
    fprintf(file, "%llu %s %d\n", (unsigned long long)clock_ns(), getenv("MASTER_PORT"),
            chaos.steps);
    fclose(file);
}

// Counts a visit to the point. Returns whether the fault happens now.
static bool arrive(const char *point) {
    if (!chaos.armed || strcmp(chaos.point, point) != 0 || ++chaos.visits != chaos.nth)
        return false;
    leave_mark();
    return true;
}

static void poison(Module *model) {
    NamedTensors parameters = module_tensors(model, MODULE_PARAMETERS);
    for (size_t i = 0; i < parameters.count; i++) tensor_f32(parameters.items[i].tensor)[0] = NAN;
    named_tensors_free(&parameters);
}

static void strike(void) {
    pid_t victim = strcmp(chaos.victim, "launcher") == 0 ? getppid() : getpid();
    Error ignored = {0};
    fprintf(stderr, "about to suffer %s\n", chaos.fault);
    if (fault_is("kill")) kill(victim, SIGKILL);
    if (fault_is("term")) kill(victim, SIGTERM);
    if (fault_is("stop")) kill(victim, SIGSTOP);
    if (fault_is("segv")) raise(SIGSEGV);
    if (fault_is("exit3")) _exit(3);
    if (fault_is("nan")) poison(chaos.strategy->model);
    if (fault_is("order")) (void)pg_run(chaos.group, pg_barrier(), &ignored);
}

// ---- the points, in the order of a run --------------------------------------------------------

Store *__real_store_connect(const char *host, int port, const char *token, double timeout_s,
                            Error *err);
Store *__wrap_store_connect(const char *host, int port, const char *token, double timeout_s,
                            Error *err);

Store *__wrap_store_connect(const char *host, int port, const char *token, double timeout_s,
                            Error *err) {
    arm();
    if (arrive("init")) strike();
    return __real_store_connect(host, port, token, timeout_s, err);
}

Module *__real_train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                                  int rank, Error *err);
Module *__wrap_train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                                  int rank, Error *err);

Module *__wrap_train_create_model(const TrainConfig *config, const DataSource *data, Device *device,
                                  int rank, Error *err) {
    TrainConfig mine = *config;
    if (fault_is("shape") && arrive("construct")) mine.hidden = "17";
    return __real_train_create_model(&mine, data, device, rank, err);
}

static Tensor *forward_of_step(Module *self, Tape *tape, Tensor *x) {
    if (tape->training && arrive("step")) strike();
    chaos.steps += tape->training;
    return chaos.forward(self, tape, x);
}

Strategy *__real_strategy_ddp(Module *wrapper, Device *device, Sampler *sampler);
Strategy *__wrap_strategy_ddp(Module *wrapper, Device *device, Sampler *sampler);

Strategy *__wrap_strategy_ddp(Module *wrapper, Device *device, Sampler *sampler) {
    if (arrive("construct")) strike();
    if (fault_is("short") && arrive("epoch")) sampler->batch_count--;
    Module *model = ddp_module(wrapper);
    chaos.group = ddp_group(wrapper);
    chaos.forward = model->forward;
    model->forward = forward_of_step;
    chaos.strategy = __real_strategy_ddp(wrapper, device, sampler);
    return chaos.strategy;
}

int __real_strategy_barrier(Strategy *strategy, Error *err);
int __wrap_strategy_barrier(Strategy *strategy, Error *err);

// Fault order: this rank skips the last barrier.
int __wrap_strategy_barrier(Strategy *strategy, Error *err) {
    if (fault_is("order") && arrive("shutdown")) return 0;
    return __real_strategy_barrier(strategy, err);
}

PgWork *__real_pg_start(ProcessGroup *group, Collective collective, Error *err);
PgWork *__wrap_pg_start(ProcessGroup *group, Collective collective, Error *err);

PgWork *__wrap_pg_start(ProcessGroup *group, Collective collective, Error *err) {
    if (collective.bucket > 0 && arrive("backward")) {
        strike();
        if (fault_is("shape")) collective.count--;
    }
    return __real_pg_start(group, collective, err);
}

void __real_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                                 void *const *targets, int target_count, size_t count);
void __wrap_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                                 void *const *targets, int target_count, size_t count);

// Point collective: between the two barriers of a step's all-reduce, while the other ranks wait at
// the second.
void __wrap_reduce_in_rank_order(PgType type, ReduceOp op, void *const *sources, int ranks,
                                 void *const *targets, int target_count, size_t count) {
    if (chaos.steps > 0 && arrive("collective")) strike();
    __real_reduce_in_rank_order(type, op, sources, ranks, targets, target_count, count);
}

int __real_pg_run(ProcessGroup *group, Collective collective, Error *err);
int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err);

// Point meeting: the barriers before and after a sharded step in shared memory. Point gather: the
// all-gather of the new weights otherwise. Point state: the transfer of a rank's optimizer state to
// rank 0 for a checkpoint.
int __wrap_pg_run(ProcessGroup *group, Collective collective, Error *err) {
    if (collective.kind == PG_BARRIER && chaos.steps > 0 && arrive("meeting")) strike();
    if (collective.kind == PG_ALL_GATHER && collective.type == PG_F32 && arrive("gather")) strike();
    bool moves_state = collective.kind == PG_SEND || collective.kind == PG_RECV;
    if (moves_state && collective.type == PG_F32 && arrive("state")) strike();
    return __real_pg_run(group, collective, err);
}

void __real_optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                               const float *gradient, const OptimizerPeer *peer);
void __wrap_optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                               const float *gradient, const OptimizerPeer *peer);

// Point divided: within a sharded step, after some of this rank's new weights were written to the
// other ranks.
void __wrap_optimizer_apply_to(Optimizer *optimizer, size_t i, OptimizerPart elements,
                               const float *gradient, const OptimizerPeer *peer) {
    if (arrive("divided")) strike();
    __real_optimizer_apply_to(optimizer, i, elements, gradient, peer);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_rename(const char *from, const char *to) {
    if (arrive("checkpoint")) strike();
    return __real_rename(from, to);
}

int __real_ddp_sync_buffers(Module *wrapper, int root, Error *err);
int __wrap_ddp_sync_buffers(Module *wrapper, int root, Error *err);

int __wrap_ddp_sync_buffers(Module *wrapper, int root, Error *err) {
    if (arrive("evaluate")) strike();
    return __real_ddp_sync_buffers(wrapper, root, err);
}

void __real_pg_close(ProcessGroup *group);
void __wrap_pg_close(ProcessGroup *group);

void __wrap_pg_close(ProcessGroup *group) {
    if (arrive("shutdown")) strike();
    __real_pg_close(group);
}
