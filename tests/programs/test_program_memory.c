/* test_program_memory.c: each training program's main, with options that allocate, frees all its
 * memory.
 */
#include "tests/rigs/check.h"
#include "tests/rigs/temp_folder.h"

#include <unistd.h>

#include "tests/rigs/heap_in_use.h"

int train_single_main(int argc, char **argv), train_dp_main(int argc, char **argv);
int train_ddp_main(int argc, char **argv), train_fsdp_main(int argc, char **argv);

enum { WORDS_MAX = 24 };

// Runs the program with these options.
static void run(int (*program)(int, char **), const char *options) {
    char text[300], *words[WORDS_MAX];
    HeapRuns runs = {0};
    while (heap_run(&runs)) {
        int count = 0;
        snprintf(text, sizeof text, "train --device cpu %s", options);
        for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) words[count++] = word;
        words[count] = NULL;
        assert_int_equal(program(count, words), 0);
    }
    if (runs.left > 0) fail_msg("%s: %zu bytes are left", options, runs.left);
}

static void each_program(void **state) {
    (void)state;
    run(train_single_main, "--steps 2");
    run(train_dp_main, "--steps 2 --devices 3");
    run(train_ddp_main, "--steps 2");
    run(train_fsdp_main, "--steps 2");
}

static void options_of_all(void **state) {
    (void)state;
    run(train_single_main,
        "--steps 2 --hidden 9,8 --amp fp16 --clip-grad-norm 1 --optimizer adamw");
    run(train_single_main,
        "--steps 2 --hidden 8 --augment --accumulate-steps 2 --schedule step --loss bce");
    run(train_single_main, "--steps 2 --out out --profile --trace trace.json --dump-grads grads");
    run(train_single_main, "--resume out --steps 3 --no-eval");
    run(train_single_main, "--evaluate out/last.safetensors");
    run(train_single_main, "--steps 2 --save-init first --save last --save-every 1");
    run(train_single_main, "--steps 2 --load-init first --no-eval");
    run(train_single_main, "--steps 2 --dry-run");
}

static void options_of_ddp(void **state) {
    (void)state;
    run(train_ddp_main, "--steps 4 --comm-hook powersgd --powersgd-start 2 --save last");
    run(train_ddp_main, "--steps 2 --comm-hook bf16 --static-graph --no-gradient-as-bucket-view");
    run(train_ddp_main, "--steps 2 --find-unused-parameters --bucket-cap-mb 0 --link 10gbe");
    run(train_ddp_main, "--steps 2 --zero-optimizer --optimizer adam --save last");
    run(train_ddp_main, "--resume last --steps 3 --optimizer adam");
    run(train_ddp_main, "--steps 2 --model convnet --sync-batch-norm --global-batch 8");
}

static void options_of_fsdp(void **state) {
    (void)state;
    run(train_fsdp_main, "--steps 2 --units layers --optimizer adam --out out");
    run(train_fsdp_main,
        "--steps 2 --units root --no-reshard-after-forward --amp bf16 --dump-grads grads");
    run(train_fsdp_main, "--steps 2 --unshard-in-step --normalize global --clip-grad-norm 1");
    run(train_fsdp_main, "--no-overlap --resume out --steps 3 --optimizer adam");
}

static int enter_folder(void **state) {
    return temp_folder_make(state) == 0 && chdir(*state) == 0 ? 0 : -1;
}

static int leave_folder(void **state) {
    return chdir("/") == 0 ? temp_folder_remove(state) : -1;
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, enter_folder, leave_folder)

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(each_program), IN_FOLDER(options_of_all),
                                       IN_FOLDER(options_of_ddp), IN_FOLDER(options_of_fsdp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
