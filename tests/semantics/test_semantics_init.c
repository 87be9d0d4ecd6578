/* test_semantics_init.c: rows 89 and 90 of PyTorch's acceptance list (tests/semantics.md):
 * rendezvous URLs, rendezvous through a file, repeated initialisation, debug levels, and programs
 * that start their own ranks.
 */
#include "tests/rigs/meeting_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/base/clock.h"
#include "common/base/machine.h"
#include "ddp/group/debug_level.h"
#include "ddp/rendezvous/meeting_file.h"
#include "tests/rigs/temp_folder.h"

static void must_contain(const char *message, const char *part) {
    if (!strstr(message, part)) fail_msg("\"%s\" does not say \"%s\"", message, part);
}

// ---- 89: URLs -------------------------------------------------------------------------------

static Rendezvous read_url(const char *url, int rank, int world_size) {
    Rendezvous r;
    Error err = {0};
    if (init_from_url(&r, url, rank, world_size, &err) != 0) fail_msg("%s: %s", url, err.message);
    return r;
}

static void refuse_url(const char *url, int rank, int world_size, const char *says) {
    Rendezvous r;
    Error err = {0};
    if (init_from_url(&r, url, rank, world_size, &err) == 0) fail_msg("%s is accepted", url);
    assert_int_equal(err.status, STATUS_USAGE);
    must_contain(err.message, says);
}

static void row_89_common_errors(void **state) {
    (void)state;
    refuse_url("invalid://", -1, -1, "No rendezvous handler for invalid://");
    refuse_url("tcpx://h:1", 0, 1, "No rendezvous handler for tcpx://");
    refuse_url("fifteen-letters://", 0, 1,
               "handler for fifteen-letters:// (known: env, tcp, file)");
    refuse_url("sixteen--letters://", 0, 1, "for sixteen--letters:// (sixteen--letters://)");
    refuse_url("", 0, 1, "No rendezvous handler for ://");
    refuse_url("tcp:h:1", 0, 1, "No rendezvous handler for ://");
    refuse_url("tcp://h:1?rank=0&world_size=2", 1, -1, "has node-specific arguments(rank, world_");
    refuse_url("file:///x?world_size=2", -1, 2, "has node-specific arguments(rank, world_size)");
    refuse_url("tcp://h:1?rank=0&size=2", -1, -1, "'size=2': known parameters are rank and world");
    refuse_url("tcp://h:1?rand=0&world_size=2", -1, -1, "'rand=0': known parameters are rank and");
    refuse_url("tcp://h:1?rank=0&world_sizes=2", -1, -1, "'world_sizes=2': known parameters are");
    refuse_url("tcp://h:1?rank=-1&world_size=2", -1, -1, "'rank=-1' must be a whole number");
    refuse_url("tcp://h:1?rank=0&world_size=9999999", -1, -1, "'world_size=9999999' must be a");
    refuse_url("tcp://h:1?rank=0x1&world_size=2", -1, -1, "'rank=0x1' must be a whole number");
    refuse_url("tcp://h:1?rank=&world_size=2", -1, -1, "'rank=' must be a whole number");
    refuse_url("tcp://h:1?rank=0", -1, 2, "has node-specific arguments(rank, world_size)");
    refuse_url("tcp://h:1?world_size=2", 0, -1, "has node-specific arguments(rank, world_size)");
    refuse_url("tcp://h:1?rank=0&world_size=0", -1, -1, "a world of 0 ranks");
    refuse_url("tcp://h:1?rank=0&world_size=1048577", -1, -1, "from 0 to 1048576");
    refuse_url("tcp://h:1?ran", 0, 1, "'ran': known parameters are rank and world_size");
    refuse_url("tcp://h:1", 2, 2, "there is no rank 2 in a world of 2");
    refuse_url("tcp://h:1", 0, 0, "a world of 0 ranks");
    refuse_url("tcp://h:1?x", 0, 1, "'x': known parameters are rank and world_size");
    refuse_url("tcp://h:1?rank=0", -1, 0, "has node-specific arguments(rank, world_size)");
    refuse_url("tcp://h:1?world_size=0", 0, -1, "has node-specific arguments(rank, world_size)");
}

