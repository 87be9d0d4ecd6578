/* job.c: see job.h. */
#include "tests/chaos/job.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/memory.h"

enum { ENVIRONMENT_MAX = 64 * 1024 };

static uint64_t after(double seconds) {
    return clock_ns() + (uint64_t)(seconds * 1e9);
}

static void sleep_ms(int ms) {
    (void)poll(NULL, 0, ms);
}

// ---- start and output -------------------------------------------------------------------------

static char **make_environment(const Job *job, char mark[96]) {
    size_t count = 0, used = 0;
    while (environ[count]) count++;
    char **list = memory_zalloc((count + JOB_VARIABLES_MAX + 2) * sizeof *list);
    snprintf(mark, 96, "DDPC_JOB=%s", job->id);
    list[used++] = mark;
    for (size_t i = 0; i < JOB_VARIABLES_MAX; i++)
        if (job->variables[i]) list[used++] = (char *)(uintptr_t)job->variables[i];
    for (size_t i = 0; i < count; i++) list[used++] = environ[i];
    return list;
}

void job_start(Job *job) {
    int ends[2];
    char mark[96];
    posix_spawn_file_actions_t actions;
    CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe2: %s", strerror(errno));
    job->started_ns = clock_ns();
    job->reported_ns = job->ended_ns = 0;
    job->said_bytes = 0;
    job->late = false;
    // The address distinguishes jobs of several threads of this process.
    snprintf(job->id, sizeof job->id, "%d-%llx-%llx", (int)getpid(),
             (unsigned long long)job->started_ns, (unsigned long long)(uintptr_t)job);
    char **environment = make_environment(job, mark);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    int failed = posix_spawn(&job->pid, job->argv[0], &actions, NULL,
                             (char *const *)(uintptr_t)job->argv, environment);
    CHECK(failed == 0, "cannot run %s: %s", job->argv[0], strerror(failed));
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    close(ends[1]);
    job->stderr_fd = ends[0];
}

static void note_report(Job *job) {
    if (job->reported_ns) return;
    job->said[job->said_bytes] = '\0';
    if (strstr(job->said, "ddprun: rank ") || strstr(job->said, "ddprun: received "))
        job->reported_ns = clock_ns();
}

// Reads what is available within the timeout. Returns false at the end of the stream.
static bool read_some(Job *job, int timeout_ms) {
    char rest[4096];
    struct pollfd entry = {.fd = job->stderr_fd, .events = POLLIN};
    if (poll(&entry, 1, timeout_ms) <= 0) return true;
    size_t room = sizeof job->said - 1 - job->said_bytes;
    ssize_t n =
        read(job->stderr_fd, room ? job->said + job->said_bytes : rest, room ? room : sizeof rest);
    if (n > 0 && room) job->said_bytes += (size_t)n;
    note_report(job);
    return n > 0;
}

static bool has_ended(Job *job) {
    if (job->ended_ns) return true;
    pid_t pid = waitpid(job->pid, &job->status, WNOHANG);
    CHECK(pid >= 0, "waitpid: %s", strerror(errno));
    if (pid == job->pid) job->ended_ns = clock_ns();
    return pid == job->pid;
}

bool job_pause(Job *job, double seconds) {
    uint64_t until = after(seconds);
    while (!has_ended(job) && clock_ns() < until)
        if (!read_some(job, 1)) sleep_ms(1);
    return job->ended_ns != 0;
}

void job_await(Job *job) {
    uint64_t deadline = job->started_ns + (uint64_t)(job->deadline_s * 1e9);
    while (!has_ended(job)) {
        if (clock_ns() > deadline && !job->late) {
            job->late = true;
            job_leftovers(job->id, 0);
        }
        if (!read_some(job, 10)) sleep_ms(2);
    }
    for (size_t before = SIZE_MAX; before != job->said_bytes;) { // output that is still in the pipe
        before = job->said_bytes;
        if (!read_some(job, 0)) break;
    }
    job->said[job->said_bytes] = '\0';
    close(job->stderr_fd);
}

int job_exit_status(const Job *job) {
    return WIFSIGNALED(job->status) ? 128 + WTERMSIG(job->status) : WEXITSTATUS(job->status);
}

// ---- remaining processes ----------------------------------------------------------------------

