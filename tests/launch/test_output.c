/* test_output.c: ddprun's treatment of the ranks' output (ddp/launch/output.h): prefixes, last
 * lines, progress bars, log files, a console that blocks. This test writes into the ranks' pipes.
 */
#include "tests/rigs/screen.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "ddp/launch/output.h"
#include "tests/rigs/temp_folder.h"

// ---- The ranks' streams -----------------------------------------------------------------------

enum { RANKS = 3, ALL = 2 * RANKS };

typedef struct Job {
    Output *output;
    int ends[ALL]; // write ends of the pipes: all ranks' stdout, then all ranks' stderr
} Job;

static Output *open_output(LaunchOptions options, bool terminal) {
    Error err = {0};
    options.local_ranks = RANKS;
    screen_begin(terminal);
    Output *output = output_open(&options, &err);
    CHECK_OK(output, err);
    return output;
}

// The first opened descriptor, of a log file or a pipe, is 0, as in a daemon.
static void job_begin(Job *job, int attempt, int first_rank) {
    Error err = {0};
    int read_ends[ALL];
    close(STDIN_FILENO);
    CHECK_OK(output_begin(job->output, attempt, first_rank, &err) == 0, err);
    for (int i = 0; i < ALL; i++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
        read_ends[i] = ends[0];
        job->ends[i] = ends[1];
    }
    for (int r = 0; r < RANKS; r++)
        output_connect(job->output, r, read_ends[r], read_ends[RANKS + r]);
}

// Stops reading the pipes, which children of ranks may keep open.
static void job_stop(Job *job) {
    output_end(job->output);
    for (int i = 0; i < ALL; i++) close(job->ends[i]);
}

// Local rank r writes `text` to stream 1 or 2; then the output is pumped.
static void says(const Job *job, int r, int stream, const char *text) {
    const int end = job->ends[(stream - 1) * RANKS + r];
    assert_int_equal(__real_write(end, text, strlen(text)), strlen(text));
    output_pump(job->output);
}

static void job_close(Job *job) {
    for (int i = 0; i < ALL; i++) close(job->ends[i]);
    output_end(job->output);
}

static void job_end(Job *job) {
    job_close(job);
    assert_int_equal(output_flush(job->output, 0), 0);
}

// Asserts the number of descriptors polled for writing and for reading.
static void polls(const Job *job, size_t writes, size_t reads) {
    struct pollfd entries[OUTPUT_POLL_MAX];
    size_t count = output_poll(job->output, entries), found[2] = {0};
    for (size_t i = 0; i < count; i++) {
        found[entries[i].events == POLLIN]++;
        if (entries[i].events == POLLOUT) assert_in_range(entries[i].fd, 1, 2);
    }
    assert_int_equal(found[0], writes);
    assert_int_equal(found[1], reads);
    assert_int_equal(count, writes + reads);
}

static void test_prefixes(void **state) {
    (void)state;
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    job_begin(&job, 0, 0);
    says(&job, 0, 1, "data\n");
    shows(1, "data\n");
    says(&job, 0, 2, "a\n\nb");
    shows(2, "[0]: a\n[0]: \n");
    says(&job, 1, 1, "first\nmid");
    shows(1, "[1]: first\n");
    says(&job, 2, 2, "err\n");
    says(&job, 1, 1, "dle\nrest");
    shows(1, "[1]: middle\n");
    output_say(job.output, "%d of %s", 3, "four");
    job_end(&job);
    shows(1, "[1]: rest");
    shows(2, "[2]: err\nddprun: 3 of four\n[0]: b");
    job_begin(&job, 1, RANKS); // ranks of node 1
    says(&job, 0, 1, "x\n");
    shows(1, "\n[3]: x\n"); // the previous attempt's unfinished line is ended
    says(&job, 2, 2, "y\n");
    shows(2, "\n[5]: y\n");
    job_end(&job);
    job_begin(&job, 2, 0);
    says(&job, 0, 1, "data");
    says(&job, 0, 2, "err");
    polls(&job, 0, ALL);
    close(job.ends[0]); // end of rank 0's stdout
    output_pump(job.output);
    polls(&job, 0, ALL - 1);
    shows(1, "data");
    job.ends[0] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    job_stop(&job);
    output_pump(job.output);
    shows(2, "[0]: err");
    polls(&job, 0, 0);
    output_close(job.output);
    output_close(NULL);
}