// Each part of a URL at its maximum length, and one character longer.
static void row_89_long_urls(void **state) {
    (void)state;
    enum { HOST = 255, AUTHORITY = 299, PATH = INIT_PATH_MAX - 1 };
    char url[2000], name[1100];
    for (int more = 0; more < 2; more++) {
        memset(name, 'n', sizeof name);
        name[HOST + more] = '\0';
        snprintf(url, sizeof url, "tcp://%s:1", name);
        if (more)
            refuse_url(url, 0, 1, "tcp:// rendezvous: host too long");
        else
            assert_string_equal(read_url(url, 0, 1).master_addr, name);
        memset(name, 'n', sizeof name);
        name[AUTHORITY - 2 + more] = '\0';
        snprintf(url, sizeof url, "tcp://%s:1", name);
        refuse_url(url, 0, 1, more ? "nnn...: the URL is too long" : "host too long");
        memset(name, 'n', sizeof name);
        name[PATH - 1 + more] = '\0';
        snprintf(url, sizeof url, "file:///%s", name);
        if (more)
            refuse_url(url, 0, 1, "nnn...: the URL is too long");
        else
            assert_string_equal(read_url(url, 0, 1).file_path, url + 7);
        memset(name, 'n', sizeof name);
        name[80 + more] = '\0';
        snprintf(url, sizeof url, "%s://", name); // errors quote 80 characters of a scheme
        name[80] = '\0';
        char *says = memory_format("No rendezvous handler for %s:// (%s)", name, name);
        refuse_url(url, 0, 1, says);
        free(says);
    }
}

static void row_89_tcp(void **state) {
    (void)state;
    const Rendezvous most = read_url("tcp://h:65535?world_size=1048576&&rank=1048575&", -1, -1);
    assert_int_equal(most.rank, 1048575);
    assert_int_equal(most.local_rank, 1048575);
    assert_int_equal(most.world_size, 1048576);
    assert_int_equal(most.local_world_size, 1048576);
    assert_int_equal(most.master_port, 65535);
    assert_string_equal(read_url("tcp://x]:1", 0, 1).master_addr, "x]");
    assert_string_equal(read_url("tcp://::1:1", 0, 1).master_addr, "::1");
    refuse_url("tcp://[]:1", 0, 1, "host missing");
    refuse_url("tcp://h:65536", 0, 1,
               "is out of range: 1 to 65535, or 0 for a free one in a world");
    refuse_url("tcp://h:0x", 0, 1, "port '0x' is out of range");
    setenv("DDPRUN_TOKEN", "secret", 1);
    assert_string_equal(read_url("tcp://h:1", 0, 1).token, "secret");
    char token[STORE_TOKEN_MAX + 2] = "";
    memset(token, 't', STORE_TOKEN_MAX + 1);
    setenv("DDPRUN_TOKEN", token, 1);
    refuse_url("tcp://h:1", 0, 1, "DDPRUN_TOKEN is longer than 64 bytes");
    unsetenv("DDPRUN_TOKEN");
    refuse_url("tcp://127.0.0.1?rank=0&world_size=1", -1, -1,
               "tcp:// rendezvous: port number miss");
    refuse_url("tcp://127.0.0.1:?rank=0&world_size=1", -1, -1, "port number missing");
    refuse_url("tcp://[::1]?rank=0&world_size=1", -1, -1, "port number missing");
    refuse_url("tcp://127.0.0.1:23456?world_size=1", -1, -1, "rank parameter missing");
    refuse_url("tcp://127.0.0.1:23456?rank=0", -1, -1, "world size parameter missing");
    refuse_url("tcp://127.0.0.1:23456", -1, 4, "rank parameter missing");
    refuse_url("tcp://127.0.0.1:65536", 0, 2, "port '65536' is out of range");
    refuse_url("tcp://127.0.0.1:-1", 0, 2, "port '-1' is out of range");
    refuse_url("tcp://127.0.0.1:0", 0, 2, "port '0' is out of range: 1 to 65535");
    for (int world = 1; world <= 2; world++) { // port 0's error depends on the world's size
        Rendezvous none;
        Error err = {0};
        assert_int_equal(init_from_url(&none, "tcp://h:65536", 0, world, &err), -1);
        assert_int_equal(strstr(err.message, "or 0 for a free one") != NULL, world == 1);
    }
    refuse_url("tcp://:23456", 0, 2, "host missing");
    Rendezvous r = read_url("tcp://10.0.0.7:23456?rank=1&world_size=4", -1, -1);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.world_size, 4);
    assert_int_equal(r.master_port, 23456);
    assert_string_equal(r.master_addr, "10.0.0.7");
    assert_false(r.launcher_store);
    r = read_url("tcp://[::1]:1/", 0, 2);
    assert_string_equal(r.master_addr, "::1");
    assert_int_equal(read_url("tcp://h:0", 0, 1).master_port, 0);
}

