/* ddprun.c: the command line of the launcher (ddp/launch/launcher.h): torchrun's flags.
 *
 *     ddprun --nproc-per-node 4 train_ddp --epochs 2
 *
 * Everything after the program's name is the program's. Differences from torchrun: one node takes a
 * free port unless --master-port is given, ranks read /dev/null, rank 0's stdout carries no prefix,
 * --log-dir alone keeps logs of all ranks (--redirects and --tee need it), the grace
 * time is an option and 5 s rather than 30, ranks that fall silent are ended, several nodes need a
 * shared secret in DDPRUN_TOKEN, and with --nnodes MIN:MAX node 0 serves the store and a lost node
 * is no restart.
 */
#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/format.h"
#include "common/base/options.h"
#include "ddp/launch/count_gpus.h"
#include "ddp/launch/launcher.h"

enum { DEFAULT_PORT = 29500, DEMONSTRATION_RANKS = 2 };

typedef struct CommandLine {
    LaunchOptions launch;
    const char *nproc, *nnodes, *bind;
    bool standalone;
    Options options;
} CommandLine;

static void add_job_options(CommandLine *c) {
    LaunchOptions *l = &c->launch;
    Options *o = &c->options;
    options_add_string(o, "nproc-per-node", &c->nproc, "N|auto|cpu|gpu",
                       "ranks on each node: a number; auto or cpu: one per core; gpu: one per GPU");
    options_add_string(
        o, "nnodes", &c->nnodes, "N|MIN:MAX",
        "nodes; one ddprun runs on each, and DDPRUN_TOKEN holds their shared secret. MIN:MAX: "
        "nodes may come and go; the ranks are then started anew");
    options_add_int(
        o, "node-rank", &l->node, 0, INT_MAX,
        "this node, from 0; with MIN:MAX any number but 0 for the nodes besides node 0");
    options_add_string(o, "master-addr", &l->master_addr, "ADDR",
                       "address at which node 0 serves the store; the server binds to it only");
    options_add_int(o, "master-port", &l->master_port, 0, 65535,
                    "port of the store; 0: a free port, or with several nodes 29500");
    options_metavar(o, "PORT");
    options_add_flag(
        o, "standalone", &c->standalone,
        "one node, with its store on 127.0.0.1 at a free port (the default of one node)");
    options_add_int(o, "max-restarts", &l->max_restarts, 0, 1000000,
                    "maximum number of restarts of all ranks after the failure of a rank");
    options_add_choice(o, "bind", &c->bind, "none|cores",
                       "cores: each rank on its own share of the cores");
    options_add_flag(
        o, "fake-hosts", &l->fake_hosts,
        "ranks may share a GPU, each as if on its own host: for correctness only; slow, times are "
        "meaningless");
}

static void add_output_and_deadlines(CommandLine *c) {
    LaunchOptions *l = &c->launch;
    Options *o = &c->options;
    options_add_title(
        o, "Output (lines are marked [RANK]: except rank 0's stdout, which is the job's data)");
    options_add_string(
        o, "log-dir", &l->log_dir, "DIR",
        "log files DIR/attempt_K/RANK/{stdout,stderr}.log; alone: of all ranks, in addition to the "
        "console");
    options_add_string(
        o, "redirects", &l->redirects, "WHICH",
        "to the files only: 0 nothing, 1 stdout, 2 stderr, 3 both; or by local rank: 0:3,1:2");
    options_add_string(o, "tee", &l->tee, "WHICH",
                       "to the files and the console, in the same notation");
    options_add_string(o, "local-ranks-filter", &l->shown, "RANKS",
                       "show only these local ranks on the console: 0,2");
    options_add_title(o, "Deadlines, in seconds");
    options_add_float(
        o, "monitor-interval", &l->monitor_s, 0.001, 60,
        "interval at which heartbeats and other nodes are checked; a death is seen at once");
    options_metavar(o, "S");
    options_add_float(o, "grace-seconds", &l->grace_s, 0, 86400,
                      "from SIGTERM to SIGKILL (torchrun: 30)");
    options_metavar(o, "S");
    options_add_float(o, "exit-timeout", &l->exit_timeout_s, 0, 1e6,
                      "from the first exit with status 0 to the last exit");
    options_metavar(o, "S");
    options_add_float(
        o, "heartbeat-timeout", &l->heartbeat_s, 0, 1e6,
        "silence after which a rank that has sent heartbeats fails; a stopped rank fails after "
        "this time or 30 s, whichever is less, and another node is lost after 3 to 10 s; 0: never");
    options_metavar(o, "S");
    options_add_float(o, "start-timeout", &l->start_timeout_s, 0, 1e6,
                      "of counting the GPUs, of the rendezvous of the nodes, and of their ranks");
    options_metavar(o, "S");
    options_add_float(o, "last-call", &l->last_call_s, 0, 1e6,
                      "of --nnodes MIN:MAX: wait for more nodes when MIN are ready (torchrun: 30)");
    options_metavar(o, "S");
}

