/* test_ddprun.c: ddprun's command line (ddp/launch/ddprun.c): options, both ends of their ranges,
 * defaults from the environment, refusals. This file simulates the job: it writes the options that
 * differ from their defaults as text.
 */
#include "tests/rigs/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/options.h"
#include "ddp/launch/count_gpus.h"
#include "ddp/launch/launcher.h"

enum { JOB_STATUS = 42 };

static struct {
    char job[1200];                          // text of the options of the job
    char error[sizeof((Error *)0)->message]; // the error that ended the program
    jmp_buf ends;
    int gpus;         // number of GPUs; -1: counting fails
    double gpus_in_s; // timeout passed to the count
    int cores;        // number of cores; 0: sched_getaffinity fails, 7 are online
    bool beside_me;   // a train_ddp is in ddprun's folder
    bool fails;       // the job fails
    bool helped;      // --help was printed
} play;

// ---- Simulated functions

static void field(const char *name, double value, double usual) {
    if (value == usual) return;
    assert_true(format_append(play.job, sizeof play.job, "%s=%.10g ", name, value));
}

static void text_field(const char *name, const char *value) {
    if (!value) return;
    assert_true(format_append(play.job, sizeof play.job, "%s=%s ", name, value));
}

int launcher_run(const LaunchOptions *o, Error *err) {
    field("ranks", o->local_ranks, 1);
    field("nodes", o->nodes, 1);
    field("least", o->min_nodes, o->nodes);
    field("node", o->node, 0);
    text_field("at", strcmp(o->master_addr, "127.0.0.1") == 0 ? NULL : o->master_addr);
    field("port", o->master_port, 0);
    field("restarts", o->max_restarts, 0);
    field("monitor", o->monitor_s, 0.1);
    field("grace", o->grace_s, 5);
    field("exit", o->exit_timeout_s, 300);
    field("heartbeat", o->heartbeat_s, 300);
    field("start", o->start_timeout_s, 300);
    field("last", o->last_call_s, 5);
    text_field("log", o->log_dir);
    text_field("redirects", o->redirects);
    text_field("tee", o->tee);
    text_field("shown", o->shown);
    field("bind", o->bind_cores, 0);
    field("fake", o->fake_hosts, 0);
    for (size_t i = 0; o->command[i]; i++) text_field("", o->command[i]);
    return play.fails ? error_set(err, STATUS_FAILED, "no job"), STATUS_FAILED : JOB_STATUS;
}

int count_gpus(double timeout_s, Error *err) {
    play.gpus_in_s = timeout_s;
    return play.gpus < 0 ? error_set(err, STATUS_SKIPPED, "no GPU here") : play.gpus;
}

int launcher_find_program(const char *name, char path[PATH_MAX], Error *err) {
    assert_string_equal(name, "train_ddp");
    path[0] = '\0';
    return play.beside_me ? 0 : error_set(err, STATUS_USAGE, "there is none");
}

int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cores) {
    assert_int_equal(pid, 0);
    assert_int_equal(size, sizeof *cores);
    CPU_ZERO(cores);
    for (int i = 0; i < play.cores; i++) CPU_SET((size_t)i, cores);
    return play.cores ? 0 : -1;
}

long __wrap_sysconf(int name);
long __wrap_sysconf(int name) {
    assert_int_equal(name, _SC_NPROCESSORS_ONLN);
    return 7;
}

void __wrap_options_print_help(const Options *options, FILE *stream);
void __wrap_options_print_help(const Options *options, FILE *stream) {
    assert_string_equal(options->program, "ddprun");
    assert_true(stream == stderr && options->summary);
    int titles = 0;
    for (size_t i = 0; i < options->count; i++) {
        const Option *o = &options->table[i];
        titles += o->type == OPTION_TITLE;
        if (o->type == OPTION_FLOAT) assert_string_equal(o->metavar, "S");
        if (o->metavar) assert_true(strlen(o->metavar) < 16 && strlen(o->help) > 16);
    }
    assert_int_equal(titles, 2);
    assert_string_equal(options_find(options, "master-port")->metavar, "PORT");
    play.helped = true;
}

void __wrap_error_exit(const Error *err);
void __wrap_error_exit(const Error *err) {
    strcpy(play.error, err->message);
    longjmp(play.ends, err->status + 1000);
}

// ---- Command lines

int __real_main(int argc, char **argv); // ddprun's: see main at the end