static void row_89_file(void **state) {
    (void)state;
    refuse_url("file://", 0, 1, "file:// rendezvous: path missing");
    refuse_url("file://?rank=0&world_size=1", -1, -1, "path missing");
    refuse_url("file://t/x", 0, 1, "'t' would be a host: write file:///path");
    assert_string_equal(read_url("file:///", 0, 1).file_path, "/");
    refuse_url("file://tmp/x", 0, 1, "'tmp' would be a host: write file:///path");
    refuse_url("file:///x?world_size=1", -1, -1, "file:// rendezvous: rank parameter missing");
    refuse_url("file:///x?rank=0", -1, -1, "world size parameter missing");
    refuse_url("file:///x", 2, 2, "file:// rendezvous: there is no rank 2 in a world of 2");
    Rendezvous r = read_url("file:///a/b?rank=1&world_size=3", -1, -1);
    assert_string_equal(r.file_path, "/a/b");
    assert_int_equal(r.rank, 1);
}

static void row_89_env(void **state) {
    (void)state;
    clearenv();
    refuse_url("env://", -1, -1, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set");
    refuse_url("env://", 0, 2, ": MASTER_ADDR and MASTER_PORT are not set");
    setenv("MASTER_ADDR", "h", 1);
    setenv("MASTER_PORT", "1234", 1);
    refuse_url("env://", 1, -1, ": WORLD_SIZE is not set");
    refuse_url("env://", 2, 2, "there is no rank 2 in a world of 2");
    Rendezvous r = read_url("env://", 1, 2);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.master_port, 1234);
    r = read_url("env://?rank=0&world_size=2", -1, -1);
    assert_int_equal(r.world_size, 2);
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    assert_int_equal(read_url("env://", -1, -1).rank, 1);
    assert_int_equal(read_url("env://", 2, -1).rank, 2); // arguments override the environment
    clearenv();
}

// ---- 89: meeting ----------------------------------------------------------------------------

static void meet_at(const char *url, int world) {
    Rendezvous ranks[RANKS_MAX] = {{0}};
    Outcome outcomes[RANKS_MAX];
    for (int r = 0; r < world; r++) ranks[r] = read_url(url, world - 1 - r, world);
    run_ranks(ranks, world, LONG_S, outcomes);
    for (int r = 0; r < world; r++)
        if (outcomes[r].status) fail_msg("%s, rank %d: %s", url, r, outcomes[r].message);
}

static void row_89_tcp_meeting(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) {
        char url[64];
        snprintf(url, sizeof url, "tcp://127.0.0.1:%d", free_port());
        meet_at(url, world);
    }
}

static void row_89_file_meeting(void **state) {
    char *path = temp_folder_path(state, "meeting"), *url = memory_format("file://%s", path);
    for (int world = 1; world <= 5; world++) { // one path for consecutive worlds
        meet_at(url, world);
        assert_int_equal(access(path, F_OK), -1); // removed by the last rank that left
    }
    fclose(fopen(path, "w")); // an empty file is not stale
    meet_at(url, 2);
    free(url);
    free(path);
}

static void refuse_meeting(const Rendezvous *me, double timeout_s, const char *says) {
    Outcome outcome;
    run_ranks(me, 1, timeout_s, &outcome);
    assert_outcome(&outcome, says);
}

