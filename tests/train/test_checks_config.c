/* test_checks_config.c: combinations of options that are errors, each beside the nearest valid
 * command line (checks_config); batches that do not divide among ranks (checks_shares); the notes
 * about a checkpoint with other settings (checks_resumed).
 */
#include "tests/rigs/check.h"

#include "common/train/checks.h"
#include "tests/rigs/captured.h"

enum { STEPS = 10 }; // of the run

typedef enum Kind { PICTURES, TEXT, PIXELS, LABELLED_PIXELS, NUMBERS } Kind;

static DataSource data_of(Kind kind) {
    static uint8_t bytes[1];
    static uint16_t tokens[1];
    static float floats[1];
    DataSource data = {0};
    snprintf(data.name, sizeof data.name, kind == LABELLED_PIXELS ? "pixels" : "other");
    if (kind == TEXT) data.train.tokens = (void *)tokens;
    if (kind == NUMBERS) data.train.floats = floats;
    if (kind == PICTURES || kind == PIXELS || kind == LABELLED_PIXELS) data.train.bytes = bytes;
    data.train.dense = kind == PIXELS || kind == LABELLED_PIXELS;
    data.train.classes = kind == NUMBERS ? 0 : 10;
    return data;
}

typedef struct Line {
    Kind kind;
    const char *words; // options and values
    const char *said;  // the error; NULL: none
} Line;

#define NO_EFFECT " has no effect: "