static int run(int argc, char **argv) {
    play.job[0] = play.error[0] = '\0';
    const int ended = setjmp(play.ends);
    if (ended != 0) return ended - 1000;
    const int status = __real_main(argc, argv);
    assert_string_equal(play.error, "");
    return status;
}

// Runs ddprun with arguments separated by spaces. Returns its status.
static int run_text(const char *text) {
    char copy[1200], *argv[40] = {"ddprun"}, *rest = NULL;
    int argc = 1;
    strcpy(copy, text);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = strcmp(word, "''") == 0 ? "" : word;
    return run(argc, argv);
}

// Asserts that ddprun runs a job with these options.
static void runs(const char *arguments, const char *job) {
    if (run_text(arguments) != JOB_STATUS) fail_msg("%s: %s", arguments, play.error);
    assert_string_equal(play.job, job);
}

// Asserts that ddprun fails with an error that begins with `begin`.
static void refuses(const char *arguments, const char *begin) {
    const int status = run_text(arguments);
    if (status != STATUS_USAGE || strncmp(play.error, begin, strlen(begin)) != 0)
        fail_msg("%s: status %d, '%s' %s", arguments, status, play.error, play.job);
    assert_string_equal(play.job, "");
}

// Removes one of torchrun's variables; returns false if there is none.
static bool unset_torchrun(void) {
    for (size_t i = 0; environ[i]; i++) {
        char name[100];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
        if (strncmp(name, "PET_", 4) == 0) return unsetenv(name) == 0;
    }
    return false;
}

static int begin(void **state) {
    (void)state;
    memset(&play, 0, sizeof play);
    play.cores = 3;
    play.gpus = 2;
    while (unset_torchrun()) continue;
    return 0;
}

