/* test_bits_announce.c: the line at the start of a run that promises equal bits, or gives the
 * reasons why not (bits_announce): each condition alone, beside the nearest run without it. bits.sh
 * checks that promises are kept.
 */
#include "tests/rigs/check.h"

#include "common/train/bits_table.h"
#include "tests/rigs/captured.h"

typedef struct Case {
    const char *said;   // the line after "bits: "; "": no line
    int devices, world; // world 1: DataParallel
    bool interleaved, global_mean, dense, gpus;
    size_t batches[2];
    TrainConfig config;
    const char *options[3]; // of the command line, without "--"
} Case;

#define EQUAL_DP  "weights, buffers and optimizer state equal DataParallel's on "
#define EQUAL_DDP "weights, buffers and optimizer state equal DistributedDataParallel's on "
#define UNLESS    ", unless a gradient leaves float32's normal range"
#define NOT_DP    "not promised against DataParallel ("
#define NOT_DDP   "not promised against DistributedDataParallel ("
#define PLAIN     .accumulate_steps = 1, .threads = 1

static const Case CASES[] = {
    // ---- ranks
    {EQUAL_DP "2 devices" UNLESS, 2, 2, .batches = {4, 4}, .config = {PLAIN}},
    {EQUAL_DP "2 devices", 2, 2, .global_mean = true, .batches = {5, 4}, .config = {PLAIN}},
    {"", 1, 1, .batches = {4, 4}, .config = {PLAIN}},
    {"", 2, 2, .batches = {4, 4}, .config = {PLAIN, .evaluate = "f"}},
    {"", 2, 2, .batches = {4, 4}, .config = {PLAIN, .dry_run = true}},
    {NOT_DP "ranks take rows in turns, DataParallel's devices take blocks: --sampler blocked)", 2,
     2, .interleaved = true, .batches = {4, 4}, .config = {PLAIN}},
    {NOT_DP "dividing by W rounds: --normalize global)", 3, 3, .batches = {6, 6},
     .config = {PLAIN}},
    {EQUAL_DP "4 devices" UNLESS, 4, 4, .batches = {4, 8}, .config = {PLAIN}},
    {EQUAL_DP "3 devices", 3, 3, .global_mean = true, .batches = {6, 6}, .config = {PLAIN}},
    {NOT_DP "a row of a smaller share weighs more: --normalize global)", 2, 2, .batches = {4, 3},
     .config = {PLAIN}},
    {NOT_DP "a row of a smaller share weighs more: --normalize global)", 2, 2, .batches = {3, 4},
     .config = {PLAIN}},
    {NOT_DP "ranks may count different numbers of labelled pixels: --normalize global)", 2, 2,
     .dense = true, .batches = {4, 4}, .config = {PLAIN}},
    {EQUAL_DP "2 devices", 2, 2, .dense = true, .global_mean = true, .batches = {4, 4},
     .config = {PLAIN}},
    {NOT_DP "gradients W times as large overflow or underflow fp16 in other steps: --normalize "
            "global)",
     2, 2, .batches = {4, 4}, .config = {PLAIN, .amp = PRECISION_F16}},
    {EQUAL_DP "2 devices", 2, 2, .global_mean = true, .batches = {4, 4},
     .config = {PLAIN, .amp = PRECISION_F16}},
    {EQUAL_DP "2 devices" UNLESS, 2, 2, .batches = {4, 4},
     .config = {PLAIN, .amp = PRECISION_BF16}},
    {NOT_DP "each rank adds up its parts before ranks are added up)", 2, 2, .batches = {4, 4},
     .config = {.threads = 1, .accumulate_steps = 2}},
    {NOT_DP "each rank mines the pixels of its own rows)", 2, 2, .batches = {4, 4},
     .config = {PLAIN, .ohem_threshold = 0.5}},
    {NOT_DP "each rank mines the pixels of its own rows)", 2, 2, .batches = {4, 4},
     .config = {PLAIN, .ohem_probability = 0.5}},
    {NOT_DP "products on several threads may round otherwise)", 2, 2, .batches = {4, 4},
     .config = {.accumulate_steps = 1, .threads = 2}},
    {NOT_DP "GPUs add up in another order)", 2, 2, .gpus = true, .batches = {4, 4},
     .config = {PLAIN}},
    {NOT_DP "the communication hook changes gradients)", 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--comm-hook", "fp16"}},
    {EQUAL_DP "2 devices" UNLESS, 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--comm-hook", "allreduce"}},
    {EQUAL_DP "2 devices" UNLESS, 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--comm-hook", "none"}},
    {NOT_DP "MPI adds up in another order)", 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--fast-sums"}},
    {NOT_DP "DataParallel has no SyncBatchNorm)", 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--sync-batch-norm"}},
    {NOT_DP "the wrapper is the user's own)", 2, 2, .batches = {4, 4}, .config = {PLAIN},
     .options = {"--wrapper"}},
    {NOT_DP "dividing by W rounds: --normalize global; a row of a smaller share weighs more: "
            "--normalize global; the all-reduce is the user's own)",
     3, 3, .batches = {6, 5}, .config = {PLAIN}, .options = {"--all-reduce"}},
    // ---- DataParallel: the options of train_ddp that have the same bits
    {EQUAL_DDP "2 ranks with --sampler blocked" UNLESS, 2, 1, .batches = {4, 4}, .config = {PLAIN}},
    {EQUAL_DDP "3 ranks with --sampler blocked --normalize global", 3, 1, .batches = {6, 5},
     .config = {PLAIN}},
    {NOT_DDP "each rank adds up its parts before ranks are added up)", 3, 1, .batches = {6, 6},
     .config = {.threads = 1, .accumulate_steps = 2}},
    {NOT_DDP "each rank adds up its parts before ranks are added up; GPUs add up in another order)",
     2, 1, .gpus = true, .batches = {6, 6}, .config = {.threads = 1, .accumulate_steps = 2}},
};

static Options options_of(const Case *c) {
    static const char *hook;
    static bool flags[4];
    static const char *const names[] = {"fast-sums", "sync-batch-norm", "wrapper", "all-reduce"};
    Options options = {.program = "train"};
    Error err = {0};
    char *argv[4] = {(char *)"train"};
    int argc = 1;
    hook = "none";
    options_add_choice(&options, "comm-hook", &hook, "none|allreduce|fp16", "how");
    for (int i = 0; i < 4; i++) options_add_flag(&options, names[i], &flags[i], "or not");
    for (; c->options[argc - 1]; argc++) argv[argc] = (char *)c->options[argc - 1];
    CHECK_OK(options_parse(&options, argc, argv, &err) == 0, err);
    return options;
}

// Returns the line that a case's run prints, to be freed. fsdp: with modules that gather in
// forward.
static char *said_by(const Case *c, bool fsdp) {
    static const Kernels on_host = {.is_cpu = true}, on_gpu = {.is_cpu = false};
    Device device = {.kernels = c->gpus ? &on_gpu : &on_host};
    size_t batches[2] = {c->batches[0], c->batches[1]};
    Sampler sampler = {
        .world = c->world, .interleaved = c->interleaved, .global = batches, .batch_count = 2};
    Strategy strategy = {.sampler = &sampler,
                         .device = &device,
                         .global_mean = c->global_mean,
                         .collective_forward = fsdp};
    Job job = {.devices = c->devices};
    const DataSource data = {.train = {.dense = c->dense}};
    const Options options = options_of(c);
    Run run = {.config = &c->config,
               .options = &options,
               .data = &data,
               .job = &job,
               .strategy = &strategy,
               .record = {.log = log_open(false)}};
    Captured captured = captured_begin();
    bits_announce(&run);
    return captured_end(&captured);
}

static void each_condition_is_announced(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char wanted[500];
        char *said = said_by(&CASES[i], false);
        snprintf(wanted, sizeof wanted, *CASES[i].said ? "bits: %s\n" : "%s", CASES[i].said);
        assert_string_equal(said, wanted);
        free(said);
    }
}

// Only these three conditions exclude equal bits of fully_shard and DistributedDataParallel.
static void fully_shard_promises_bits_of_ddp(void **state) {
    (void)state;
    static const char *const reasons[] = {"products on several threads may round otherwise",
                                          "GPUs add up in another order",
                                          "the wrapper is the user's own"};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char wanted[300] = "bits: weights, buffers and optimizer state equal train_ddp's with the "
                           "same options\n";
        if (CASES[i].world == 1) continue;
        for (int r = 0; r < 3; r++)
            if (strstr(CASES[i].said, reasons[r]))
                snprintf(wanted, sizeof wanted, "bits: not promised against train_ddp (%s)\n",
                         reasons[r]);
        char *said = said_by(&CASES[i], true);
        if (strncmp(said, wanted, *CASES[i].said ? strlen(wanted) : 0) != 0)
            fail_msg("case %zu: %s", i, said);
        assert_int_equal(*said != '\0', *CASES[i].said != '\0');
        free(said);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_condition_is_announced),
                                       cmocka_unit_test(fully_shard_promises_bits_of_ddp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