static void last(const Job *job, int r, const char *words) {
    assert_string_equal(output_last_words(job->output, r), words);
}

static void test_last_words(void **state) {
    (void)state;
    char text[500] = "", kept[401] = "";
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    job_begin(&job, 0, 0);
    last(&job, 1, "");
    says(&job, 1, 2, "one\ntwo\n \t\n\n");
    last(&job, 1, "two");
    says(&job, 1, 2, " \t a b\x01\x7f\x1f~\xc3\xa9! \r\n");
    last(&job, 1, "a b???~\xc3\xa9!");
    says(&job, 1, 1, "stdout\n");
    last(&job, 1, "a b???~\xc3\xa9!");
    says(&job, 1, 2, "\ra\n");
    says(&job, 1, 2, "u");
    last(&job, 1, "a");
    output_drain(job.output, 1);
    last(&job, 1, "u");
    says(&job, 1, 2, "\n\runfinished");
    output_drain(job.output, 1);
    last(&job, 1, "unfinished");
    last(&job, 0, "");
    for (size_t length = 399; length <= 401; length++) {
        memset(text, 'w', length);
        memcpy(text + length, "\n", 2);
        memset(kept, 'w', length < 400 ? length : 400);
        says(&job, 2, 2, text);
        last(&job, 2, kept);
    }
    job_end(&job);
    job_begin(&job, 1, 0);
    for (int r = 0; r < RANKS; r++) last(&job, r, ""); // none in this attempt
    job_end(&job);
    output_close(job.output);
}

// Output written before a rank's death, up to the capacity of a pipe.
static void test_drain(void **state) {
    (void)state;
    enum { HELD = 1 << 20 };
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    char *text = memory_zalloc(HELD);
    memset(text, 'x', HELD);
    memcpy(text + HELD - 12, "\nlast words\n", 12);
    job_begin(&job, 0, 0);
    const int end = job.ends[RANKS + 1];
    if (fcntl(end, F_SETPIPE_SZ, HELD) == HELD) { // the user's limit may be smaller
        assert_int_equal(__real_write(end, text, HELD), HELD);
        output_drain(job.output, 1);
        last(&job, 1, "last words");
    }
    job_end(&job);
    output_close(job.output);
    free(text);
}

// A child of a rank may write forever: a drain ends after 1 MiB, at the end of a line.
static void test_drain_is_bounded(void **state) {
    (void)state;
    Error err = {0};
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    CHECK_OK(output_begin(job.output, 0, 0, &err) == 0, err);
    output_connect(job.output, 1, open("/dev/zero", O_RDONLY | O_CLOEXEC),
                   open("/dev/null", O_RDONLY | O_CLOEXEC));
    polls(&job, 0, 2);
    output_drain(job.output, 1);
    polls(&job, 0, 1); // nothing queued; the ended stream is closed
    output_end(job.output);
    polls(&job, 1, 0);
    output_close(job.output);
}