static void options_of_a_job(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *job;
    } cases[] = {
        {"true", "=true "},
        {"tool --nnodes 2", "=tool =--nnodes =2 "},
        {"-- tool -x", "=tool =-x "},
        {"--nproc-per-node 4 t", "ranks=4 =t "},
        {"--nproc-per-node 1024 t", "ranks=1024 =t "},
        {"--nproc-per-node auto t", "ranks=3 =t "},
        {"--nproc-per-node cpu t", "ranks=3 =t "},
        {"--nproc-per-node gpu t", "ranks=2 =t "},
        {"--nnodes 2 t", "nodes=2 port=29500 =t "},
        {"--nnodes 1:1 --node-rank 0 t", "=t "},
        {"--nnodes 2 --node-rank 1 --master-port 7 t", "nodes=2 node=1 port=7 =t "},
        {"--nnodes 1:4 --node-rank 9 t", "nodes=4 least=1 node=9 port=29500 =t "},
        {"--nnodes 1048576 t", "nodes=1048576 port=29500 =t "},
        {"--nproc-per-node 1024 --nnodes 2:1024 t", "ranks=1024 nodes=1024 least=2 port=29500 =t "},
        {"--node-rank 0 t", "=t "},
        {"--master-addr mars --master-port 65535 t", "at=mars port=65535 =t "},
        {"--standalone t", "=t "},
        {"--max-restarts 1000000 t", "restarts=1000000 =t "},
        {"--bind cores t", "bind=1 =t "},
        {"--bind none t", "=t "},
        {"--fake-hosts t", "fake=1 =t "},
        {"--log-dir logs --redirects 1 --tee 2 --local-ranks-filter 0,2 t",
         "log=logs redirects=1 tee=2 shown=0,2 =t "},
        {"--monitor-interval 0.001 t", "monitor=0.001 =t "},
        {"--monitor-interval 60 t", "monitor=60 =t "},
        {"--grace-seconds 0 --exit-timeout 0 --heartbeat-timeout 0 t",
         "grace=0 exit=0 heartbeat=0 =t "},
        {"--start-timeout 0 --last-call 0 t", "start=0 last=0 =t "},
        {"--grace-seconds 86400 --exit-timeout 1e6 --heartbeat-timeout 1e6 t",
         "grace=86400 exit=1000000 heartbeat=1000000 =t "},
        {"--start-timeout 1e6 --last-call 1e6 t", "start=1000000 last=1000000 =t "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        runs(cases[i].arguments, cases[i].job);
}

static void what_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *arguments, *message;
    } cases[] = {
        {"--nproc-per-node 2", "which program? ddprun [options] PROGRAM [arguments]"},
        {"--nproc-per-node 0 t",
         "--nproc-per-node '0': use a number from 1 to 1024, auto, cpu or gpu"},
        {"--nproc-per-node 1025 t", "--nproc-per-node '1025': use a number"},
        {"--nproc-per-node 1x t", "--nproc-per-node '1x': use a number"},
        {"--nproc-per-node x t", "--nproc-per-node 'x': use a number"},
        {"--nproc-per-node '' t", "--nproc-per-node '': use a number"},
        {"--nnodes 0 t",
         "--nnodes '0': use the number of nodes, or MIN:MAX if they may come and go"},
        {"--nnodes x t", "--nnodes 'x': use"},
        {"--nnodes 2: t", "--nnodes '2:': use"},
        {"--nnodes :2 t", "--nnodes ':2': use"},
        {"--nnodes 2:1 t", "--nnodes '2:1': use"},
        {"--nnodes 0:2 t", "--nnodes '0:2': use"},
        {"--nnodes 1:2x t", "--nnodes '1:2x': use"},
        {"--nnodes 2147483648 t", "--nnodes '2147483648': use"},
        {"--nnodes 1048577 t", "--nnodes '1048577': use"},
        {"--nproc-per-node 1024 --nnodes 1025 t", "--nnodes '1025': use"},
        {"--node-rank 1 t", "--node-rank 1: nodes are counted from 0, and there is 1"},
        {"--nnodes 2 --node-rank 2 t", "--node-rank 2: nodes are counted from 0, and there are 2"},
        {"--fake-hosts --nnodes 2 t", "--fake-hosts is for one node, --nnodes says 2"},
        {"--standalone --nnodes 2 t", "--standalone is for one node, --nnodes says 2"},
        {"--standalone --master-addr a t",
         "--master-addr has no effect: --standalone takes 127.0.0.1 and a free port"},
        {"--standalone --master-port 5 t",
         "--master-port has no effect: --standalone takes 127.0.0.1 and a free port"},
        {"--master-addr '' t", "--master-addr must have 1 to 255 characters"},
        {"--node-rank -1 t", "--node-rank: '-1' is out of range (0 to 2147483647)"},
        {"--master-port -1 t", "--master-port: '-1' is out of range (0 to 65535)"},
        {"--master-port 65536 t", "--master-port: '65536' is out of range (0 to 65535)"},
        {"--max-restarts -1 t", "--max-restarts: '-1' is out of range (0 to 1000000)"},
        {"--max-restarts 1000001 t", "--max-restarts: '1000001' is out of range (0 to 1000000)"},
        {"--monitor-interval 0.0009 t",
         "--monitor-interval: '0.0009' is out of range (0.001 to 60)"},
        {"--monitor-interval 60.1 t", "--monitor-interval: '60.1' is out of range (0.001 to 60)"},
        {"--grace-seconds -0.1 t", "--grace-seconds: '-0.1' is out of range (0 to 86400)"},
        {"--grace-seconds 86401 t", "--grace-seconds: '86401' is out of range (0 to 86400)"},
        {"--exit-timeout -1 t", "--exit-timeout: '-1' is out of range (0 to 1000000)"},
        {"--exit-timeout 1000001 t", "--exit-timeout: '1000001' is out of range (0 to 1000000)"},
        {"--heartbeat-timeout -1 t", "--heartbeat-timeout: '-1' is out of range (0 to 1000000)"},
        {"--heartbeat-timeout 1000001 t", "--heartbeat-timeout: '1000001' is out of range"},
        {"--start-timeout -1 t", "--start-timeout: '-1' is out of range (0 to 1000000)"},
        {"--start-timeout 1000001 t", "--start-timeout: '1000001' is out of range"},
        {"--last-call -1 t", "--last-call: '-1' is out of range (0 to 1000000)"},
        {"--last-call 1000001 t", "--last-call: '1000001' is out of range"},
        {"--bind sockets t", "--bind: 'sockets' is"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(cases[i].arguments, cases[i].message);
}

static void long_addresses(void **state) {
    (void)state;
    char arguments[400], job[400], address[257];
    memset(address, 'x', 256);
    address[256] = '\0';
    snprintf(arguments, sizeof arguments, "--master-addr %s t", address);
    refuses(arguments, "--master-addr must have 1 to 255 characters");
    address[255] = '\0';
    snprintf(arguments, sizeof arguments, "--master-addr %s t", address);
    snprintf(job, sizeof job, "at=%s =t ", address);
    runs(arguments, job);
}

static void ranks_by_what_is_here(void **state) {
    (void)state;
    play.cores = 0;
    runs("--nproc-per-node auto t", "ranks=7 =t ");
    play.cores = 1023;
    runs("--nproc-per-node cpu t", "ranks=1023 =t ");
    play.gpus = 1025; // above the maximum number of ranks
    runs("--start-timeout 2.5 --nproc-per-node gpu t", "ranks=1024 start=2.5 =t ");
    assert_true(play.gpus_in_s == 2.5);
    play.gpus = -1;
    assert_int_equal(run_text("--nproc-per-node gpu t"), STATUS_SKIPPED);
    assert_string_equal(play.error, "--nproc-per-node gpu: no GPU here");
    play.fails = true;
    assert_int_equal(run_text("t"), STATUS_FAILED);
    assert_string_equal(play.error, "no job");
}

// torchrun's variables set options, which the command line overrides.
static void defaults_from_the_environment(void **state) {
    (void)state;
    char name[80], cut[61], message[200];
    setenv("PETER", "1", 1);
    setenv("APET_FOO", "1", 1);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("PET_MAX_RESTARTS", "4", 1);
    runs("--max-restarts 5 t", "ranks=2 restarts=5 =t ");
    runs("t", "ranks=2 restarts=4 =t ");
    setenv("PET_STANDALONE", "0", 1);
    runs("--master-port 9 t", "ranks=2 port=9 restarts=4 =t ");
    setenv("PET_STANDALONE", "1", 1);
    refuses("--master-port 9 t", "--master-port has no effect: --standalone");
    unsetenv("PET_STANDALONE");
    setenv("PET_MASTER_ADDR", "mars", 1);
    setenv("PET_MASTER_PORT", "9", 1);
    runs("t", "ranks=2 at=mars port=9 restarts=4 =t ");
    runs("--standalone t", "ranks=2 restarts=4 =t "); // overrides the variables
    unsetenv("PET_MASTER_ADDR");
    unsetenv("PET_MASTER_PORT");
    char **kept = environ, *only[] = {(char *)"PET_MAX_RESTARTS=3", NULL};
    environ = only; // also read as the first entry
    const int status = run_text("t");
    environ = kept;
    assert_int_equal(status, JOB_STATUS);
    assert_string_equal(play.job, "restarts=3 =t ");
    setenv("PET_MAX_RESTARTS", "x", 1);
    refuses("t", "PET_MAX_RESTARTS=x: --max-restarts: 'x' is not a whole number");
    unsetenv("PET_MAX_RESTARTS");
    strcpy(name, "PET_");
    memset(name + 4, 'A', 70);
    name[74] = '\0';
    setenv(name, "1", 1);
    memset(cut, 'a', 61);
    snprintf(message, sizeof message, "%s=1: unknown option --%.61s (", name, cut);
    refuses("t", message);
    unsetenv(name);
    unsetenv("PET_NPROC_PER_NODE");
    runs("t", "=t ");
}

static void without_arguments(void **state) {
    (void)state;
    const int kept = dup(STDERR_FILENO), quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(quiet, STDERR_FILENO);
    play.beside_me = true;
    const int status = run_text("");
    char job[40];
    snprintf(job, sizeof job, "%.39s", play.job);
    play.beside_me = false;
    const int without = run_text("");
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(quiet);
    assert_int_equal(status, JOB_STATUS);
    assert_string_equal(job, "ranks=2 =train_ddp ");
    assert_int_equal(without, STATUS_USAGE);
    assert_true(play.helped);
}

// Descriptors 0 to 2 are open whatever ddprun inherits, and no others are opened.
static void closed_descriptors(void **state) {
    (void)state;
    int kept[3], flags[3];
    for (int fd = 0; fd < 3; fd++) kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    fflush(NULL);
    close(3); // may have been inherited
    close(0);
    close(2);
    const int status = run_text("t"), more = fcntl(3, F_GETFD);
    for (int fd = 0; fd < 3; fd++) {
        flags[fd] = fcntl(fd, F_GETFL);
        dup2(kept[fd], fd);
        close(kept[fd]);
    }
    assert_int_equal(status, JOB_STATUS);
    assert_true(flags[0] >= 0 && flags[2] >= 0 && more == -1);
    assert_int_equal(flags[0] & flags[2] & O_ACCMODE, O_RDWR);
}

#define LINE(test) cmocka_unit_test_setup(test, begin)

// ddprun's main is linked as __real_main; this function starts instead.
int __wrap_main(void);
int __wrap_main(void) {
    const struct CMUnitTest tests[] = {
        LINE(options_of_a_job),
        LINE(what_is_refused),
        LINE(long_addresses),
        LINE(ranks_by_what_is_here),
        LINE(defaults_from_the_environment),
        LINE(without_arguments),
        LINE(closed_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
