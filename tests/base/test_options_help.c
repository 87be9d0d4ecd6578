/* test_options_help.c: the complete text of --help and --help=man for tables with each kind of row,
 * and for rows at both sides of a width limit.
 */
#include "tests/rigs/check.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/base/options.h"

static char *text_of(void (*print)(const Options *options, FILE *stream), const Options *options) {
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    print(options, stream);
    fclose(stream);
    return text;
}

static void prints(void (*print)(const Options *options, FILE *stream), const Options *options,
                   const char *wanted) {
    char *text = text_of(print, options);
    assert_string_equal(text, wanted);
    free(text);
}

static struct {
    bool flag;
    int number;
    size_t count;
    double rate, pair[2];
    const char *none, *empty, *path, *word;
    enum { RED, DARK_BLUE } colour;
} values = {.number = -3,
            .count = 9,
            .rate = 0.1,
            .pair = {0.5, 1},
            .empty = "",
            .path = "a/b.c",
            .word = "step",
            .colour = DARK_BLUE};

static Options every_kind(void) {
    Options o = {.program = "my-prog",
                 .summary = "Does a thing.\n  my-prog --count 3\n'quoted' \\n"};
    options_add_title(&o, "Training");
    options_add_flag(&o, "flag", &values.flag, "in order");
    options_add_int(&o, "number", &values.number, -5, 5, ".a dot, a\\b and it's-so");
    options_add_count(&o, "count", &values.count, 0, 0, "many");
    options_metavar(&o, "COUNT");
    options_add_float(&o, "rate", &values.rate, 0, 1, "of it");
    options_add_pair(&o, "pair", values.pair, 0, 1, "of numbers");
    options_add_title(&o, "Output-files");
    options_add_string(&o, "none", &values.none, "FILE", "no default");
    options_add_string(&o, "empty", &values.empty, NULL, "no default either, and no name");
    options_add_string(&o, "path", &values.path, "FILE", "");
    options_add_choice(&o, "word", &values.word, "constant|step", "'one");
    options_add_enum(&o, "colour", &values.colour, "red|dark-blue", "");
    return o;
}

static void the_help(void **state) {
    (void)state;
    const Options o = every_kind();
    prints(options_print_help, &o,
           "usage: my-prog [options]\n"
           "\n"
           "Does a thing.\n"
           "  my-prog --count 3\n"
           "'quoted' \\n\n"
           "\n"
           "Training:\n"
           "  --flag                  in order\n"
           "  --number N              .a dot, a\\b and it's-so (default: -3)\n"
           "  --count COUNT           many (default: 9)\n"
           "  --rate F                of it (default: 0.1)\n"
           "  --pair F,F              of numbers (default: 0.5,1)\n"
           "\n"
           "Output-files:\n"
           "  --none FILE             no default\n"
           "  --empty                 no default either, and no name\n"
           "  --path FILE             (default: a/b.c)\n"
           "  --word constant|step    'one (default: step)\n"
           "  --colour red|dark-blue  (default: dark-blue)\n"
           "  --help                  print this and end\n");
}

static void the_manual_page(void **state) {
    (void)state;
    const Options o = every_kind();
    prints(options_print_man, &o,
           ".TH \"my-prog\" 1 \"\" \"ddp.c\" \"ddp.c\"\n"
           ".nh\n"
           ".ad l\n"
           ".SH NAME\n"
           "my\\-prog \\- Does a thing\n"
           ".SH SYNOPSIS\n"
           ".B my\\-prog\n"
           "[\\fIoptions\\fR]\n"
           ".SH DESCRIPTION\n"
           ".nf\n"
           "Does a thing.\n"
           "  my\\-prog \\-\\-count 3\n"
           "\\&'quoted' \\en\n"
           ".fi\n"
           ".SH OPTIONS\n"
           ".SS Training\n"
           ".TP\n"
           "\\fB\\-\\-flag\\fR\n"
           "in order\n"
           ".TP\n"
           "\\fB\\-\\-number\\fR \\fIN\\fR\n"
           "\\&.a dot, a\\eb and it's\\-so (default: \\-3)\n"
           ".TP\n"
           "\\fB\\-\\-count\\fR \\fICOUNT\\fR\n"
           "many (default: 9)\n"
           ".TP\n"
           "\\fB\\-\\-rate\\fR \\fIF\\fR\n"
           "of it (default: 0.1)\n"
           ".TP\n"
           "\\fB\\-\\-pair\\fR \\fIF,F\\fR\n"
           "of numbers (default: 0.5,1)\n"
           ".SS Output\\-files\n"
           ".TP\n"
           "\\fB\\-\\-none\\fR \\fIFILE\\fR\n"
           "no default\n"
           ".TP\n"
           "\\fB\\-\\-empty\\fR\n"
           "no default either, and no name\n"
           ".TP\n"
           "\\fB\\-\\-path\\fR \\fIFILE\\fR\n"
           " (default: a/b.c)\n"
           ".TP\n"
           "\\fB\\-\\-word\\fR \\fIconstant|\\:step\\fR\n"
           "\\&'one (default: step)\n"
           ".TP\n"
           "\\fB\\-\\-colour\\fR \\fIred|\\:dark\\-blue\\fR\n"
           " (default: dark\\-blue)\n"
           ".SS Help\n"
           ".TP\n"
           "\\fB\\-\\-help\\fR\n"
           "print this and end\n"
           ".TP\n"
           "\\fB\\-\\-help=man\\fR\n"
           "print this page, as roff's source, and end\n");
}