// An invalid host name fails before any resolver is queried.
static void row_89_dns_timeout(void **state) {
    (void)state;
    Rendezvous me = read_url("tcp://no..such..host:23456?rank=1&world_size=2", -1, -1);
    refuse_meeting(&me, 0.3, "no store within 0.3 s: address 'no..such..host' cannot be looked up");
}

enum { CHILDREN = 100 };

// Forks children that inherit the listening socket and block until the pipe is closed. Returns its
// writing end.
static int start_children(pid_t *pids) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < CHILDREN; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] > 0) continue;
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ends[0]);
    return ends[1];
}

// The error names the process that opened the socket, not a child that inherited it.
static void row_89_busy_port(void **state) {
    (void)state;
    char url[64], holder[64];
    pid_t children[CHILDREN];
    Error err = {0};
    int listener = net_listen("127.0.0.1", 0, &err);
    int end = start_children(children);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", net_port(listener));
    snprintf(holder, sizeof holder, ", pid %d)", (int)getpid());
    Rendezvous me = read_url(url, 0, 2);
    refuse_meeting(&me, LONG_S, "Address already in use (held by ");
    refuse_meeting(&me, LONG_S, holder);
    close(end);
    for (int i = 0; i < CHILDREN; i++) assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    close(listener);
}

// ---- 89: invalid files ----------------------------------------------------------------------

