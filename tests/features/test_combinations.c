/* test_combinations.c: combinations of DistributedDataParallel's options. Every choice of each
 * option runs with every choice of the others, and each step's gradients are compared with a
 * one-page model of PyTorch's rules (expect_step).
 *
 * The toy's gradients are small integers, which are exact even in 16 bits: all comparisons are
 * exact.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/ranks.h"

#include "tests/rigs/ddp_toy.h"

#include "ddp/features/comm_hooks.h"
#include "ddp/features/join_ddp.h"
#include "ddp/features/post_local_sgd.h"

enum { TASKS = 4, STEPS = 3, WORLD_MAX = 4 };

typedef enum Policy { ALL_USED, FIND_UNUSED, STATIC_GRAPH, POLICIES } Policy;

static const char *const HOOKS[] = {"none", "allreduce",    "fp16",
                                    "bf16", "bf16 wrapper", "post-local"};
enum { HOOK_COUNT = sizeof HOOKS / sizeof *HOOKS };

typedef enum Joining { NO_JOIN, JOIN_ALL, JOIN_ACTIVE, JOININGS } Joining;

typedef struct Mix {
    bool global, overlap, view;
    double cap;
    Policy policy;
    int hook;        // index into HOOKS
    int micro;       // backwards under no_sync before each reduced one
    bool keep;       // no zero_grad: gradients accumulate over the steps
    Joining joining; // the last rank has one step more than the others
} Mix;

// ---- local gradients --------------------------------------------------------------------------

// Task k's gradient on this rank in one backward; 0: the rank does not use the task. With
// find_unused_parameters the used tasks change from step to step.
static float factor(const Mix *mix, int rank, int step, int task) {
    bool used = true;
    int turn = mix->policy == FIND_UNUSED ? step : 0;
    if (mix->policy != ALL_USED && task == 1) used = (rank + turn) % 2 == 0; // by half of the ranks
    if (mix->policy != ALL_USED && task == 2) used = false;                  // by no rank
    if (mix->policy == FIND_UNUSED && task == 3) used = step != 1;           // by all ranks or none
    return used ? (float)(1 + 2 * (rank % 2)) * (float)(1 << task) : 0;
}

static int steps_of(const Mix *mix, int rank, int world) {
    return STEPS + (mix->joining != NO_JOIN && rank == world - 1);
}

// ---- expected gradients -----------------------------------------------------------------------

typedef struct Expected {
    float grad[WORLD_MAX][TASKS]; // [rank][task]
    bool defined[WORLD_MAX][TASKS];
} Expected;

// One step of all ranks. A gradient used by any rank since the last reduction becomes the sum over
// ranks, divided by the divisor; a gradient used by no rank is unchanged. With a static graph the
// first step's uses count, also those of ranks that have joined since.
static void expect_step(Expected *all, const Mix *mix, int world, int step) {
    int active = 0;
    for (int r = 0; r < world; r++) active += step < steps_of(mix, r, world);
    int divisor = mix->joining == JOIN_ACTIVE && mix->hook == 0 ? active : world;
    for (int k = 0; k < TASKS; k++) {
        bool anyone = false;
        float sum = 0;
        for (int r = 0; r < world; r++) {
            float mine = factor(mix, r, step, k);
            bool joined = step >= steps_of(mix, r, world); // contributes zeros
            anyone = anyone || (mix->policy == STATIC_GRAPH && mine != 0);
            if (joined) continue;
            if (!mix->keep) all->grad[r][k] = 0, all->defined[r][k] = false;
            anyone = anyone || mine != 0;
            sum += (all->defined[r][k] ? all->grad[r][k] : 0) + mine * (float)(1 + mix->micro);
        }
        for (int r = 0; r < world && anyone; r++) {
            all->grad[r][k] = mix->global ? sum : sum / (float)divisor;
            all->defined[r][k] = true;
        }
    }
}

static void check_step(Rig *rig, const Mix *mix, const Expected *all, int step) {
    for (int k = 0; k < TASKS; k++) {
        float want = all->grad[rig->rank][k];
        if (all->defined[rig->rank][k] ? grad_is(rig, k, want) : grad_is_none(rig, k)) continue;
        const Tensor *p = rig_parameter(rig, k);
        problem(
            rig->outcome,
            "global %d overlap %d view %d cap %g policy %d hook %s micro %d keep %d join %d, step "
            "%d: task %d is %g, not %g",
            mix->global, mix->overlap, mix->view, mix->cap, mix->policy, HOOKS[mix->hook],
            mix->micro, mix->keep, mix->joining, step, k,
            p->has_grad ? (double)p->grad[0] : (double)NAN,
            all->defined[rig->rank][k] ? (double)want : (double)NAN);
    }
}

// ---- one rank ---------------------------------------------------------------------------------

static void add_hook(Rig *rig, const Mix *mix, PostLocalSgd *local) {
    CommHook hook = comm_hook_all_reduce(rig->group);
    switch (mix->hook) {
    case 0:
        return;
    case 1:
        break;
    case 2:
    case 3:
        hook = comm_hook_compress(rig->group, mix->hook == 2 ? PG_F16 : PG_BF16);
        break;
    case 4:
        hook = comm_hook_round(hook, PG_BF16);
        break;
    default: // ready on all ranks
        hook = post_local_sgd_hook(local);
    }
    EXPECT(ddp_register_comm_hook(rig->wrapper, hook, NULL) == 0);
}

static void run_steps(Rig *rig, const Mix *mix) {
    Joinable joinable = ddp_joinable(rig->wrapper);
    const JoinConfig joining = {.divide_by_active_ranks = mix->joining == JOIN_ACTIVE};
    Join *join = mix->joining ? join_open(&joinable, 1, &joining, &rig->outcome->error) : NULL;
    Expected all = {0};
    module_zero_grad(rig->model);
    for (int step = 0; step < steps_of(mix, rig->rank, rig->world); step++) {
        float factors[TASKS];
        for (int k = 0; k < TASKS; k++) factors[k] = 4 * factor(mix, rig->rank, step, k);
        if (!mix->keep) module_zero_grad(rig->model);
        bool before = mix->micro ? ddp_no_sync_begin(rig->wrapper) : false;
        for (int m = 0; m < mix->micro; m++) toy_train(rig, factors);
        if (mix->micro) ddp_no_sync_end(rig->wrapper, before);
        toy_train(rig, factors);
        expect_step(&all, mix, rig->world, step);
        check_step(rig, mix, &all, step);
    }
    if (join) EXPECT(join_end(join, &rig->outcome->error) == 0);
}

static void run_mix(ProcessGroup *group, const void *argument, Outcome *outcome) {
    const Mix *mix = argument;
    Rig self = rig_open(group, outcome), *rig = &self;
    RigConfig config = rig_config_default();
    config.ddp.global_normalization = mix->global;
    config.ddp.overlap = mix->overlap;
    config.gradients_beside_buckets = !mix->view;
    config.ddp.bucket_cap_mb = mix->cap;
    config.find_unused_parameters = mix->policy == FIND_UNUSED;
    config.static_graph = mix->policy == STATIC_GRAPH;
    rig_wrap_with(rig, toy_model(rig->device, TASKS, 1), &config);
    PostLocalSgd local = {.group = group, .start_step = 100};
    add_hook(rig, mix, &local);
    // With Join twice: the first Join must have removed its hook and iteration from the wrapper.
    for (int round = 0; round < (mix->joining ? 2 : 1); round++) run_steps(rig, mix);
    rig_close(rig);
}

// ---- all combinations -------------------------------------------------------------------------

// Every combination of the choices. Options that only change the order of events (overlap, bucket
// size) alternate.
static void options_in_every_combination(void **state) {
    (void)state;
    static const double caps[] = {-1, 0, 0.00005};
    int count = 0;
    for (int policy = 0; policy < POLICIES; policy++)
        for (int hook = 0; hook < HOOK_COUNT; hook++)
            for (int joining = 0; joining < JOININGS; joining++)
                for (int bits = 0; bits < 16; bits++) {
                    const Mix mix = {.global = bits & 1,
                                     .view = bits >> 1 & 1,
                                     .keep = bits >> 2 & 1,
                                     .micro = bits >> 3 & 1 ? 2 : 0,
                                     .overlap = count % 2,
                                     .cap = caps[count / 2 % 3],
                                     .policy = (Policy)policy,
                                     .hook = hook,
                                     .joining = (Joining)joining};
                    play_ranks(AS_THREADS, 2, 60, run_mix, &mix, NULL);
                    count++;
                }
    print_message("%d combinations\n", count);
}

// On four ranks, the choices that move memory or count ranks.
static void options_together_on_four_ranks(void **state) {
    (void)state;
    for (int bits = 0; bits < 32; bits++) {
        const Mix mix = {.global = bits & 1,
                         .view = bits >> 1 & 1,
                         .overlap = bits >> 2 & 1,
                         .keep = bits >> 3 & 1,
                         .joining = bits >> 4 & 1 ? JOIN_ALL : NO_JOIN,
                         .cap = bits % 3 - 1,
                         .policy = (Policy)(bits % POLICIES),
                         .micro = bits % 2};
        play_ranks(AS_THREADS, 4, 60, run_mix, &mix, NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_in_every_combination),
        cmocka_unit_test(options_together_on_four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