// The usage lines, for each set of arguments that a program takes.
static void usage_lines(void **state) {
    (void)state;
    static const struct {
        Options options;
        const char *help, *synopsis;
    } cases[] = {
        {{.program = "p"}, "usage: p [options]\n\n", "\n[\\fIoptions\\fR]\n"},
        {{.program = "p", .summary = "S"}, "usage: p [options]\n\nS\n\n", ""},
        {{.program = "p", .positional_max = 2},
         "usage: p [options] A B\n\n",
         "[\\fIoptions\\fR] \\fIA\\fR \\fIB\\fR\n"},
        {{.program = "p", .takes_command = true},
         "usage: p [options] COMMAND [ARGUMENT ...]\n\n",
         "[\\fIoptions\\fR] \\fICOMMAND [ARGUMENT ...]\\fR\n"},
        {{.program = "p", .takes_command = true, .command = "RUN"},
         "usage: p [options] RUN\n\n",
         "[\\fIoptions\\fR] \\fIRUN\\fR\n"},
        {{.program = "p", .positional_max = 2, .command = "FILE ..."},
         "usage: p [options] FILE ...\n\n",
         "[\\fIoptions\\fR] \\fIFILE ...\\fR\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char wanted[200];
        snprintf(wanted, sizeof wanted, "%s  --help  print this and end\n", cases[i].help);
        prints(options_print_help, &cases[i].options, wanted);
        char *man = text_of(options_print_man, &cases[i].options);
        if (!strstr(man, cases[i].synopsis)) fail_msg("%s", man);
        free(man);
    }
}

// The manual page's name line is the first line of the summary, without its full stop.
static void names_of_pages(void **state) {
    (void)state;
    static const struct {
        const char *summary, *name;
    } cases[] = {{NULL, "p \\- \n.SH"},
                 {"", "p \\- \n.SH"},
                 {".", "p \\- \n.SH"},
                 {"One. Two.", "p \\- One. Two\n.SH"},
                 {"One\ntwo.", "p \\- One\n.SH"},
                 {"a.\nb.", "p \\- a\n.SH"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Options o = {.program = "p", .summary = cases[i].summary};
        char *man = text_of(options_print_man, &o);
        if (!strstr(man, cases[i].name)) fail_msg("%s", man);
        free(man);
    }
}

// The title is not wider than its text.
static void a_title_and_a_flag(void **state) {
    (void)state;
    Options o = {.program = "p"};
    options_add_title(&o, "Only");
    options_add_flag(&o, "a", &values.flag, "b");
    prints(options_print_help, &o,
           "usage: p [options]\n\nOnly:\n  --a     b\n  --help  print this and end\n");
}

#define X10 "xxxxxxxxxx"

// The left column has at most 34 characters, with two spaces; the text ends at column 100.
static void widths(void **state) {
    (void)state;
    static const char *value;
    Options o = {.program = "p"};
    options_add_string(&o, "a", &value, X10 X10 "xxxxxxx", "b"); // 2 + 3 + 1 + 27 + 2 characters
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a " X10 X10 "xxxxxxx\n          b\n"
           "  --help  print this and end\n");
    o.table[0].metavar = X10 X10 "xxxxxx";
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a " X10 X10 "xxxxxx  b\n"
           "  --help                          print this and end\n");
    options_add_string(&o, "c", &value, X10 X10 "xxxxxxx", "d"); // one too wide
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a " X10 X10 "xxxxxx  b\n  --c " X10 X10 "xxxxxxx\n"
           "                                  d\n"
           "  --help                          print this and end\n");
    o.count = 1;
    o.table[0].metavar = "X";
    // Ten columns of names, ninety of text.
    o.table[0].help = X10 X10 X10 X10 X10 X10 X10 X10 " xxxxxxxxx";
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a X   " X10 X10 X10 X10 X10 X10 X10 X10 " xxxxxxxxx\n"
           "  --help  print this and end\n");
    o.table[0].help = X10 X10 X10 X10 X10 X10 X10 X10 " " X10 "  y ";
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a X   " X10 X10 X10 X10 X10 X10 X10 X10 "\n          " X10
           " y\n  --help  print this and end\n");
    o.table[0].help = X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 " y"; // wider than the column
    prints(options_print_help, &o,
           "usage: p [options]\n\n  --a X   " X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
           "\n          y\n  --help  print this and end\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_help),           cmocka_unit_test(the_manual_page),
        cmocka_unit_test(usage_lines),        cmocka_unit_test(names_of_pages),
        cmocka_unit_test(a_title_and_a_flag), cmocka_unit_test(widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