enum { FILE_MAX = 65534 }; // bytes of the longest file

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// Joining at a file with this text fails with `says` and leaves the file unchanged.
static void refuse_file(const char *path, const char *text, const char *says) {
    static char found[FILE_MAX + 2];
    Rendezvous me = {.rank = 0, .world_size = 2};
    snprintf(me.file_path, sizeof me.file_path, "%s", path);
    write_file(path, text);
    refuse_meeting(&me, LONG_S, says);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static void row_89_file_is_something_else(void **state) {
    char *path = temp_folder_path(state, "m"), *link = temp_folder_path(state, "link");
    const char *title = "ddp.c meeting, world size 2\n";
    static char text[FILE_MAX + 2];
    refuse_file(path, "hello\n", "this file holds something else");
    for (size_t bytes = FILE_MAX; bytes <= FILE_MAX + 1; bytes++) {
        memset(text, 'x', bytes);
        memcpy(text, title, strlen(title));
        refuse_file(path, text,
                    bytes == FILE_MAX ? "all have left it" : "this file holds something else");
    }
    refuse_file(path, "ddp.c meeting, world size 3\n", "world size is 3 there and 2 at rank 0");
    snprintf(text, sizeof text, "%sjoined 1 4 5 boot here\nleft 1\n", title);
    refuse_file(path, text, "is stale: all have left it");
    // A rank that left and joined again, on another host.
    snprintf(text, sizeof text, "%sjoined 1 4 5 b h\nleft 1\njoined 1 4 5 other-boot other-host\n",
             title);
    refuse_file(path, text, "rank 1 is on other-host");
    // A rank from before this host's last boot, and a rank that left without having joined.
    char host[72], boot[48];
    machine_name(host, sizeof host);
    machine_boot_id(boot, sizeof boot);
    snprintf(text, sizeof text, "%sjoined 1 4 5 other-boot %s\n", title, host);
    refuse_file(path, text, "is stale: its rank 1 (pid 4) is gone without having left");
    snprintf(text, sizeof text, "%sjoined 1 1999999999 5 %s %s\nleft 11\n", title, boot, host);
    refuse_file(path, text, "is stale: its rank 1 (pid 1999999999) is gone");
    assert_int_equal(symlink(path, link), 0);
    Rendezvous me = {.rank = 0, .world_size = 2};
    snprintf(me.file_path, sizeof me.file_path, "%s", link);
    refuse_meeting(&me, LONG_S, "cannot open it: Too many levels of symbolic links");
    snprintf(me.file_path, sizeof me.file_path, "%s/no/folder", (const char *)*state);
    refuse_meeting(&me, LONG_S, "cannot open it: No such file or directory");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    snprintf(me.file_path, sizeof me.file_path, "%s", link);
    refuse_meeting(&me, LONG_S, "this is no plain file");
    free(link);
    free(path);
}

// Forks a process that joins as `rank` and blocks; returns its pid. The caller kills it.
static pid_t leave_corpse(const char *path, int rank) {
    int done[2];
    char byte;
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        Error err = {0};
        MeetingFile *f = meeting_file_join(path, rank, 2, clock_ns() + 10000000000u, &err);
        if (!f || write(done[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(done[1]);
    assert_int_equal(read(done[0], &byte, 1), 1);
    close(done[0]);
    return pid;
}

// Rewrites the file so that its rank seems to have started one tick before the live process with
// its pid.
static void make_older(const char *path) {
    char title[80], rest[200];
    int rank, pid;
    unsigned long long start;
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_non_null(fgets(title, sizeof title, file));
    assert_int_equal(fscanf(file, "joined %d %d %llu %199[^\n]", &rank, &pid, &start, rest), 4);
    rewind(file);
    fprintf(file, "%sjoined %d %d %llu %s\n", title, rank, pid, start - 1, rest);
    fclose(file);
}

static void row_89_stale_file(void **state) {
    char *path = temp_folder_path(state, "m"), says[100];
    Rendezvous me = {.rank = 0, .world_size = 2};
    snprintf(me.file_path, sizeof me.file_path, "%s", path);
    pid_t pid = leave_corpse(path, 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    snprintf(says, sizeof says, "is stale: its rank 1 (pid %d) is gone without having left: remove",
             (int)pid);
    refuse_meeting(&me, LONG_S, says);
    assert_int_equal(unlink(path), 0);
    // The pid is live, but its process started later than the rank: the pid was reused.
    pid = leave_corpse(path, 1);
    make_older(path);
    snprintf(says, sizeof says, "is stale: its rank 1 (pid %d) is gone", (int)pid);
    refuse_meeting(&me, LONG_S, says);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(unlink(path), 0);
    // A live process with the same rank: an error, but not a stale file.
    pid = leave_corpse(path, 0);
    refuse_meeting(&me, LONG_S, "two processes say that they are rank 0");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(path);
}

// A file that another process keeps locked, and a file that another user owns. Its mode becomes
// 0600.
static void row_89_locked_file(void **state) {
    char *path = temp_folder_path(state, "m");
    Error err = {0};
    struct stat about;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    uint64_t deadline_ns = clock_ns() + 20000000;
    assert_null(meeting_file_join(path, 1, 2, deadline_ns, &err));
    assert_true(clock_ns() >= deadline_ns);
    assert_int_equal(err.status, STATUS_FAILED);
    must_contain(err.message, "another process keeps it locked");
    assert_int_equal(flock(fd, LOCK_UN), 0);
    err = (Error){0};
    MeetingFile *f = meeting_file_join(path, 1, 2, clock_ns() + 10000000000u, &err);
    assert_non_null(f);
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600); // it will contain the token
    assert_int_equal(flock(fd, LOCK_EX), 0);
    int port = 0;
    char token[STORE_TOKEN_MAX + 1];
    assert_int_equal(meeting_file_await(f, &port, token, clock_ns() + 5000000, &err), -1);
    must_contain(err.message, "another process keeps it locked");
    err = (Error){0};
    assert_int_equal(meeting_file_publish(f, 1, "t", clock_ns() + 5000000, &err), -1);
    must_contain(err.message, "another process keeps it locked");
    assert_int_equal(flock(fd, LOCK_UN), 0);
    meeting_file_leave(f);
    meeting_file_leave(NULL);
    assert_int_equal(access(path, F_OK), -1);
    close(fd);
    write_file(path, "");
    if (chown(path, 1, 1) == 0) { // needs root
        Rendezvous me = {.rank = 0, .world_size = 2};
        snprintf(me.file_path, sizeof me.file_path, "%s", path);
        if (geteuid() != 1) refuse_meeting(&me, LONG_S, "this file belongs to another user");
    }
    free(path);
}

static void row_89_file_timeout(void **state) {
    char *path = temp_folder_path(state, "m");
    Rendezvous me = {.rank = 1, .world_size = 2};
    snprintf(me.file_path, sizeof me.file_path, "%s", path);
    refuse_meeting(&me, 0.2, "rank 0 has not come in time");
    assert_int_equal(access(path, F_OK), -1); // left and removed: it was the last rank
    free(path);
}

// ---- 90: debug levels -----------------------------------------------------------------------

static void check_level(const char *value, DebugLevel level) {
    DebugLevel found;
    Error err = {0};
    setenv("TORCH_DISTRIBUTED_DEBUG", value, 1);
    assert_int_equal(debug_level_read(&found, &err), 0);
    assert_int_equal(found, level);
}

static void row_90_debug_level(void **state) {
    (void)state;
    const char *wrong[] = {"foo", "0", "1", "OFF ", "DETAILS"};
    DebugLevel level;
    Error err = {0};
    unsetenv("TORCH_DISTRIBUTED_DEBUG");
    assert_int_equal(debug_level_read(&level, &err), 0);
    assert_int_equal(level, DEBUG_OFF);
    check_level("", DEBUG_OFF);
    check_level("OFF", DEBUG_OFF);
    check_level("off", DEBUG_OFF);
    check_level("INFO", DEBUG_INFO);
    check_level("Info", DEBUG_INFO);
    check_level("DETAIL", DEBUG_DETAIL);
    check_level("detaiL", DEBUG_DETAIL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (Error){0};
        setenv("TORCH_DISTRIBUTED_DEBUG", wrong[i], 1);
        assert_int_equal(debug_level_read(&level, &err), -1);
        assert_int_equal(err.status, STATUS_USAGE);
        must_contain(err.message,
                     "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL.");
    }
    Rendezvous me = place(0, 1, 0);
    refuse_meeting(&me, LONG_S, "must be OFF, INFO, or DETAIL.");
    unsetenv("TORCH_DISTRIBUTED_DEBUG");
}

// Breaks a group of one rank in a child process at this debug level; `said` gets its stderr.
static void break_group(const char *level, const char *folder, char *said, size_t capacity) {
    char *path = memory_format("%s/stderr", folder);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        Error err = {0};
        setenv("TORCH_DISTRIBUTED_DEBUG", level, 1);
        setenv("DDPC_FLIGHT_DIR", folder, 1);
        if (!freopen(path, "w", stderr)) _exit(1);
        Rendezvous me = place(0, 1, 0);
        ProcessGroup *group = init_process_group("auto", &me, NULL, LONG_S, &err);
        if (!group || pg_run(group, pg_barrier(), &err) != 0) _exit(1);
        (void)pg_run(group, pg_broadcast(NULL, 1, PG_F32, 7), &err);
        pg_close(group);
        fflush(NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    said[fread(said, 1, capacity - 1, file)] = '\0';
    fclose(file);
    free(path);
}

static void row_90_what_is_said(void **state) {
    char said[2000], *records = temp_folder_path(state, "flight_world_rank_0.json");
    break_group("OFF", *state, said, sizeof said);
    assert_string_equal(said, "");
    assert_int_equal(access(records, F_OK), 0); // flight records are independent of the level
    break_group("INFO", *state, said, sizeof said);
    must_contain(said, "rank 0 of 1 (pid ");
    assert_null(strstr(said, "barrier"));
    break_group("DETAIL", *state, said, sizeof said);
    must_contain(said, "rank 0 of 1 (pid ");
    must_contain(said, "rank 0: world: 1 barrier: completed, created ");
    free(records);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_remove)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_89_common_errors), cmocka_unit_test(row_89_long_urls),
        cmocka_unit_test(row_89_tcp),           cmocka_unit_test(row_89_file),
        cmocka_unit_test(row_89_env),           cmocka_unit_test(row_89_tcp_meeting),
        IN_FOLDER(row_89_file_meeting),         cmocka_unit_test(row_89_dns_timeout),
        cmocka_unit_test(row_89_busy_port),     IN_FOLDER(row_89_file_is_something_else),
        IN_FOLDER(row_89_stale_file),           IN_FOLDER(row_89_locked_file),
        IN_FOLDER(row_89_file_timeout),         cmocka_unit_test(row_90_debug_level),
        IN_FOLDER(row_90_what_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
