/* fuzz_options.c: command lines. The input's lines are the arguments, parsed with the trainers'
 * option table, also with a command at the end as in ddprun.
 */
#include "common/base/options.h"
#include "common/train/trainer.h"
#include "tests/fuzz/fuzz.h"

enum { ARGUMENTS = 64 };

static void parse(Options *options, int argc, char **argv) {
    Error err = {0};
    if (options_parse(options, argc, argv, &err) != 0) {
        fuzz_check_error(&err);
        return;
    }
    CHECK(options->positional_count <= options->positional_max, "%d", options->positional_count);
    CHECK(options->rest >= 1 && options->rest <= argc, "rest is %d of %d", options->rest, argc);
}

static bool asks_for_help(int argc, char **argv) { // --help ends the process
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = fuzz_string(data, size), *rest = text, program[] = "program";
    char *argv[ARGUMENTS + 1] = {program};
    int argc = 1;
    while (argc < ARGUMENTS && rest) argv[argc++] = strsep(&rest, "\n");
    if (!asks_for_help(argc, argv)) {
        TrainConfig config = train_config_default();
        Options options = {.program = "train", .summary = "", .positional_max = (int)(size % 5)};
        train_options(&options, &config);
        parse(&options, argc, argv);
        config = train_config_default();
        options.takes_command = true;
        parse(&options, argc, argv);
    }
    free(text);
    return 0;
}
