/* lesson_steps.c: a table of the steps: text for --help, own options, and the mistakes (--break),
 * whose lines PROGRAM.breaks has. A second program of a step has a row, too.
 */
#include <string.h>

#include "tutorials/lesson.h"

// The trainers' shared options that these programs support: none for precision, GPUs or checkpoint
// schedules.
static const char *const KNOWN[] = {
    "model", "hidden",       "data",         "no-shuffle", "global-batch", "seed",     "epochs",
    "steps", "optimizer",    "lr",           "momentum",   "nesterov",     "schedule", "log-every",
    "save",  "weight-decay", "warmup-steps", "save-init",  "load-init",    "no-eval"};

typedef struct Step {
    int number;
    const char *name, *does, *example;
    const char *options; // "shards|show"
    const char *breaks;  // "none|mean-of-means"
} Step;

// clang-format off
static const Step STEPS[] = {
    {1, "one-device", "trains on one device",
     "tutorial_01 --epochs 2", "", "none"},
    {2, "shards", "trains on one device, shard by shard",
     "tutorial_02 --shards 3 --epochs 2", "shards", "none|mean-of-means"},
    {3, "threads", "trains with a thread per shard, all on the same weights",
     "tutorial_03 --shards 3 --epochs 2", "shards", "none|other-order"},
    {4, "dp-forward", "predicts with DataParallel's forward, written out, and does not train",
     "tutorial_04 --devices 3 --epochs 1", "devices", "none|first-rows|other-order"},
    {5, "dp-backward", "trains with DataParallel, written out",
     "tutorial_05 --devices 3 --epochs 2", "devices", "none|no-reduce|mean"},
    {6, "dp-costs", "trains with the library's DataParallel, and measures",
     "tutorial_06 --devices 4 --model convnet", "devices", "none"},
    {7, "processes", "the same training in several processes",
     "ddprun --nproc-per-node 2 tutorial_07 --epochs 2", "", "none|every-rank-prints|no-barrier"},
    {8, "collectives", "trains in several processes that send messages",
     "ddprun --nproc-per-node 2 tutorial_08 --epochs 2", "", "none|deadlock|local-loss"},
    {9, "replicas", "trains with DistributedDataParallel, written out",
     "ddprun --nproc-per-node 2 tutorial_09 --epochs 2", "show-update", "none|no-broadcast|bypass"},
    {10, "sampler", "every rank has a sampler, and draws its own data",
     "ddprun --nproc-per-node 2 tutorial_10 --epochs 2", "sampler|show",
     "none|no-set-epoch|seed-per-rank"},
    {11, "seeds-and-rate", "noise for each rank, and one learning rate for all",
     "ddprun --nproc-per-node 2 tutorial_11 --noise 0.1", "noise|show",
     "none|same-noise|fast-schedule"},
    {12, "buckets", "gradients are reduced in buckets",
     "ddprun --nproc-per-node 2 tutorial_12 --epochs 2", "bucket-bytes",
     "none|last-bucket-lost|other-buckets"},
    {13, "overlap", "buckets are reduced while backward runs",
     "ddprun --nproc-per-node 2 tutorial_13 --epochs 2", "bucket-bytes|show",
     "none|no-overlap|own-order"},
    {14, "ring", "buckets are reduced by a ring, written out",
     "ddprun --nproc-per-node 3 tutorial_14 --epochs 2", "bucket-bytes|orders",
     "none|lost-round|send-first"},
    {15, "batch-norm", "batch norm across ranks",
     "ddprun --nproc-per-node 2 tutorial_15 --model convnet", "batch-norm", "none|no-buffers"},
    {16, "metrics", "trains, and then evaluates on all ranks",
     "ddprun --nproc-per-node 4 tutorial_16 --epochs 2", "only-test",
     "none|padded|mean-of-ranks|rank-0-alone"},
    {17, "checkpoints", "trains with checkpoints",
     "ddprun --nproc-per-node 2 tutorial_17 --checkpoint FILE", "checkpoint|kill-at",
     "none|in-place|no-momentum|momentum-on-rank-0|epoch-start"},
    {18, "accumulate-and-clip", "several backwards before a step, and a limit for its gradients",
     "ddprun --nproc-per-node 2 tutorial_18 --micro-batches 4", "micro-batches|max-norm",
     "none|mean-of-means|first|every|clip-first|norm-twice"},
    {19, "uneven", "ranks that run out of batches while the others train on",
     "ddprun --nproc-per-node 2 tutorial_19 --uneven 5", "uneven", "none|no-join|stale"},
    {20, "sharding", "divides the optimizer over the ranks",
     "ddprun --nproc-per-node 2 tutorial_20 --optimizer adamw", "",
     "none|no-sum|no-gather|lost-rest"},
    {21, "gather-compute-free", "divides weights, gradients and optimizer over the ranks",
     "ddprun --nproc-per-node 4 tutorial_21 --optimizer adamw", "unit-layers|show",
     "none|kept|no-sum|first-forgotten"},
    {22, "gather-ahead", "gathers the next unit while one computes",
     "ddprun --nproc-per-node 4 tutorial_22 --show", "unit-layers|show",
     "none|no-overlap|all-at-once|own-order"},
    {23, "sixteen-bits", "sends gradients in 16 bits",
     "ddprun --nproc-per-node 2 tutorial_23 --wire bf16", "wire|scale", "none|own-inf"},
    {24, "powersgd", "sends each matrix of gradients as a column times a row",
     "ddprun --nproc-per-node 2 tutorial_24", "", "none|no-feedback"},
    {25, "gpus", "", "", "", "none"}, // a program without a Lesson
    {26, "hangs", "stops early, and what can go wrong with that",
     "ddprun --nproc-per-node 3 tutorial_26 --epochs 4", "timeout|stop-below",
     "none|lonely-if|lone-stop|barrier|stuck|dead"},
    {27, "machines", "trains on several machines",
     "ddprun --nnodes 2 --node-rank 0 --nproc-per-node 2 --master-addr 10.0.0.1 tutorial_27",
     "scratch", "none|global-rank|prepare-once"},
};
// clang-format on

