/* test_options.c: parsing of the command line: every type of option, every error message, the
 * layout of --help.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/options.h"
#include "tests/rigs/failed_check.h"

typedef struct Values {
    bool no_shuffle;
    int devices;
    size_t steps;
    uint64_t seed;
    double lr;
    const char *out, *schedule;
    enum { RED, GREEN, DARK_BLUE } colour;
    double pair[2];
} Values;

static Options make_options(Values *v) {
    *v = (Values){.devices = 2,
                  .steps = 10,
                  .seed = 1,
                  .lr = 0.1,
                  .schedule = "constant",
                  .colour = GREEN,
                  .pair = {0.9, 0.5}};
    Options options = {.program = "prog", .summary = "Does a thing.\n  prog --steps 3"};
    options_add_title(&options, "Training");
    options_add_flag(&options, "no-shuffle", &v->no_shuffle, "in order");
    options_add_int(&options, "devices", &v->devices, -1, 64, "how many devices");
    options_add_count(&options, "steps", &v->steps, 0, 0, "how many steps");
    options_add_count(&options, "seed", &v->seed, 0, 0, "of everything");
    options_add_float(&options, "lr", &v->lr, 0, 10, "learning rate");
    options_add_title(&options, "Output");
    options_add_string(&options, "out", &v->out, "DIR",
                       "where the files go; and many more words, so that this "
                       "row must be wrapped somewhere to fit on the page");
    options_add_choice(&options, "schedule", &v->schedule, "constant|cosine|step",
                       "of the learning rate");
    options_add_enum(&options, "colour", &v->colour, "red|green|dark-blue|off-white",
                     "of everything");
    options_add_pair(&options, "pair", v->pair, 0, 1, "of numbers");
    return options;
}

enum { ARGS_MAX = 8 };

// Parses a NULL-terminated list of arguments.
static int parse(Options *options, Error *err, const char *const *args) {
    char *argv[ARGS_MAX + 2] = {(char *)"prog"};
    int argc = 1;
    while (args[argc - 1]) {
        argv[argc] = (char *)args[argc - 1];
        argc++;
    }
    *err = (Error){0};
    return options_parse(options, argc, argv, err);
}

#define PARSE(options, err, ...) parse(options, err, (const char *const[]){__VA_ARGS__, NULL})

static void test_values_of_every_type(void **state) {
    (void)state;
    Values v;
    Error err;
    Options options = make_options(&v);
    assert_int_equal(PARSE(&options, &err, "--no_shuffle", "--devices", "-1", "--steps=7"), 0);
    assert_true(v.no_shuffle && v.devices == -1 && v.steps == 7);
    assert_int_equal(PARSE(&options, &err, "--seed", "18446744073709551615", "--lr=1e-3"), 0);
    assert_true(v.seed == UINT64_MAX && v.lr == 1e-3);
    assert_int_equal(PARSE(&options, &err, "--out=--odd", "--schedule", "step", "--steps", "8"), 0);
    assert_string_equal(v.out, "--odd");
    assert_string_equal(v.schedule, "step");
    assert_int_equal(PARSE(&options, &err, "--out", "", "--steps=8", "--steps=9"), 0);
    assert_string_equal(v.out, "");
    assert_true(v.steps == 9); // the last value counts
    assert_true(v.colour == GREEN && options_is(&options, "colour", "green"));
    assert_int_equal(PARSE(&options, &err, "--colour", "dark-blue", "--pair", "0.25,1e-2"), 0);
    assert_true(v.colour == DARK_BLUE && v.pair[0] == 0.25 && v.pair[1] == 0.01);
    assert_true(options_is(&options, "colour", "dark-blue"));
    assert_true(!options_is(&options, "colour", "dark") &&
                options_is(&options, "schedule", "step"));
}

typedef struct BadLine {
    const char *args[3], *message;
} BadLine;

#define A79                                    \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const BadLine bad_lines[] = {
    {{"--stops", "3"}, "unknown option --stops; did you mean --steps?"},
    {{"--xteps", "3"}, "unknown option --xteps; did you mean --steps?"}, // first letter differs
    {{"-xsteps", "3"}, "unknown option -xsteps; did you mean --steps?"},
    {{"--stxys", "3"}, "unknown option --stxys (--help lists them)"}, // two of five letters differ
    {{"--stops=3"}, "unknown option --stops; did you mean --steps?"},
    {{"--noshuffle"}, "unknown option --noshuffle; did you mean --no-shuffle?"},
    {{"--zebra"}, "unknown option --zebra (--help lists them)"},
    {{"-x"}, "unknown option -x (--help lists them)"},
    {{"-" A79}, "unknown option -" A79 " (--help lists them)"},
    {{"extra"}, "unexpected argument 'extra' (--help lists the options)"},
    {{"--", "--steps"}, "unexpected argument '--steps' (--help lists the options)"},
    {{"--steps"}, "--steps needs a value (N)"},
    {{"--out", "--steps=3"}, "--out needs a value (DIR)"},
    {{"--no-shuffle=1"}, "--no-shuffle takes no value"},
    {{"--steps", "3x"}, "--steps: '3x' is not a whole number"},
    {{"--steps", " 3"}, "--steps: ' 3' is not a whole number"},
    {{"--steps", "0x3"}, "--steps: '0x3' is not a whole number"},
    {{"--steps", "3.0"}, "--steps: '3.0' is not a whole number"},
    {{"--steps="}, "--steps: '' is not a whole number"},
    {{"--steps", "-3"}, "--steps: '-3' is negative"},
    {{"--steps", "18446744073709551616"}, "--steps: '18446744073709551616' is too large"},
    {{"--seed", "-1"}, "--seed: '-1' is negative"},
    {{"--seed", "99999999999999999999"}, "--seed: '99999999999999999999' is too large"},
    {{"--devices", "65"}, "--devices: '65' is out of range (-1 to 64)"},
    {{"--devices", "-2"}, "--devices: '-2' is out of range (-1 to 64)"},
    {{"--devices", "two"}, "--devices: 'two' is not a whole number"},
    {{"--devices", "4294967297"}, "--devices: '4294967297' is too large"},
    {{"--lr", "fast"}, "--lr: 'fast' is not a number"},
    {{"--lr", "0.1f"}, "--lr: '0.1f' is not a number"},
    {{"--lr="}, "--lr: '' is not a number"},
    {{"--lr", "nan"}, "--lr: 'nan' is not a finite number"},
    {{"--lr", "-inf"}, "--lr: '-inf' is not a finite number"},
    {{"--lr", "1e999"}, "--lr: '1e999' is not a finite number"},
    {{"--lr", "-0.1"}, "--lr: '-0.1' is out of range (0 to 10)"},
    {{"--schedule", "cosin"},
     "--schedule: 'cosin' is none of constant, cosine, step; did you mean cosine?"},
    {{"--schedule", "x"}, "--schedule: 'x' is none of constant, cosine, step"},
    {{"--schedule", "constant|cosine"},
     "--schedule: 'constant|cosine' is none of constant, cosine, step"},
    {{"--schedule", ""}, "--schedule: '' is none of constant, cosine, step"},
    {{"--schedule", "COSINE"},
     "--schedule: 'COSINE' is none of constant, cosine, step; did you mean cosine?"},
    {{"--schedule", "setp"},
     "--schedule: 'setp' is none of constant, cosine, step; did you mean step?"},
    {{"--sTesp", "3"}, "unknown option --sTesp; did you mean --steps?"},
    {{"--steps", A79 "\u00e9"}, "--steps: '" A79 "\u2026' is not a whole number"}, // 81 bytes
    {{"a\033[2J\302\233b"}, "unexpected argument 'a?[2J??b' (--help lists the options)"},
    {{"--colour", "dark"}, "--colour: 'dark' is none of red, green, dark-blue, off-white"},
    {{"--colour", "rd"},
     "--colour: 'rd' is none of red, green, dark-blue, off-white; did you mean red?"},
    {{"--pair", "0.5"}, "--pair: '0.5' is not two numbers like 0.9,0.999"},
    {{"--pair", "0.5,"}, "--pair: '0.5,' is not two numbers like 0.9,0.999"},
    {{"--pair", "0.5,0.1,0.2"}, "--pair: '0.5,0.1,0.2' is not two numbers like 0.9,0.999"},
    {{"--pair", ",0.5"}, "--pair: ',0.5' is not two numbers like 0.9,0.999"},
    {{"--pair", "0.5,1.5"}, "--pair: '0.5,1.5' is out of range (0 to 1)"},
    {{"--pair", "inf,0.5"}, "--pair: 'inf,0.5' is not a finite number"},
};

// Options for which the table has other programs' names, in the order of the search.
static Options make_known_options(void) {
    static int number;
    static const char *text;
    static double pair[2];
    static bool flag;
    static enum { CPU, CUDA, FP16 } word;
    Options options = {.program = "prog", .takes_command = true};
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"global-batch", "devices", "nproc-per-node", "nnodes"};
        options_add_int(&options, names[i], &number, 0, 9, "a number");
    }
    options_add_string(&options, "resume", &text, "FILE", "where from");
    options_add_string(&options, "lr", &text, "F", "a rate");
    options_add_pair(&options, "betas", pair, 0, 1, "two numbers");
    options_add_flag(&options, "sync-batch-norm", &flag, "or not");
    options_add_enum(&options, "device", &word, "cpu|cuda", "where");
    options_add_enum(&options, "amp", &word, "none|bf16|fp16", "how");
    options_add_enum(&options, "schedule", &word, "constant|step", "when");
    return options;
}

static void test_other_names_are_known(void **state) {
    (void)state;
    static const BadLine lines[] = {
        {{"--batch_size=3"},
         "unknown option --batch_size; did you mean --global-batch (the samples of all devices "
         "together)?"},
        {{"-b"},
         "unknown option -b; did you mean --global-batch (the samples of all devices together)?"},
        {{"--global-batch-size"},
         "unknown option --global-batch-size; did you mean --global-batch?"},
        {{"--beta2"}, "unknown option --beta2; did you mean --betas F,F?"},
        {{"--cpu"}, "unknown option --cpu; did you mean --device cpu?"},
        {{"--gpu"},
         "unknown option --gpu; did you mean --device cuda?"}, // not --gpus, which is near
        {{"--learning_rat"}, "unknown option --learning_rat; did you mean --lr?"}, // inexact
        {{"--sync-btchnrm"}, "unknown option --sync-btchnrm; did you mean --sync-batch-norm?"},
        {{"--lt"}, "unknown option --lt; did you mean --lr?"},
        {{"--xy"}, "unknown option --xy (--help lists them; the program's own follow its name)"},
        {{"--nodez"}, "unknown option --nodez; did you mean --nnodes?"},
        {{"--ckpx"}, "unknown option --ckpx; did you mean --resume?"}, // one letter differs
        {{"--cpx"}, "unknown option --cpx (--help lists them; the program's own follow its name)"},
        // The name is in two rows: the row of an option that the program has is used.
        {{"--world-size"},
         "unknown option --world-size; did you mean --nproc-per-node (the ranks on each node)?"},
        {{"--gpus"}, "unknown option --gpus; did you mean --devices?"},
        {{"--workers"}, "unknown option --workers; did you mean --nproc-per-node?"},
        {{"--shuffle"},
         "unknown option --shuffle: samples are shuffled unless --no-shuffle is given"},
        {{"--pin_memory"},
         "unknown option --pin_memory: it is done wherever it helps: leave it out"},
        {{"--pin-memry"}, // advice needs the exact name
         "unknown option --pin-memry (--help lists them; the program's own follow its name)"},
        {{"--rank"},
         "unknown option --rank: ddprun tells each rank by RANK in its environment: leave it out"},
        {{"--wd"}, "unknown option --wd (--help lists them; the program's own follow its name)"},
        {{"--device", "gpu"}, "--device: 'gpu' is none of cpu, cuda; did you mean cuda?"},
        {{"--device", "ids"}, "--device: 'ids' is none of cpu, cuda"}, // --device-ids has a row
        {{"--amp", "half"}, "--amp: 'half' is none of none, bf16, fp16; did you mean fp16?"},
        {{"--amp", "no"}, "--amp: 'no' is none of none, bf16, fp16; did you mean none?"},
        {{"--amp", "gpu"}, "--amp: 'gpu' is none of none, bf16, fp16"},
        {{"--schedule", "none"},
         "--schedule: 'none' is none of constant, step; did you mean constant?"},
        {{"--schedule", "linear"}, "--schedule: 'linear' is none of constant, step"},
        {{"--schedule", "stxp"},
         "--schedule: 'stxp' is none of constant, step; did you mean step?"},
        {{"--schedule", "cnostatn"},
         "--schedule: 'cnostatn' is none of constant, step; did you mean constant?"},
        {{"--schedule", "xxnsxant"}, "--schedule: 'xxnsxant' is none of constant, step"},
        {{"--schedule", "ztpe"}, "--schedule: 'ztpe' is none of constant, step"},
        {{"--schedule", "est"}, "--schedule: 'est' is none of constant, step"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        Error err;
        Options options = make_known_options();
        assert_int_equal(parse(&options, &err, lines[i].args), -1);
        assert_string_equal(err.message, lines[i].message);
        assert_int_equal(err.status, STATUS_USAGE);
    }
}

// Edit distances (insert, remove, replace, swap): at most five for sixteen letters.
static void test_edit_distances(void **state) {
    (void)state;
    static const struct {
        const char *given;
        size_t distance;
    } cases[] = {
        {"abcdefghijklmnop", 0},
        {"xabcdefghijklmnop", 1},
        {"abcdefghijklmnopx", 1},
        {"abcdefgxhijklmnop", 1},
        {"bcdefghijklmnop", 1},
        {"abcdefghijklmno", 1},
        {"abcdefghjklmnop", 1},
        {"xxabcdefghijklmnop", 2},
        {"cdefghijklmnop", 2},
        {"abcdefghijklmnopxyz", 3},
        {"abcdefghijklm", 3},
        {"bacdefghijklmnop", 1},
        {"abcdefghijklmnpo", 1},
        {"badcfehgijklmnop", 4},
        {"cabdefghijklmnop", 2},
        {"ABCDEFGHIJKLMNOX", 1},
        {"xbcdefghijklmnoy", 2},
        {"abcdefghijxklnmop", 2},
        {"abxcdefghijlkmno", 3},
        {"bcadefghijklmnop", 2},
        {"abcdefghijklmnopqrstu", 5},
        {"axcxexgxixklmnop", 5},
        {"axcxexgxixkxmnop", SIZE_MAX},
        {"acbxdefghijklmnop", 2},
        {"b", SIZE_MAX},
    };
    char longest[50];
    size_t best;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        best = SIZE_MAX;
        const bool near = options_nearest(cases[i].given, "abcdefghijklmnop", 0, &best).start;
        if (best != cases[i].distance || near != (best != SIZE_MAX))
            fail_msg("%s: %zu", cases[i].given, best);
    }
    memset(longest, 'x', sizeof longest);
    for (size_t length = 48; length <= 49; length++) { // the maximum length is 48
        longest[length] = '\0';
        best = SIZE_MAX;
        assert_int_equal(options_nearest(longest, longest, 0, &best).length, length == 48 ? 48 : 0);
        best = SIZE_MAX;
        (void)options_nearest("x", longest, 0, &best);
        (void)options_nearest(longest, "x", 0, &best);
        assert_true(best == SIZE_MAX);
        longest[length] = 'x';
    }
    best = SIZE_MAX; // the smallest distance wins, then the first name
    assert_int_equal(options_nearest("steps", "steps|stepss", 0, &best).number, 0);
    best = SIZE_MAX;
    assert_int_equal(options_nearest("stxps", "steps|stops", 0, &best).number, 0);
    best = SIZE_MAX;
    assert_int_equal(options_nearest("stops", "stepx|steps|stops", 0, &best).number, 2);
    best = SIZE_MAX;
    assert_null(options_nearest("stxps", "steps|stops", 6, &best).start);
    assert_int_equal(options_nearest("stxps", "steps|stops", 5, &best).length, 5);
}

static void test_errors_name_the_option(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        Values v, defaults;
        Error err;
        Options options = make_options(&v);
        defaults = v;
        assert_int_equal(parse(&options, &err, bad_lines[i].args), -1);
        assert_string_equal(err.message, bad_lines[i].message);
        assert_int_equal(err.status, STATUS_USAGE);
        assert_memory_equal(&v, &defaults, sizeof v); // an invalid value is not stored
    }
}

static void test_given_without_effect(void **state) {
    (void)state;
    Values v;
    Error err;
    Options options = make_options(&v);
    const OptionUse uses[] = {
        {"lr", true, "?"}, {"steps", false, "of epochs"}, {"out", false, "x"}};
    assert_int_equal(PARSE(&options, &err, "--lr=1", "--seed=2"), 0);
    assert_int_equal(options_check_used(&options, uses, 3, &err), 0);   // not given
    assert_int_equal(PARSE(&options, &err, "--lr=1", "--steps=10"), 0); // equal to the default
    assert_int_equal(options_check_used(&options, uses, 3, &err), -1);
    assert_true(options_given(&options, "steps") && options_given(&options, "lr"));
    assert_false(options_given(&options, "seed") || options_given(&options, "nothing"));
    assert_string_equal(err.message, "--steps has no effect: of epochs");
    assert_int_equal(err.status, STATUS_USAGE);
    assert_int_equal(options_check_used(&options, uses, 1, &err), 0);
    assert_int_equal(PARSE(&options, &err, "--lr=1"), 0); // another command line
    assert_int_equal(options_check_used(&options, uses, 3, &err), 0);
}

static void test_values_as_text(void **state) {
    (void)state;
    Values v;
    Options options = make_options(&v);
    char text[20] = "#####";
    const Option *flag = options_find(&options, "no-shuffle");
    assert_string_equal(option_text(flag, text, sizeof text), "off");
    v.no_shuffle = true;
    assert_string_equal(option_text(flag, text, sizeof text), "on");
    strcpy(text, "#####");
    memset(&v.colour, 9, sizeof v.colour); // not a valid number of a word
    assert_string_equal(option_text(options_find(&options, "colour"), text, sizeof text), "");
    assert_null(option_text(options_find(&options, "out"), text, sizeof text));
}

static void test_metavar_of_the_last(void **state) {
    (void)state;
    int value = 0;
    Options options = {.program = "prog"};
    options_add_int(&options, "one", &value, 0, 0, "a number");
    options_metavar(&options, "ONE");
    options_add_int(&options, "two", &value, 0, 0, "a number");
    options_metavar(&options, "TWO");
    assert_string_equal(options_find(&options, "one")->metavar, "ONE");
    assert_string_equal(options_find(&options, "two")->metavar, "TWO");
}

// A title takes a row of the table, like an option.
static void add_rows(void *context) {
    Options options = {.program = "prog"};
    for (int i = 0; i < *(int *)context; i++) options_add_title(&options, "one more");
}

static void test_table_is_full(void **state) {
    (void)state;
    int rows = 96;
    add_rows(&rows);
    rows++;
    expect_failed_check(add_rows, &rows, "more than 96 options");
}

static void test_positional(void **state) {
    (void)state;
    Values v;
    Error err;
    Options options = make_options(&v);
    options.positional_max = 3;
    assert_int_equal(PARSE(&options, &err, "a", "--steps", "3", "-", "--", "--lr"), 0);
    assert_int_equal(options.positional_count, 3);
    assert_string_equal(options.positional[0], "a");
    assert_string_equal(options.positional[1], "-");
    assert_string_equal(options.positional[2], "--lr");
    assert_int_equal(PARSE(&options, &err, "a", "b", "c", "d"), -1);
    // "xxsteps" is positional although an option's name follows its first two letters; "b" is no
    // value.
    assert_int_equal(PARSE(&options, &err, "xxsteps", "b"), 0);
    assert_int_equal(options.positional_count, 2);
    assert_int_equal(PARSE(&options, &err, "--", "--help"), 0);
    assert_string_equal(options.positional[0], "--help");
    // After "--" all arguments are positional.
    assert_int_equal(PARSE(&options, &err, "--", "--lr", "0.1", "x"), 0);
    assert_int_equal(options.positional_count, 3);
    assert_string_equal(options.positional[1], "0.1");
    assert_int_equal(PARSE(&options, &err, "--", "--lr", "0.1", "x", "y"), -1);
}

static void test_command(void **state) {
    (void)state;
    Values v;
    Error err;
    Options options = make_options(&v);
    options.takes_command = true;
    assert_int_equal(PARSE(&options, &err, "--steps", "3", "train", "--zebra", "--help"), 0);
    assert_int_equal(options.rest, 3);
    assert_int_equal(PARSE(&options, &err, "--steps", "3", "--", "--odd"), 0);
    assert_int_equal(options.rest, 4);
    assert_int_equal(PARSE(&options, &err, "--no-shuffle"), 0);
    assert_int_equal(options.rest, 2); // argc: there is no command
}

static void test_help_shows_defaults(void **state) {
    (void)state;
    Values v;
    Options options = make_options(&v);
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    options_print_help(&options, stream);
    fclose(stream);
    assert_non_null(strstr(text, "usage: prog [options]\n\nDoes a thing.\n  prog --steps 3\n"));
    assert_non_null(strstr(text, "\nTraining:\n  --no-shuffle  in order\n"));
    assert_non_null(strstr(text, "how many devices (default: 2)\n"));
    assert_non_null(strstr(text, "learning rate (default: 0.1)\n"));
    // An option too wide for the left column: its text begins on the next line.
    assert_non_null(strstr(text, "  --schedule constant|cosine|step\n"
                                 "                of the learning rate (default: constant)\n"));
    assert_non_null(strstr(text, "to fit on the page\n")); // a NULL default is not shown
    assert_non_null(strstr(text, "of everything (default: green)\n"));
    assert_non_null(strstr(text, "  --pair F,F    of numbers (default: 0.9,0.5)\n"));
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(strlen(line) <= 100);
    }
    free(text);
}

static pid_t tester; // the tests' process; must not end early, which would look like success

_Noreturn void __real_process_end(int status);
_Noreturn void __wrap_process_end(int status);
_Noreturn void __wrap_process_end(int status) {
    if (getpid() == tester) abort();
    __real_process_end(status);
}

// Runs --help in a child, because it ends the process. The default shown is the program's, even if
// an earlier argument changes the value.
static void help_ends_with_0(bool takes_command, const char *const *arguments, const char *shown) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        Values v;
        Error err;
        Options options = make_options(&v);
        options.takes_command = takes_command;
        dup2(ends[1], STDOUT_FILENO);
        parse(&options, &err, arguments);
        _exit(1);
    }
    close(ends[1]);
    char text[4096] = "";
    FILE *stream = fdopen(ends[0], "r");
    assert_true(fread(text, 1, sizeof text - 1, stream) > 0);
    fclose(stream);
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!strstr(text, shown)) fail_msg("%s", text);
}

// --help fails if its text cannot be written, with a buffered stream or an unbuffered one.
static void test_help_is_lost(void **state) {
    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) {
        int status = 0;
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            Values v;
            Error err;
            Options options = make_options(&v);
            if (!freopen("/dev/full", "w", stdout)) _exit(1);
            if (!buffered) setvbuf(stdout, NULL, _IONBF, 0);
            const int parsed = PARSE(&options, &err, "--help");
            const char *cause = "cannot write the help: No space left on device";
            _exit(parsed == -1 && strcmp(err.message, cause) == 0 ? 42 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
}

static void test_help_ends_with_0(void **state) {
    (void)state;
    static const char *const late[] = {"--steps", "77", "--help", "--zebra", NULL};
    static const char *const only[] = {"--help", NULL}, *const man[] = {"--help=man", "x", NULL};
    help_ends_with_0(false, late, "how many steps (default: 10)");
    help_ends_with_0(true, late, "how many steps (default: 10)");
    help_ends_with_0(true, only, "usage: prog [options] COMMAND");
    help_ends_with_0(false, man, ".TH \"prog\"");
}

int main(void) {
    tester = getpid();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_every_type),  cmocka_unit_test(test_errors_name_the_option),
        cmocka_unit_test(test_other_names_are_known), cmocka_unit_test(test_positional),
        cmocka_unit_test(test_given_without_effect),  cmocka_unit_test(test_command),
        cmocka_unit_test(test_values_as_text),        cmocka_unit_test(test_metavar_of_the_last),
        cmocka_unit_test(test_edit_distances),        cmocka_unit_test(test_table_is_full),
        cmocka_unit_test(test_help_shows_defaults),   cmocka_unit_test(test_help_ends_with_0),
        cmocka_unit_test(test_help_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