// An error line that several ranks print is shown once per attempt.
static void test_repeated_errors(void **state) {
    (void)state;
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    for (int attempt = 0; attempt < 2; attempt++) {
        job_begin(&job, attempt, 0);
        says(&job, 0, 2, "error:x\n");
        says(&job, 1, 2, "error:x\n");
        says(&job, 2, 2, "error\n");
        shows(2, "[0]: error:x\n[1]: error:x\n[2]: error\n");
        assert_false(output_has_shown(job.output, 0));
        assert_false(output_has_shown(job.output, 1));
        says(&job, 1, 2, "error: x\n");
        shows(2, "[1]: error: x\n");
        says(&job, 0, 2, "error: x\n");
        says(&job, 2, 2, "error: x");
        output_drain(job.output, 2);
        shows(2, "");
        for (int r = 0; r < RANKS; r++) assert_true(output_has_shown(job.output, r));
        says(&job, 0, 2, "error: y\n");
        shows(2, "[0]: error: y\n");
        assert_false(output_has_shown(job.output, 0));
        assert_true(output_has_shown(job.output, 1));
        says(&job, 0, 2, "error: \n");
        shows(2, "[0]: error: \n");
        job_end(&job);
        shows(2, "");
    }
    job_begin(&job, 2, 0); // error lines without a newline, or empty
    says(&job, 0, 2, "error: ");
    says(&job, 1, 2, "error: ");
    job_end(&job);
    shows(2, "[0]: error: ");
    output_close(job.output);
}

// A filtered rank's output is not shown, and its error lines do not suppress others'.
static void test_filter(void **state) {
    (void)state;
    Job job = {open_output((LaunchOptions){.shown = "0,2"}, false), {0}};
    job_begin(&job, 0, 0);
    says(&job, 1, 1, "hidden\n");
    says(&job, 1, 2, "error: x\n");
    last(&job, 1, "error: x");
    assert_false(output_has_shown(job.output, 1));
    says(&job, 2, 2, "error: x\n");
    says(&job, 2, 1, "out\n");
    shows(1, "[2]: out\n");
    shows(2, "[2]: error: x\n");
    job_end(&job);
    output_close(job.output);
}

// Writes `count` bytes to rank 0's stdout, in parts that fit into a pipe.
static void says_much(const Job *job, size_t count, bool lines) {
    static char part[65536];
    memset(part, 'm', sizeof part);
    if (lines) part[sizeof part - 1] = '\n';
    for (size_t left = count; left > 0;) {
        const size_t bytes = left < sizeof part ? left : sizeof part;
        const char *from = part + sizeof part - bytes;
        assert_int_equal(__real_write(job->ends[0], from, bytes), bytes);
        output_pump(job->output);
        left -= bytes;
    }
}

static void test_longest_line(void **state) {
    (void)state;
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    job_begin(&job, 0, 0);
    says_much(&job, 1 << 20, false);
    assert_int_equal(screen.bytes[1], 0);
    says(&job, 0, 1, "n");
    assert_int_equal(screen.bytes[1], (1 << 20) + 1);
    assert_int_equal(screen.text[1][1 << 20], 'n');
    says(&job, 0, 1, "end\n");
    job_end(&job);
    assert_string_equal(screen.text[1] + (1 << 20), "nend\n");
    output_close(job.output);
}

// A console that blocks: 4 MiB are queued, then the streams shown on it are not read.
static void test_slow_console(void **state) {
    (void)state;
    enum { QUEUED = 4 << 20 };
    Job job = {open_output((LaunchOptions){0}, false), {0}};
    job_begin(&job, 0, 0);
    screen.accepts = false;
    says(&job, 0, 1, "\n");
    polls(&job, 1, ALL); // after one byte less
    says_much(&job, QUEUED - 1, true);
    polls(&job, 1, ALL);
    says(&job, 0, 1, "\n");
    polls(&job, 1, RANKS); // only stderr's streams
    says(&job, 0, 1, "later\n");
    says(&job, 1, 1, "later\n");
    says(&job, 2, 2, "err\n");
    polls(&job, 2, RANKS);
    job_close(&job);
    polls(&job, 2, 0);
    const uint64_t begin = clock_ns();
    for (int i = 0; i < 100 && screen.longest_ms == 0; i++) { // until a poll blocks
        screen.polls = 0;
        const uint64_t now = clock_ns();
        assert_int_equal(output_flush(job.output, 0.02), 0);
        assert_true(clock_ns() - now >= 20000000);
        assert_in_range(screen.polls, 2, 40); // no busy loop
    }
    assert_in_range(screen.longest_ms, 1, 20);
    screen.accepts = true;
    assert_int_equal(output_flush(job.output, 60), 0);
    assert_true(clock_ns() - begin < 50000000000u); // long before the deadline
    polls(&job, 0, 0);
    assert_int_equal(screen.bytes[2], strlen("[2]: err\n"));
    assert_string_equal(screen.text[1] + QUEUED, "\nlater\n[1]: later\n");
    output_close(job.output);
}