static const Line LINES[] = {
    // ---- options that --evaluate and --dry-run exclude, options that need an output
    {PICTURES, "--epochs 2", NULL},
    {PICTURES, "--evaluate f", NULL},
    {PICTURES, "--evaluate f --epochs 2", "--epochs" NO_EFFECT "--evaluate does not train"},
    {PICTURES, "--evaluate f --steps 2", "--steps" NO_EFFECT "--evaluate does not train"},
    {PICTURES, "--evaluate f --drop-last", "--drop-last" NO_EFFECT "--evaluate takes the whole"},
    {PICTURES, "--sampler-seed 1", NULL},
    {PICTURES, "--sampler-seed 1 --no-shuffle", "--sampler-seed" NO_EFFECT "with --no-shuffle"},
    {PICTURES, "--load-init g", NULL},
    {PICTURES, "--evaluate f --load-init g", "--load-init" NO_EFFECT "--evaluate brings its own"},
    {PICTURES, "--evaluate f --resume g", "--resume" NO_EFFECT "--evaluate brings its own"},
    {PICTURES, "--strip-prefix m.", "--strip-prefix" NO_EFFECT "it is for --load-init and"},
    {PICTURES, "--strip-prefix m. --load-init g", NULL},
    {PICTURES, "--strip-prefix m. --evaluate g", NULL},
    {PICTURES, "--no-eval", NULL},
    {PICTURES, "--evaluate f --no-eval", "--no-eval" NO_EFFECT "--evaluate does nothing else"},
    {PICTURES, "--save s", NULL},
    {PICTURES, "--evaluate f --save s", "--save" NO_EFFECT "--evaluate leaves the weights"},
    {PICTURES, "--dump-grads g", NULL},
    {PICTURES, "--evaluate f --dump-grads g", "--dump-grads" NO_EFFECT "--evaluate has no grad"},
    {PIXELS, "--evaluate f --out o --dump-images 1", "--dump-images" NO_EFFECT "--evaluate has no"},
    {PICTURES, "--dry-run", NULL},
    {PICTURES, "--dry-run --threads 2", "--threads" NO_EFFECT "--dry-run computes nothing"},
    {PICTURES, "--dry-run --out o", "--out" NO_EFFECT "--dry-run writes nothing"},
    {PICTURES, "--dry-run --trace t", "--trace" NO_EFFECT "--dry-run takes no time"},
    {PICTURES, "--trace t --profile", NULL},
    {PICTURES, "--dry-run --dump-grads g", "--dump-grads" NO_EFFECT "--dry-run has no gradients"},
    {PICTURES, "--dry-run --cuda-graph", "--cuda-graph" NO_EFFECT "--dry-run takes no step"},
    {PICTURES, "--epochs 2 --steps 0", NULL},
    {PICTURES, "--epochs 2 --steps 3", "--epochs" NO_EFFECT "--steps says when the run ends"},
    {PICTURES, "--save-every 2", "--save-every" NO_EFFECT "it needs --save or --out"},
    {PICTURES, "--save-every 2 --save s", NULL},
    {PICTURES, "--save-every 2 --out o", NULL},
    {PICTURES, "--keep-epochs 2 --save s", "--keep-epochs" NO_EFFECT "it needs --out to write to"},
    {PICTURES, "--keep-epochs 2 --out o", NULL},
    {PIXELS, "--dump-images 2", "--dump-images" NO_EFFECT "it needs --out to write to"},
    {PIXELS, "--dump-images 2 --out o", NULL},
    {PIXELS, "--dump-images 2 --out o --no-eval", "--dump-images" NO_EFFECT "with --no-eval"},
    {PICTURES, "--dump-step 2", "--dump-step" NO_EFFECT "it needs --dump-grads FILE"},
    {PICTURES, "--dump-step 2 --dump-grads g", NULL},
    // ---- models and data
    {PICTURES, "--layers 2", "--layers" NO_EFFECT "only a gpt has these sizes"},
    {TEXT, "--model gpt --layers 2 --heads 2 --embedding 8 --context 4", NULL},
    {PICTURES, "--vocabulary 99", "--vocabulary" NO_EFFECT "only a gpt has a vocabulary"},
    {TEXT, "--model gpt --vocabulary 99 --sample 5", NULL},
    {PICTURES, "--sample 5", "--sample" NO_EFFECT "only a gpt generates text"},
    {PICTURES, "--model mlp --hidden 4", NULL},
    {PICTURES, "--model convnet --hidden 4",
     "--hidden" NO_EFFECT "only --model mlp has hidden layers"},
    {PICTURES, "--augment", NULL},
    {NUMBERS, "--augment", "--augment" NO_EFFECT "it moves the pixels of pictures"},
    {PICTURES, "--ignore-label 3", "--ignore-label" NO_EFFECT "it is for a folder of pictures"},
    {LABELLED_PIXELS, "--ignore-label 3", NULL},
    {PICTURES, "--out o --dump-images 1", "--dump-images" NO_EFFECT "--data has no labels"},
    // ---- optimizer and schedule
    {PICTURES, "--momentum 0.5", NULL},
    {PICTURES, "--optimizer adam --momentum 0.5", "--momentum" NO_EFFECT "adam and adamw have"},
    {PICTURES, "--nesterov", NULL},
    {PICTURES, "--optimizer adamw --nesterov", "--nesterov" NO_EFFECT "it is a momentum of"},
    {PICTURES, "--nesterov --momentum 0", "--nesterov: Nesterov momentum requires a momentum"},
    {PICTURES, "--betas 0.1,0.2", "--betas" NO_EFFECT "they are of --optimizer adam and adamw"},
    {PICTURES, "--optimizer adam --betas 0.1,0.2 --eps 1e-3", NULL},
    {PICTURES, "--eps 1e-3", "--eps" NO_EFFECT "it is of --optimizer adam and adamw"},
    {PICTURES, "--gamma 0.5", "--gamma" NO_EFFECT "it is of --schedule step"},
    {PICTURES, "--schedule step --gamma 0.5 --step-every 3", NULL},
    {PICTURES, "--power 2", "--power" NO_EFFECT "it is of --schedule polynomial"},
    {PICTURES, "--schedule polynomial --power 2", NULL},
    {PICTURES, "--warmup-start 0.1", "--warmup-start" NO_EFFECT "there is no warm-up without"},
    {PICTURES, "--warmup-start 0.1 --warmup-steps 1", NULL},
    {PICTURES, "--warmup-steps 10", NULL},
    {PICTURES, "--warmup-steps 11", "--warmup-steps 11: the run has only 10 steps, --lr is never"},
    // ---- losses
    {PICTURES, "--loss bce --pos-weight 2", NULL},
    {PICTURES, "--loss auto", NULL},
    {NUMBERS, "--loss auto", NULL},
    {NUMBERS, "--loss bce", "--loss" NO_EFFECT "--data has numbers, not classes"},
    {PIXELS, "--loss bce", "--loss" NO_EFFECT "pixels have one class each: --loss auto"},
    {PIXELS, "--loss auto", NULL},
    {PICTURES, "--pos-weight 2", "--pos-weight" NO_EFFECT "it is of --loss bce"},
    {PIXELS, "--ohem-threshold 0.5 --ohem-min 3", NULL},
    {PIXELS, "--ohem-probability 0.5 --ohem-min 3", NULL},
    {PIXELS, "--ohem-probability 0.5 --ohem-threshold 0", NULL},
    {PICTURES, "--ohem-threshold 0.5", "--ohem-threshold" NO_EFFECT "--data has no labels of"},
    {PIXELS, "--ohem-probability 0.5 --ohem-threshold 1",
     "--ohem-probability" NO_EFFECT "--ohem-threshold says the same"},
    {PIXELS, "--ohem-min 3", "--ohem-min" NO_EFFECT "without --ohem-threshold all pixels count"},
    // ---- checkpoints and gradients
    {PICTURES, "--resume r --load-init g", "--resume brings its own weights"},
    {PICTURES, "--resume auto", "--resume auto continues what --save or --out wrote"},
    {PICTURES, "--resume auto --save s", NULL},
    {PICTURES, "--resume auto --out o", NULL},
    {PICTURES, "--resume r", NULL},
    {PICTURES, "--dump-grads g --dump-step 9", NULL},
    {PICTURES, "--dump-grads g --dump-step 10", "--dump-step 10: the run ends with step 9"},
    {PICTURES, "--dump-grads g{step} --dump-step 0,9", NULL},
    {PICTURES, "--dump-grads g --dump-step 0,9",
     "--dump-grads g: for several steps the name needs"},
    {PICTURES, "--dump-grads g --dump-step 0,", "--dump-step 0,: expected steps like 0,1,10"},
    {PICTURES, "--dump-grads g --dump-step 0x", "--dump-step 0x: expected steps like 0,1,10"},
    {PICTURES, "--dump-grads g --dump-step x", "--dump-step x: expected steps like 0,1,10"},
};

