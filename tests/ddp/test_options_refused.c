/* test_options_refused.c: combinations of options that train_ddp and train_fsdp refuse, and the
 * nearest ones that they accept. (Options of the training itself: test_checks_config.c.)
 */
#include <stdlib.h>

#include "ddp/ddp_options.h"
#include "ddp/fsdp/fsdp_options.h"
#include "tests/rigs/check.h"

enum { WORDS_MAX = 12 };

typedef struct Command {
    TrainConfig config;
    DdpOptions ddp;
    FsdpOptions fsdp;
    Options options;
} Command;

// Parses the line as train_ddp's or train_fsdp's options, and checks them.
static int check(Command *command, bool fsdp, const char *line, Error *err) {
    char text[200], *words[WORDS_MAX] = {"train"};
    int count = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words[count++] = word;
    *command = (Command){.config = train_config_default(),
                         .ddp = ddp_options_default(),
                         .fsdp = fsdp_options_default()};
    train_options(&command->options, &command->config);
    if (fsdp)
        fsdp_options(&command->options, &command->fsdp, &command->ddp);
    else
        ddp_options(&command->options, &command->ddp);
    CHECK_OK(options_parse(&command->options, count, words, err) == 0, *err);
    return fsdp ? fsdp_options_check(&command->fsdp, &command->options, err)
                : ddp_options_check(&command->ddp, &command->options, err);
}

typedef struct Case {
    const char *line, *says; // says: the error; NULL: none
} Case;

static void check_cases(bool fsdp, const Case *cases, size_t count) {
    Command *command = calloc(1, sizeof *command);
    assert_non_null(command);
    for (size_t i = 0; i < count; i++) {
        Error err = {0};
        const int status = check(command, fsdp, cases[i].line, &err);
        if (!cases[i].says) {
            CHECK_OK(status == 0, err);
            continue;
        }
        if (status != -1) fail_msg("%s is accepted", cases[i].line);
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, cases[i].says);
    }
    free(command);
}

#define CASES(fsdp, cases) check_cases(fsdp, cases, sizeof(cases) / sizeof *(cases))

static void of_ddp(void **state) {
    (void)state;
    static const Case cases[] = {
        {"", NULL},
        {"--comm-hook powersgd --powersgd-rank 2 --powersgd-start 5", NULL},
        {"--comm-hook powersgd --amp bf16", NULL},
        {"--comm-hook fp16 --amp fp16", NULL},
        {"--comm-hook powersgd --amp fp16", "--comm-hook powersgd: with --amp fp16 gradients"},
        {"--powersgd-rank 2", "--powersgd-rank has no effect: it needs --comm-hook powersgd"},
        {"--powersgd-start 5 --comm-hook fp16", "--powersgd-start has no effect: it needs"},
        {"--find-unused-parameters", NULL},
        {"--static-graph", NULL},
        {"--static-graph --find-unused-parameters",
         "--find-unused-parameters has no effect: --static-graph finds them by itself"},
        {"--zero-optimizer --comm-hook none", NULL},
        {"--zero-optimizer --comm-hook fp16",
         "--zero-optimizer cannot be combined with --comm-hook, which reduces the buckets in its"},
        {"--zero-optimizer --static-graph",
         "--zero-optimizer cannot be combined with --static-graph, which rebuilds the buckets"},
        {"--zero-optimizer --no-gradient-as-bucket-view",
         "--zero-optimizer cannot be combined with --no-gradient-as-bucket-view, which keeps the"},
        {"--zero-optimizer --cuda-graph",
         "--zero-optimizer cannot be combined with --cuda-graph, which replays a step without its"},
        {"--cuda-graph --comm-hook bf16 --static-graph --no-gradient-as-bucket-view", NULL},
        {"--cuda-graph --find-unused-parameters",
         "--cuda-graph: a recorded step cannot have --find-unused-parameters, in which the host"},
        {"--cuda-graph --comm-hook powersgd --powersgd-rank 1",
         "--cuda-graph: a recorded step cannot have --powersgd-rank, in which the host has a part"},
    };
    CASES(false, cases);
}

// A file replaces the wrapper: options of the built-in wrapper are refused before it is opened.
static void of_ones_own_ddp(void **state) {
    (void)state;
    static const Case cases[] = {
        {"--wrapper /no/file.so --no-overlap",
         "--no-overlap has no effect: --wrapper FILE decides that itself"},
        {"--wrapper /no/file.so --no-broadcast-buffers", "--no-broadcast-buffers has no effect:"},
        {"--wrapper /no/file.so --all-reduce /no/other.so",
         "--all-reduce has no effect: --wrapper FILE starts its own all-reduces"},
        {"--wrapper /no/file.so --cuda-graph",
         "--cuda-graph has no effect: a replayed step would not call --wrapper's functions"},
        {"--wrapper /no/file.so --static-graph",
         "--static-graph has no effect: it is a feature of the built-in wrapper"},
        {"--wrapper /no/file.so --comm-hook fp16", "--comm-hook has no effect: it is a feature"},
        {"--wrapper /no/file.so", "/no/file.so"},
        {"--wrapper /no/file.so --lr 0.1 --backend shm", "/no/file.so"},
        {"--all-reduce /no/other.so --no-overlap", "/no/other.so"},
    };
    CASES(false, cases);
}

static void of_fsdp(void **state) {
    (void)state;
    static const Case cases[] = {
        {"", NULL},
        {"--unshard-in-step", NULL},
        {"--no-overlap", NULL},
        {"--no-overlap --no-reshard-after-forward", NULL},
        {"--no-overlap --unshard-in-step", "--unshard-in-step has no effect: --no-overlap"},
        {"--wrapper /no/file.so --no-overlap",
         "--no-overlap has no effect: --wrapper FILE decides that itself"},
        {"--wrapper /no/file.so --no-reshard-after-forward", "--no-reshard-after-forward has no"},
        {"--wrapper /no/file.so --unshard-in-step", "--unshard-in-step has no effect: --wrapper"},
        {"--wrapper /no/file.so", "/no/file.so"},
    };
    CASES(true, cases);
}

// Options that are set by other options.
static void derived_settings(void **state) {
    (void)state;
    Command *command = calloc(1, sizeof *command);
    Error err = {0};
    assert_non_null(command);
    CHECK_OK(check(command, false, "", &err) == 0, err);
    assert_true(command->ddp.config.overlap && command->ddp.config.broadcast_buffers);
    assert_false(command->ddp.config.global_normalization || command->ddp.blocked);
    CHECK_OK(check(command, false,
                   "--no-overlap --no-broadcast-buffers --normalize global --sampler blocked",
                   &err) == 0,
             err);
    assert_false(command->ddp.config.overlap || command->ddp.config.broadcast_buffers);
    assert_true(command->ddp.config.global_normalization && command->ddp.blocked);
    CHECK_OK(check(command, true, "--normalize global", &err) == 0, err);
    assert_true(command->fsdp.config.overlap && command->fsdp.config.global_normalization);
    assert_int_not_equal(command->fsdp.config.reshard_after_forward, FSDP_RESHARD_NEVER);
    CHECK_OK(check(command, true, "--no-overlap --no-reshard-after-forward", &err) == 0, err);
    assert_false(command->fsdp.config.overlap || command->fsdp.config.global_normalization);
    assert_int_equal(command->fsdp.config.reshard_after_forward, FSDP_RESHARD_NEVER);
    free(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_ddp),
        cmocka_unit_test(of_ones_own_ddp),
        cmocka_unit_test(of_fsdp),
        cmocka_unit_test(derived_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