// Lost lines are an error on standard output only.
static void test_lost_lines(void **state) {
    (void)state;
    for (int fd = 1; fd <= 2; fd++) {
        Job job = {open_output((LaunchOptions){0}, false), {0}};
        job_begin(&job, 0, 0);
        screen.error[0] = ENOSPC;
        says(&job, 1, fd, "lost\n");
        job_close(&job);
        assert_int_equal(output_flush(job.output, 0), fd == 1 ? ENOSPC : 0);
        output_close(job.output);
    }
}

// ---- Progress bars ----------------------------------------------------------------------------

static void test_bars(void **state) {
    (void)state;
    Job job = {open_output((LaunchOptions){0}, true), {0}};
    job_begin(&job, 0, 0);
    output_drain(job.output, 0); // no output yet
    last(&job, 0, "");
    assert_true(output_bar_columns(job.output, 0) > 0);
    assert_int_equal(output_bar_columns(job.output, 1), 0);
    says(&job, 0, 2, "\r10%");
    shows(2, ERASE "10%");
    says(&job, 0, 2, "\r20%\r\033[K30%"); // the last bar counts
    shows(2, ERASE "30%");
    says(&job, 1, 1, "line\n");
    shows(1, ERASE "[1]: line\n");
    shows(2, ERASE "30%"); // redrawn
    says(&job, 1, 2, "\r40%\n");
    shows(2, ERASE "[1]: \r40%\n" ERASE "30%");
    output_drain(job.output, 0);
    last(&job, 0, ""); // a bar is not a last line
    says(&job, 0, 2, "\r\033[Kstep\n");
    shows(2, ERASE "[0]: step\n");
    last(&job, 0, "step");
    says(&job, 0, 2, "\r10%");
    says(&job, 0, 2, "\r"); // an empty bar
    shows(2, ERASE "10%" ERASE);
    says(&job, 0, 2, "\r\033[31mred\n");
    says(&job, 0, 2, "\033[Kplain\n");
    says(&job, 0, 2, "\r\n");
    says(&job, 0, 2, "part");
    output_drain(job.output, 0);
    last(&job, 0, "part");
    says(&job, 0, 2, "ial\n");
    shows(2, "[0]: \033[31mred\n[0]: \033[Kplain\n[0]: \r\n[0]: partial\n");
    says(&job, 0, 2, "\r50%\rab\n"); // "ab" is too short for an escape sequence
    shows(2, "[0]: ab\n");
    says(&job, 0, 2, "plain\nand \r60%");
    shows(2, "[0]: plain\n" ERASE "60%");
    says(&job, 0, 2, "\r\r\n");
    shows(2, ERASE "[0]: 60%\r\r\n"); // a newline turns the bar into a line
    static const char LONG_BAR[] =
        "70% of a bar as long as a line of a terminal that has 80 columns";
    says(&job, 0, 2, "\r");
    says(&job, 0, 2, LONG_BAR);
    shows(2, ERASE "70% of a bar as long as a line of a terminal that has 80 columns");
    polls(&job, 0, ALL); // a drawn bar needs no write
    job_end(&job);       // erases the bar
    shows(2, ERASE);
    job_begin(&job, 1, RANKS); // on node 1, which has no rank 0
    assert_int_equal(output_bar_columns(job.output, 0), 0);
    says(&job, 0, 2, "\r10%");
    shows(2, "");
    job_end(&job);
    shows(2, "[3]: \r10%");
    output_close(job.output);
}

