/* test_options_alike.c: goes through train_ddp's table of options. Ranks that differ in any one of
 * them are refused by an error that names the option, both values and both ranks; only files of
 * rank 0 alone may differ.
 */
#include <stdlib.h>

#include "ddp/ddp_options.h"
#include "ddp/rendezvous/rendezvous_internal.h"
#include "tests/rigs/check.h"

typedef struct Command {
    TrainConfig config;
    DdpOptions ddp;
    Options options;
    char alike[INIT_ALIKE_MAX];
} Command;

static Command *command_open(void) {
    Command *command = calloc(1, sizeof *command);
    assert_non_null(command);
    command->config = train_config_default();
    command->ddp = ddp_options_default();
    train_options(&command->options, &command->config);
    ddp_options(&command->options, &command->ddp);
    return command;
}

// Gives the option another value than its default, the nearest one.
static void change(const Option *option) {
    switch (option->type) {
    case OPTION_FLAG:
        *(bool *)option->value = !*(bool *)option->value;
        break;
    case OPTION_INT:
        *(int *)option->value += 1;
        break;
    case OPTION_SIZE:
        *(uint64_t *)option->value += (uint64_t)1 << 63;
        break;
    case OPTION_FLOAT:
        *(double *)option->value = nextafter(*(double *)option->value, INFINITY);
        break;
    case OPTION_PAIR:
        ((double *)option->value)[1] = nextafter(((double *)option->value)[1], INFINITY);
        break;
    case OPTION_ENUM:
        *(int *)option->value = *(int *)option->value == 0;
        break;
    default:
        *(const char **)option->value = "other";
        break;
    }
}

static bool may_differ(const char *name) {
    return options_has_word("out|save|trace|dump-grads|save-init|load-init", name);
}

static void check_option(size_t i, const char *others) {
    Command *command = command_open();
    const Option *option = &command->options.table[i];
    Error err = {0};
    char expected[80];
    change(option);
    train_options_alike(&command->options, command->alike, sizeof command->alike);
    int status = compare_settings(others, 0, command->alike, 3, &err);
    if (may_differ(option->name)) {
        CHECK_OK(status == 0, err);
    } else {
        snprintf(expected, sizeof expected, "--%s is ", option->name);
        assert_int_equal(status, -1);
        assert_int_equal(err.status, STATUS_USAGE);
        assert_memory_equal(err.message, expected, strlen(expected));
        check_message(&err, " at rank 0 and ");
        check_message(&err, " at rank 3 -- start all ranks with the same options");
    }
    free(command);
}

static void test_every_option_is_compared(void **state) {
    (void)state;
    Command *command = command_open();
    size_t options = 0;
    train_options_alike(&command->options, command->alike, sizeof command->alike);
    for (size_t i = 0; i < command->options.count; i++) {
        if (command->options.table[i].type == OPTION_TITLE) continue;
        check_option(i, command->alike);
        options++;
    }
    assert_true(options > 70);
    free(command);
}

// Names of files that have their first characters in common; and one of several lines.
static void test_long_values(void **state) {
    (void)state;
    char long_name[300];
    const char *const names[] = {"a\nb", long_name, NULL};
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    Command *one = command_open(), *other = command_open();
    one->config.data = long_name;
    for (int i = 0; i < 3; i++) {
        Error err = {0};
        other->config.data = names[i];
        train_options_alike(&one->options, one->alike, sizeof one->alike);
        train_options_alike(&other->options, other->alike, sizeof other->alike);
        int status = compare_settings(one->alike, 0, other->alike, 1, &err);
        assert_int_equal(status, i == 1 ? 0 : -1);
        if (i != 1) check_message(&err, "--data is xxxx");
    }
    char longer[301];
    Error err = {0};
    snprintf(longer, sizeof longer, "%s%s", long_name, "y");
    other->config.data = longer;
    train_options_alike(&other->options, other->alike, sizeof other->alike);
    assert_int_equal(compare_settings(one->alike, 0, other->alike, 1, &err), -1);
    assert_true(strlen(err.message) < 300);
    free(one);
    free(other);
}

static void test_other_programs(void **state) {
    (void)state;
    const char *const theirs[] = {"", "--a 1\n", "--a 1\n--b 2\n--c 3\n", "--a 1\n--bb 2\n"};
    for (int i = 0; i < 4; i++) {
        Error err = {0};
        assert_int_equal(compare_settings("--a 1\n--b 2\n", 0, theirs[i], 1, &err), -1);
        check_message(&err, "start the same program on all ranks");
    }
    Error err = {0};
    CHECK_OK(compare_settings("", 0, "", 1, &err) == 0, err);
    CHECK_OK(compare_settings("--a 1\n", 0, "--a 1\n", 1, &err) == 0, err);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_is_compared),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_other_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