// ---- Values that are more than a number

static uint64_t count_cores(void) {
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0) return (uint64_t)CPU_COUNT(&cores);
    return (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static int resolve_ranks(CommandLine *c, Error *err) {
    const char *at = c->nproc;
    uint64_t ranks = 0;
    if (strcmp(c->nproc, "gpu") == 0) {
        const int gpus = count_gpus(c->launch.start_timeout_s, err);
        if (gpus < 0) return error_prefix(err, "--nproc-per-node gpu");
        ranks = (uint64_t)gpus;
    } else if (strcmp(c->nproc, "auto") == 0 || strcmp(c->nproc, "cpu") == 0) {
        ranks = count_cores();
    } else if (!format_read_number(&at, LAUNCH_RANKS_MAX, &ranks) || *at || ranks == 0) {
        return error_set(err, STATUS_USAGE,
                         "--nproc-per-node '%s': use a number from 1 to %d, auto, cpu or gpu",
                         format_quote(c->nproc).text, LAUNCH_RANKS_MAX);
    }
    c->launch.local_ranks = (int)(ranks < LAUNCH_RANKS_MAX ? ranks : LAUNCH_RANKS_MAX);
    return 0;
}

static int resolve_nodes(CommandLine *c, Error *err) {
    const char *at = c->nnodes;
    uint64_t least, most;
    bool fine = format_read_number(&at, INT_MAX, &least);
    most = least;
    if (fine && *at == ':') {
        at++;
        fine = format_read_number(&at, INT_MAX, &most);
    }
    // There is a local rank at least: NOLINTNEXTLINE(clang-analyzer-core.DivideZero)
    const uint64_t limit = (1 << 20) / (uint64_t)c->launch.local_ranks;
    if (!fine || *at || least == 0 || least > most || most > limit)
        return error_set(err, STATUS_USAGE,
                         "--nnodes '%s': use the number of nodes, or MIN:MAX if they may come and "
                         "go",
                         format_quote(c->nnodes).text);
    c->launch.nodes = (int)most;
    c->launch.min_nodes = (int)least;
    if (least < most || c->launch.node < c->launch.nodes) return 0;
    return error_set(err, STATUS_USAGE, "--node-rank %d: nodes are counted from 0, and there %s %d",
                     c->launch.node, most == 1 ? "is" : "are", c->launch.nodes);
}

static int resolve_store(CommandLine *c, Error *err) {
    LaunchOptions *l = &c->launch;
    if (l->fake_hosts && l->nodes > 1)
        return error_set(err, STATUS_USAGE, "--fake-hosts is for one node, --nnodes says %d",
                         l->nodes);
    if (c->standalone) {
        if (l->nodes > 1)
            return error_set(err, STATUS_USAGE, "--standalone is for one node, --nnodes says %d",
                             l->nodes);
        static const char WHY[] = "--standalone takes 127.0.0.1 and a free port";
        const OptionUse uses[] = {{"master-addr", false, WHY}, {"master-port", false, WHY}};
        if (options_check_used(&c->options, uses, 2, err) != 0) return -1;
        l->master_addr = "127.0.0.1";
        l->master_port = 0;
    }
    if (l->nodes > 1 && l->master_port == 0) l->master_port = DEFAULT_PORT;
    if (strlen(l->master_addr) == 0 || strlen(l->master_addr) > 255)
        return error_set(err, STATUS_USAGE, "--master-addr must have 1 to 255 characters");
    return 0;
}

// torchrun's defaults from the environment: PET_NPROC_PER_NODE=4 is --nproc-per-node 4, unless the
// command line says otherwise.
static int parse_environment(CommandLine *c, Error *err) {
    static const char PREFIX[] = "PET_";
    for (size_t i = 0; environ[i]; i++) {
        if (strncmp(environ[i], PREFIX, sizeof PREFIX - 1) != 0) continue;
        char name[64] = "--", *value = strchr(environ[i], '=');
        size_t used = 2;
        for (const char *at = environ[i] + sizeof PREFIX - 1; at < value && used < 63; at++)
            name[used++] = *at == '_' ? '-' : (char)tolower(*at);
        char *arguments[] = {"ddprun", name, value + 1, NULL};
        bool off = strcmp(name, "--standalone") == 0 && strcmp(value, "=1") != 0;
        if (!off && options_parse(&c->options, 3, arguments, err) != 0)
            return error_prefix(err, "%s", environ[i]);
    }
    return 0;
}

static int parse(CommandLine *c, int argc, char **argv, Error *err) {
    c->options.program = "ddprun";
    c->options.summary =
        "Starts the ranks of a distributed job and supervises them until the last has ended.\n"
        "  ddprun [options] PROGRAM [its arguments]\n"
        "  ddprun --nproc-per-node 4 train_ddp --epochs 2\n"
        "Exit status: 0, or that of the rank that failed first (128 + number for a signal).";
    c->options.takes_command = true;
    add_job_options(c);
    add_output_and_deadlines(c);
    if (parse_environment(c, err) != 0) return -1;
    if (options_parse(&c->options, argc, argv, err) != 0) return -1;
    if (c->options.rest >= argc)
        return error_set(err, STATUS_USAGE, "which program? ddprun [options] PROGRAM [arguments]");
    c->launch.command = argv + c->options.rest;
    c->launch.bind_cores = strcmp(c->bind, "cores") == 0;
    if (resolve_ranks(c, err) != 0 || resolve_nodes(c, err) != 0) return -1;
    return resolve_store(c, err);
}

// ---- Without arguments

static int demonstrate(CommandLine *c, Error *err) {
    char path[PATH_MAX], *command[] = {"train_ddp", NULL};
    Error ignored = {0};
    if (launcher_find_program(command[0], path, &ignored) != 0) {
        char *arguments[] = {"ddprun", NULL};
        (void)parse(c, 1, arguments, err); // fills the table; the error names the missing option
        options_print_help(&c->options, stderr);
        return STATUS_USAGE; // and nothing parses again: NOLINT(*StackAddressEscape)
    }
    fprintf(stderr,
            "ddprun starts the ranks of a job and supervises them (--help). Without "
            "arguments: %d ranks of train_ddp.\n",
            DEMONSTRATION_RANKS);
    c->launch.command = command;
    c->launch.local_ranks = DEMONSTRATION_RANKS;
    c->launch.nodes = c->launch.min_nodes = 1;
    return launcher_run(&c->launch, err); // the last reader: NOLINT(*StackAddressEscape)
}

// Started without stdin, stdout or stderr, the next descriptors opened would be taken for them.
static void open_standard_descriptors(void) {
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) close(fd);
}

int main(int argc, char **argv) {
    open_standard_descriptors();
    Error err = {0};
    CommandLine c = {.launch = {.master_addr = "127.0.0.1",
                                .monitor_s = 0.1,
                                .grace_s = 5,
                                .heartbeat_s = 300,
                                .exit_timeout_s = 300,
                                .start_timeout_s = 300,
                                .last_call_s = 5},
                     .nproc = "1",
                     .nnodes = "1",
                     .bind = "none"};
    int status = 0;
    if (argc == 1)
        status = demonstrate(&c, &err);
    else if (parse(&c, argc, argv, &err) == 0)
        status = launcher_run(&c.launch, &err);
    if (err.status != 0) error_exit(&err);
    return status;
}