// Bars are drawn only on a terminal that shows rank 0's stderr.
static void test_without_bar(void **state) {
    static const LaunchOptions plain = {.local_ranks = RANKS};
    LaunchOptions filed = plain, hidden = plain;
    filed.log_dir = *state;
    filed.tee = "0:2";
    hidden.shown = "1";
    const LaunchOptions options[] = {plain, filed, hidden};
    for (int i = 0; i < 3; i++) {
        Job job = {open_output(options[i], i > 0), {0}};
        job_begin(&job, 0, 0);
        assert_int_equal(output_bar_columns(job.output, 0), 0);
        job_end(&job);
        output_close(job.output);
    }
}

// ---- Log files --------------------------------------------------------------------------------

static void holds(void **state, const char *name, const char *text) {
    char *path = temp_folder_path(state, name), found[200] = "";
    FILE *file = fopen(path, "re");
    if (!text) assert_null(file);
    if (text) {
        assert_non_null(file);
        found[fread(found, 1, sizeof found - 1, file)] = '\0';
        assert_string_equal(found, text);
        fclose(file);
    }
    free(path);
}

static void test_log_files(void **state) {
    const LaunchOptions options = {.log_dir = *state, .redirects = "0:1", .tee = "1:2,0:2"};
    Job job = {open_output(options, false), {0}};
    char *folder = temp_folder_path(state, "attempt_7/4");
    const mode_t before = umask(0);
    job_begin(&job, 7, RANKS);
    screen.error[0] = SHORT;
    says(&job, 0, 1, "out 0\n");
    says(&job, 0, 1, "\n");                          // a single byte
    assert_int_equal(fcntl(0, F_GETFD), FD_CLOEXEC); // the first file has descriptor 0
    says(&job, 0, 2, "err 0\n");
    says(&job, 1, 1, "out 1\n");
    screen.error[0] = EINTR;
    says(&job, 1, 2, "err 1\n");
    says(&job, 1, 2, "part");
    shows(1, "[4]: out 1\n");
    shows(2, "[3]: err 0\n[4]: err 1\n");
    char *where = output_folder(job.output, 1);
    assert_string_equal(where, folder);
    free(where);
    assert_null(output_folder(job.output, 2));
    job_end(&job);
    shows(2, "[4]: part");
    struct stat about;
    char *first = temp_folder_path(state, "attempt_7/3/stdout.log");
    assert_int_equal(stat(first, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0666);
    free(first);
    holds(state, "attempt_7/3/stdout.log", "out 0\n\n");
    holds(state, "attempt_7/3/stderr.log", "err 0\n");
    holds(state, "attempt_7/4/stdout.log", NULL);
    holds(state, "attempt_7/4/stderr.log", "err 1\npart");
    holds(state, "attempt_7/5/stdout.log", NULL);
    job_begin(&job, 8, RANKS);
    screen.error[0] = ENOSPC; // the next write fails: a full disk
    says(&job, 1, 2, "lost\n");
    shows(2, "\nddprun: cannot write a log file any more: No space left on device\n[4]: lost\n");
    says(&job, 1, 2, "shown\n");
    shows(2, "[4]: shown\n");
    job_end(&job);
    holds(state, "attempt_8/4/stderr.log", "");
    holds(state, "attempt_8/3/stdout.log", ""); // not written through descriptor 0
    umask(before);
    output_close(job.output);
    free(folder);
}

// A log file that cannot be opened. Descriptors reused after an earlier attempt must stay open.
static void test_log_file_in_the_way(void **state) {
    const LaunchOptions options = {.log_dir = *state};
    static const char *const says[] = {"it is not a regular file", "Is a directory",
                                       "No such device or address"};
    char *path = temp_folder_path(state, "attempt_0/1/stdout.log");
    Output *output = open_output(options, false);
    int taken[ALL];
    Error err = {0};
    CHECK_OK(output_begin(output, 0, 0, &err) == 0, err);
    output_end(output);
    for (int i = 0; i < ALL; i++) taken[i] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        err = (Error){0};
        assert_int_equal(remove(path), 0);
        assert_int_equal(i == 0   ? symlink("/dev/null", path)
                         : i == 1 ? mkdir(path, 0777)
                                  : mkfifo(path, 0666),
                         0);
        assert_int_equal(output_begin(output, 0, 0, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        check_message(&err, "attempt_0/1/stdout.log: ");
        check_message(&err, says[i]);
        output_end(output);
    }
    for (int i = 0; i < ALL; i++) assert_int_equal(close(taken[i]), 0);
    output_close(output);
    free(path);
}

// ---- Routing of streams -----------------------------------------------------------------------

// By local rank: streams with a log file, and streams that the console does not show.
static void test_routing(void **state) {
    (void)state;
    static const struct {
        const char *redirects, *tee, *shown;
        unsigned char files[RANKS], hidden[RANKS];
    } cases[] = {
        {NULL, NULL, NULL, {3, 3, 3}, {0}},
        {"0", NULL, NULL, {0}, {0}},
        {"3", NULL, NULL, {3, 3, 3}, {3, 3, 3}},
        {NULL, "2", NULL, {2, 2, 2}, {0}},
        {"1", "2", NULL, {3, 3, 3}, {1, 1, 1}},
        {"0:3,2:1", "2:3", NULL, {3, 0, 3}, {3, 0, 0}},
        {NULL, "0:0,1:1,2:2", "1", {0, 1, 2}, {3, 0, 3}},
        {"2:2", NULL, "0,2", {0, 0, 2}, {0, 3, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char files[LAUNCH_RANKS_MAX], hidden[LAUNCH_RANKS_MAX];
        const LaunchOptions o = {.local_ranks = RANKS,
                                 .log_dir = "logs",
                                 .shown = cases[i].shown,
                                 .redirects = cases[i].redirects,
                                 .tee = cases[i].tee};
        Error err = {0};
        memset(files, 9, sizeof files);
        memset(hidden, 9, sizeof hidden);
        CHECK_OK(output_routing_parse(&o, files, hidden, &err) == 0, err);
        assert_memory_equal(files, cases[i].files, RANKS);
        assert_memory_equal(hidden, cases[i].hidden, RANKS);
        assert_int_equal(files[RANKS], 9);
        assert_int_equal(hidden[RANKS], 9);
    }
}

static void refuse_routing(LaunchOptions options, const char *name, const char *says) {
    Error err = {0};
    options.local_ranks = RANKS;
    assert_null(output_open(&options, &err));
    assert_int_equal(err.status, STATUS_USAGE);
    check_message(&err, name);
    check_message(&err, says);
}

static void test_bad_routing(void **state) {
    (void)state;
    static const char *const modes[] = {
        "", "4", "00", "3:1", "0:4", "0:", "0,", "0:1,", "0,1", "0:1;1:1", ":1", "0:1,x"};
    static const char *const lists[] = {"", "3", "0,3", "0,", ",0", "0:1", "0,x", "0;1"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        refuse_routing((LaunchOptions){.log_dir = "l", .redirects = modes[i]}, "--redirects '",
                       "or LOCAL_RANK:0..3,... with local ranks below 3");
        refuse_routing((LaunchOptions){.log_dir = "l", .tee = modes[i]}, "--tee '", "below 3");
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        refuse_routing((LaunchOptions){.shown = lists[i]}, "--local-ranks-filter '",
                       "use local ranks below 3, as in 0,2");
    refuse_routing((LaunchOptions){.redirects = "3"}, "--redirects and", "need --log-dir");
    refuse_routing((LaunchOptions){.tee = "3"}, "--redirects and", "need --log-dir");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_is_bounded),
        cmocka_unit_test(test_repeated_errors),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_longest_line),
        cmocka_unit_test(test_slow_console),
        cmocka_unit_test(test_lost_lines),
        cmocka_unit_test(test_bars),
        IN_FOLDER(test_without_bar),
        IN_FOLDER(test_log_files),
        IN_FOLDER(test_log_file_in_the_way),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_bad_routing),
    };
    return cmocka_run_group_tests(tests, make_screen, free_screen);
}