static bool is_known(const Option *option) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (option->type == OPTION_TITLE || strcmp(option->name, KNOWN[i]) == 0) return true;
    return false;
}

static void keep_known(Options *options) {
    size_t kept = 0;
    for (size_t i = 0; i < options->count; i++)
        if (is_known(&options->table[i])) options->table[kept++] = options->table[i];
    options->count = kept;
}

// Adds the options of this step: `names`, separated by |.
static void add_own(Lesson *l, const char *names) {
    const Option all[] = {
        {"shards", OPTION_SIZE, &l->shards, "N", 1, 64, "parts that a batch is cut into"},
        {"devices", OPTION_SIZE, &l->devices, "N", 1, 64,
         "devices, a replica of the model on each"},
        {"show", OPTION_FLAG, &l->show, NULL, 0, 0, "print what happens in the first step"},
        {"show-update", OPTION_FLAG, &l->show_update, NULL, 0, 0, "print how a weight changes"},
        {"sampler", OPTION_ENUM, &l->blocked, "interleaved|blocked", 0, 0,
         "a rank's rows: every W-th row, or a contiguous part of each batch"},
        {"noise", OPTION_FLOAT, &l->noise, "F", 0, 10, "add normal noise to the samples"},
        {"bucket-bytes", OPTION_SIZE, &l->bucket_bytes, "N", 0, 1e12,
         "a bucket of this size is full; 0: one gradient per bucket"},
        {"orders", OPTION_FLAG, &l->orders, NULL, 0, 0, "print sums in several orders"},
        {"batch-norm", OPTION_CHOICE, &l->batch_norm, "own|sync", 0, 0,
         "statistics of the rank's own rows, or of all ranks' rows"},
        {"unit-layers", OPTION_SIZE, &l->unit_layers, "N", 1, 64,
         "layers with parameters that are gathered together"},
        {"only-test", OPTION_FLAG, &l->only_test, NULL, 0, 0,
         "evaluate the first weights (--load-init), and end"},
        {"checkpoint", OPTION_STRING, &l->checkpoint, "FILE", 0, 0,
         "written regularly; an existing file is resumed from"},
        {"kill-at", OPTION_SIZE, &l->kill_at, "N", 0, 1e9,
         "die while writing the checkpoint of step N"},
        {"micro-batches", OPTION_SIZE, &l->micro_batches, "N", 1, 1e3, "per step"},
        {"max-norm", OPTION_FLOAT, &l->max_norm, "F", 0, 1e9, "clip to this norm; 0: do not"},
        {"uneven", OPTION_SIZE, &l->uneven, "N", 0, 1e3, "steps: rank r trains r N steps fewer"},
        {"wire", OPTION_ENUM, &l->wire, "f32|bf16|fp16", 0, 0, "format of sent gradients"},
        {"scale", OPTION_FLOAT, &l->scale, "S", 1, 1e30, "fp16: factor of sent gradients"},
        {"timeout", OPTION_FLOAT, &l->timeout_s, "S", 0.1, 3600,
         "seconds that a rank waits for the others"},
        {"stop-below", OPTION_FLOAT, &l->stop_below, "LOSS", 0, 100,
         "end as soon as a rank's loss is below this"},
        {"scratch", OPTION_STRING, &l->scratch, "DIR", 0, 0, "a folder on this node's own disk"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (options_has_word(names, all[i].name)) options_add(&l->options, all[i]);
}

void lesson_options(Lesson *lesson, const char *name) {
    size_t i = 0;
    while (i < sizeof STEPS / sizeof *STEPS && strcmp(STEPS[i].name, name) != 0) i++;
    CHECK(i < sizeof STEPS / sizeof *STEPS, "there is no step \"%s\"", name);
    const Step *step = &STEPS[i];
    *lesson = (Lesson){.config = train_config_default(),
                       .broken = "none",
                       .shards = 2,
                       .devices = 2,
                       .bucket_bytes = 25 * 1024 * 1024,
                       .batch_norm = "own",
                       .unit_layers = 1,
                       .micro_batches = 1,
                       .scale = 65536,
                       .timeout_s = 60};
    snprintf(lesson->program, sizeof lesson->program, "tutorial_%02d", step->number);
    snprintf(lesson->summary, sizeof lesson->summary, "Step %d: %s.\nExample: %s", step->number,
             step->does, step->example);
    lesson->options = (Options){.program = lesson->program, .summary = lesson->summary};
    train_options(&lesson->options, &lesson->config);
    keep_known(&lesson->options);
    options_add_title(&lesson->options, "This step");
    add_own(lesson, step->options);
    if (strcmp(step->breaks, "none") != 0)
        options_add_choice(&lesson->options, "break", &lesson->broken, step->breaks,
                           "make this mistake, to see what it does");
}
