/* test_options_alike.c: all options of train_ddp. If ranks differ in an option, the error names the
 * option, both values and both ranks; only rank 0's files may differ. Each number has its default
 * and is tried at both ends of its range.
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

// Changes the option's value, to the nearest one if there is a nearest.
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
    memset(command->alike, 'x', sizeof command->alike); // an earlier text is replaced
    train_options_alike(&command->options, command->alike, sizeof command->alike);
    for (size_t i = 0; i < command->options.count; i++) {
        if (command->options.table[i].type == OPTION_TITLE) continue;
        check_option(i, command->alike);
        options++;
    }
    assert_true(options > 70);
    free(command);
}

// File names with a long common prefix, and names with several lines.
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

// ---- ranges -------------------------------------------------------------------------------------

// Every numeric option; seed is unlimited.
static const struct Range {
    const char *name, *text; // the default
    double smallest, largest;
} RANGES[] = {
    {"layers", "0", 0, 1000},
    {"heads", "0", 0, 1000},
    {"embedding", "0", 0, 65536},
    {"context", "0", 0, 65536},
    {"vocabulary", "0", 0, 65536},
    {"ignore-label", "-1", -1, 255},
    {"sampler-seed", "-1", -1, 2147483647},
    {"global-batch", "60", 1, 16777216},
    {"accumulate-steps", "1", 1, 65536},
    {"memory-limit", "0", 0, 1e9},
    {"threads", "1", 1, 1024},
    {"seed", "0", 0, 0},
    {"epochs", "10", 1, 1e9},
    {"steps", "0", 0, 1e12},
    {"lr", "0.08", 0, 1e6},
    {"momentum", "0.9", 0, 1},
    {"weight-decay", "0.01", 0, 1e6},
    {"betas", "0.9,0.999", 0, 0.999999},
    {"eps", "1e-08", 0, 1},
    {"clip-grad-norm", "0", 0, 1e30},
    {"warmup-steps", "0", 0, 1e12},
    {"warmup-start", "0", 0, 1},
    {"step-every", "0", 0, 1e12},
    {"gamma", "0.1", 0, 1e6},
    {"power", "0.9", 0, 1e6},
    {"pos-weight", "1", 0, 1e6},
    {"ohem-threshold", "0", 0, 1e6},
    {"ohem-probability", "0", 0, 1},
    {"ohem-min", "0", 0, 1e12},
    {"log-every", "25", 1, 1e12},
    {"save-every", "0", 0, 1e12},
    {"keep-epochs", "0", 0, 1e9},
    {"dump-images", "0", 0, 1e9},
    {"sample", "0", 0, 16777216},
    {"timeout-s", "1800", 0.001, 1e6},
    {"bucket-cap-mb", "-1", -1, 1e6},
    {"powersgd-rank", "1", 1, 1e6},
    {"powersgd-start", "1000", 2, 1e15},
};
enum { RANGES_COUNT = sizeof RANGES / sizeof *RANGES };

static bool accepts(const Option *option, double value) {
    Command *command = command_open();
    char name[80], text[80];
    Error err = {0};
    snprintf(name, sizeof name, "--%s", option->name);
    if (option->type == OPTION_PAIR)
        snprintf(text, sizeof text, "0.5,%.17g", value);
    else if (option->type == OPTION_FLOAT)
        snprintf(text, sizeof text, "%.17g", value);
    else
        snprintf(text, sizeof text, "%.0f", value);
    int status = options_parse(&command->options, 3, (char *[]){"", name, text, NULL}, &err);
    if (status != 0) check_message(&err, name);
    free(command);
    return status == 0;
}

static void check_range(const Option *option) {
    size_t r = 0;
    char buffer[80];
    while (r < RANGES_COUNT && strcmp(RANGES[r].name, option->name) != 0) r++;
    if (r == RANGES_COUNT) fail_msg("--%s is not in the list of ranges", option->name);
    const double low = RANGES[r].smallest, high = RANGES[r].largest;
    const bool whole = option->type == OPTION_INT || option->type == OPTION_SIZE;
    assert_string_equal(option_text(option, buffer, sizeof buffer), RANGES[r].text);
    assert_string_equal(option->metavar,
                        options_has_word("accumulate-steps|keep-epochs|dump-images", option->name)
                            ? "K"
                        : option->type == OPTION_PAIR ? "F,F"
                        : whole                       ? "N"
                                                      : "F");
    if (!accepts(option, low) || accepts(option, whole ? low - 1 : nextafter(low, -INFINITY)))
        fail_msg("the smallest --%s is not %g", option->name, low);
    if (strcmp(option->name, "seed") == 0) return;
    if (!accepts(option, high) || accepts(option, whole ? high + 1 : nextafter(high, INFINITY)))
        fail_msg("the largest --%s is not %g", option->name, high);
}

static void test_both_ends_of_every_range(void **state) {
    (void)state;
    Command *command = command_open();
    int numbers = 0;
    for (size_t i = 0; i < command->options.count; i++) {
        const Option *option = &command->options.table[i];
        if (option->type < OPTION_INT || option->type > OPTION_PAIR) continue;
        check_range(option);
        numbers++;
    }
    assert_int_equal(numbers, RANGES_COUNT);
    free(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_is_compared),
        cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_other_programs),
        cmocka_unit_test(test_both_ends_of_every_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