static void which_options_go_together(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        const Line *line = &LINES[i];
        char words[200], *argv[12] = {(char *)"train"};
        int argc = 1;
        snprintf(words, sizeof words, "%s", line->words);
        for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) argv[argc++] = word;
        TrainConfig config = train_config_default();
        Options options = {.program = "train"};
        Error err = {0};
        train_options(&options, &config);
        CHECK_OK(options_parse(&options, argc, argv, &err) == 0, err);
        const DataSource data = data_of(line->kind);
        const int failed = checks_config(&config, &options, &data, STEPS, &err);
        if ((failed != 0) != (line->said != NULL)) fail_msg("%s: \"%s\"", line->words, err.message);
        if (!line->said) continue;
        if (strncmp(err.message, line->said, strlen(line->said)) != 0)
            fail_msg("%s: \"%s\"", line->words, err.message);
        assert_int_equal(err.status, STATUS_USAGE);
    }
}

static void batches_divide_among_ranks(void **state) {
    (void)state;
    static const struct {
        size_t batches[3];
        int world;
        bool global_mean;
        const char *said;
    } cases[] = {
        {{8, 8, 4}, 4, false, NULL},
        {{8, 8, 6}, 4, false, "the last batch of 6 rows does not divide among 4 ranks"},
        {{6, 6, 6}, 4, false, "a batch of 6 rows does not divide among 4 ranks"},
        {{6, 6, 5}, 4, true, NULL},
        {{7, 5, 3}, 1, false, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t batches[4] = {0, 0, 0, 1}; // there are three
        memcpy(batches, cases[i].batches, sizeof cases[i].batches);
        Sampler sampler = {.world = cases[i].world, .global = batches, .batch_count = 3};
        const Strategy strategy = {.sampler = &sampler, .global_mean = cases[i].global_mean};
        Error err = {0};
        const int failed = checks_shares(&strategy, &err);
        if ((failed != 0) != (cases[i].said != NULL)) fail_msg("case %zu: %s", i, err.message);
        if (cases[i].said) check_message(&err, cases[i].said);
    }
}

// The settings in a checkpoint; `number` and `text` change setting `which`.
static Progress progress_with(int which, uint64_t number, const char *text) {
    Progress p = {.seed = 1, .global_batch = 2, .samples = 3, .shuffled = 1, .devices = 4};
    uint64_t *const numbers[] = {&p.seed, &p.global_batch, &p.samples, &p.shuffled, &p.devices};
    static const int notes[] = {NOTE_LR,    NOTE_SCHEDULE, NOTE_MOMENTUM,     NOTE_WEIGHT_DECAY,
                                NOTE_BETAS, NOTE_STEPS,    NOTE_SAMPLER_SEED, NOTE_TEXT};
    snprintf(p.amp, sizeof p.amp, "%s", which == 13 ? text : "none");
    for (int i = 0; i < 8; i++)
        snprintf(p.notes[notes[i]], sizeof *p.notes, "%s", which == 5 + i ? text : "was");
    if (which < 5) *numbers[which] = number;
    return p;
}

static void each_setting_of_a_checkpoint_counts(void **state) {
    (void)state;
    static const char OTHER_RUN[] = ": it would not continue but become another run";
    static const char NEW_VALUE[] = ": it continues with the new value\n";
    static const char OTHER_BITS[] = ": it continues, but not bit for bit\n";
    static const char OLD_BETAS[] = // said of a checkpoint without them
        "old was made when Adam's 1 - beta2 was computed from a rounded beta2, this run computes "
        "it in double as PyTorch does: it continues, but not bit for bit\n";
    static const struct {
        const char *what, *was, *effect;
    } cases[] = {
        {"--seed", "1", OTHER_RUN},
        {"--global-batch", "2", OTHER_RUN},
        {"training samples", "3", OTHER_RUN},
        {"shuffling (1: on)", "1", OTHER_RUN},
        {"devices", "4", OTHER_BITS},
        {"--lr", "was", NEW_VALUE},
        {"--schedule", "was", NEW_VALUE},
        {"--momentum", "was", NEW_VALUE},
        {"--weight-decay", "was", NEW_VALUE},
        {"--betas", "was", NEW_VALUE},
        {"steps in all", "was", NEW_VALUE},
        {"--sampler-seed", "was", OTHER_RUN},
        {"a text whose hash is", "was", OTHER_RUN},
        {"--amp", "none", OTHER_BITS},
    };
    const Progress saved = progress_with(99, 0, "");
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        char wanted[400];
        Error err = {0};
        RunLog log = log_open(false);
        const Progress now = progress_with(i, 0, "is"), before = progress_with(i, 0, "");
        Captured captured = captured_begin();
        const int failed = checks_resumed("old", &saved, &now, &log, &err);
        // A checkpoint from before the setting was recorded: no note.
        const int older = i < 5 ? 0 : checks_resumed("old", &before, &saved, &log, &err);
        char *said = captured_end(&captured);
        const bool other_run = cases[i].effect == OTHER_RUN;
        snprintf(wanted, sizeof wanted, "old%s was made with %s %s, this run has %s%s%s",
                 other_run ? ":" : "", cases[i].what, cases[i].was, i < 5 ? "0" : "is",
                 cases[i].effect, strcmp(cases[i].what, "--betas") == 0 ? OLD_BETAS : "");
        assert_int_equal(older, 0);
        assert_int_equal(failed, other_run ? -1 : 0);
        assert_string_equal(failed ? err.message : said, wanted);
        free(said);
    }
    Error err = {0};
    RunLog log = log_open(false);
    Captured captured = captured_begin();
    assert_int_equal(checks_resumed("old", &saved, &saved, &log, &err), 0);
    char *said = captured_end(&captured);
    assert_string_equal(said, "");
    free(said);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(which_options_go_together),
                                       cmocka_unit_test(batches_divide_among_ranks),
                                       cmocka_unit_test(each_setting_of_a_checkpoint_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