// Reads /proc/PID/NAME. Returns the number of bytes, 0 if it cannot be read.
static size_t read_proc(pid_t pid, const char *name, char *data, size_t capacity) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    size_t bytes = 0;
    for (ssize_t n = 1; n > 0 && bytes<capacity; bytes += n> 0 ? (size_t)n : 0)
        n = read(fd, data + bytes, capacity - bytes);
    close(fd);
    return bytes;
}

// Returns whether "NAME=value" is one of the consecutive strings.
static bool holds(const char *strings, size_t bytes, const char *wanted) {
    for (size_t at = 0; at < bytes; at += strnlen(strings + at, bytes - at) + 1)
        if (strncmp(strings + at, wanted, bytes - at) == 0) return true;
    return false;
}

// Finds the processes whose environment contains both variables. The second may be NULL.
static int find_processes(const char *first, const char *second, pid_t pids[JOB_PIDS_MAX]) {
    char *data = memory_zalloc(ENVIRONMENT_MAX);
    int count = 0;
    DIR *folder = opendir("/proc");
    CHECK(folder, "/proc: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid <= 0) continue;
        size_t size = read_proc(pid, "environ", data, ENVIRONMENT_MAX); // a zombie has none
        if (!holds(data, size, first) || (second && !holds(data, size, second))) continue;
        if (count < JOB_PIDS_MAX) pids[count] = pid;
        count++;
    }
    closedir(folder);
    free(data);
    return count;
}

int job_processes(const char *id, pid_t pids[JOB_PIDS_MAX]) {
    char mark[96];
    snprintf(mark, sizeof mark, "DDPC_JOB=%s", id);
    return find_processes(mark, NULL, pids);
}

pid_t job_rank(const char *id, int rank) {
    char mark[96], name[32];
    pid_t pids[JOB_PIDS_MAX];
    snprintf(mark, sizeof mark, "DDPC_JOB=%s", id);
    snprintf(name, sizeof name, "RANK=%d", rank);
    return find_processes(mark, name, pids) > 0 ? pids[0] : 0;
}

int job_leftovers(const char *id, double patience_s) {
    uint64_t deadline = after(patience_s);
    pid_t pids[JOB_PIDS_MAX];
    int count;
    while ((count = job_processes(id, pids)) > 0 && clock_ns() < deadline) sleep_ms(10);
    for (int i = 0; i < count && i < JOB_PIDS_MAX; i++) kill(pids[i], SIGKILL);
    return count;
}

// ---- remaining files and ports ----------------------------------------------------------------

Listing listing_take(const char *folder) {
    Listing listing = {0};
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        listing.names = memory_grow(listing.names, listing.count + 1, sizeof *listing.names);
        listing.names[listing.count++] = memory_format("%s", entry->d_name);
    }
    if (dir) closedir(dir);
    return listing;
}

void listing_free(Listing *listing) {
    for (size_t i = 0; i < listing->count; i++) free(listing->names[i]);
    free(listing->names);
    *listing = (Listing){0};
}

static bool listed(const Listing *listing, const char *name) {
    for (size_t i = 0; i < listing->count; i++)
        if (strcmp(listing->names[i], name) == 0) return true;
    return false;
}

size_t listing_new(const Listing *before, const char *folder, char name[NAME_MAX + 1]) {
    Listing now = listing_take(folder);
    size_t count = 0;
    for (size_t i = 0; i < now.count; i++)
        if (!listed(before, now.names[i]) && count++ == 0)
            snprintf(name, NAME_MAX + 1, "%s", now.names[i]);
    listing_free(&now);
    return count;
}

static bool write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    bool fine = file && fputs(text, file) >= 0;
    if (file && fclose(file) != 0) fine = false;
    return fine;
}

// Without root's rights, in a user namespace, where the system allows it.
static bool enter_namespace(void) {
    if (unshare(CLONE_NEWNS) == 0) return true;
    char ids[64];
    snprintf(ids, sizeof ids, "0 %d 1", (int)getuid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/uid_map", ids);
}

bool shm_isolate(void) {
    return enter_namespace() && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL) == 0;
}

bool network_isolate(void) {
    if (unshare(CLONE_NEWNET) != 0) return false;
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool fine = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
    if (fd >= 0) close(fd);
    return fine;
}

bool port_is_free(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes); // as the launcher does
    bool is_free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0;
    close(fd);
    return is_free;
}

char *job_program(const char *name) {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    CHECK(n > 0, "/proc/self/exe: %s", strerror(errno));
    path[n] = '\0';
    *strrchr(path, '/') = '\0';
    return memory_format("%s/%s", path, name);
}
