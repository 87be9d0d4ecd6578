/* box.c: see box.h. Landlock for files and other processes' memory, seccomp for system calls, and
 * resource limits. Each is the kernel's own, needs no privilege and no library, and together they
 * cost less than a millisecond. A sanitizer's runtime makes calls that the box refuses, so builds
 * with a sanitizer have no box.
 */
#include "tutorials/grading/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DDPC_SANITIZE)
#define HAS_BOX false
#else
#define HAS_BOX true
#endif

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define OWN_ARCHITECTURE 0
#endif

// ---- limits -------------------------------------------------------------------------------------

static void limit(__rlimit_resource_t resource, rlim_t least) {
    struct rlimit now;
    if (getrlimit(resource, &now) != 0) return;
    if (now.rlim_max > least) now.rlim_max = least;
    if (now.rlim_cur > now.rlim_max) now.rlim_cur = now.rlim_max;
    setrlimit(resource, &now);
}

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    syscall(SYS_capset, &header, none);
}

// ---- files: Landlock ----------------------------------------------------------------------------

// Constants of linux/landlock.h, which older distributions lack: those of its first version, and
// later rights.
enum { CREATE_RULESET = 444, ADD_RULE = 445, RESTRICT_SELF = 446, ASKS_FOR_VERSION = 1 };
enum { EXECUTE = 1, WRITE_FILE = 2, READ_FILE = 4, READ_FOLDER = 8 };
enum { RIGHTS_1 = (1 << 13) - 1, RIGHTS_2 = (1 << 14) - 1, RIGHTS_3 = (1 << 15) - 1 };

typedef struct RulesetAttribute {
    uint64_t files;
} RulesetAttribute;

typedef struct __attribute__((packed)) PathRule {
    uint64_t allowed;
    int32_t parent;
} PathRule;

static long landlock_version(void) {
    return HAS_BOX ? syscall(CREATE_RULESET, NULL, 0, ASKS_FOR_VERSION) : -1;
}

static void allow(int rules, const char *path, uint64_t rights) {
    PathRule rule = {.allowed = rights, .parent = open(path, O_PATH | O_CLOEXEC)};
    struct stat status;
    if (rule.parent < 0) return;
    if (fstat(rule.parent, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.allowed &= EXECUTE | WRITE_FILE | READ_FILE;
    syscall(ADD_RULE, rules, 1, &rule, 0);
    close(rule.parent);
}

static void confine_files(const char *file, const char *room) {
    static const char *const READ[] = {
        "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/proc", "/sys", "/opt"};
    static const char *const WRITE[] = {"/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"};
    const long version = landlock_version();
    if (version <= 0) return;
    const uint64_t all = version == 1 ? RIGHTS_1 : version == 2 ? RIGHTS_2 : RIGHTS_3;
    const uint64_t read = EXECUTE | READ_FILE | READ_FOLDER;
    RulesetAttribute attribute = {.files = all};
    int rules = (int)syscall(CREATE_RULESET, &attribute, sizeof attribute, 0);
    if (rules < 0) return;
    for (size_t i = 0; i < sizeof READ / sizeof *READ; i++) allow(rules, READ[i], read);
    for (size_t i = 0; i < sizeof WRITE / sizeof *WRITE; i++)
        allow(rules, WRITE[i], READ_FILE | WRITE_FILE);
    allow(rules, file, read);
    if (room) allow(rules, room, all);
    syscall(RESTRICT_SELF, rules, 0);
    close(rules);
}

// ---- system calls: seccomp ----------------------------------------------------------------------

#define LOAD_WORD                (BPF_LD | BPF_W | BPF_ABS)
#define LOAD(field)              BPF_STMT(LOAD_WORD, offsetof(struct seccomp_data, field))
#define REFUSE(error)            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define REFUSE_CALL(call, error) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), REFUSE(error)
// A call whose first argument is a process: this one only.
#define OWN_ONLY(call, own)                                            \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4), LOAD(args[0]),    \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, own, 1, 0), REFUSE(EPERM), \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

// System calls of later kernels have the same number on every architecture.
enum { PIDFD_SEND_SIGNAL = 424, IO_URING_SETUP = 425, PIDFD_OPEN = 434, CLONE3 = 435 };
enum { PIDFD_GETFD = 438, MEMFD_SECRET = 447, X32 = 0x40000000, THREAD = 0x00010000 };

static int confine_calls(void) {
    const unsigned own = (unsigned)getpid();
    struct sock_filter filter[] = {
        LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS), LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    // new processes, but not new threads; of clone3, whose flags cannot be read here, glibc
    // falls back to clone
#ifdef SYS_fork
        REFUSE_CALL(SYS_fork, EPERM), REFUSE_CALL(SYS_vfork, EPERM),
#endif
        REFUSE_CALL(CLONE3, ENOSYS), REFUSE_CALL(SYS_execve, EPERM),
        REFUSE_CALL(SYS_execveat, EPERM), REFUSE_CALL(SYS_unshare, EPERM),
        REFUSE_CALL(SYS_setns, EPERM),
        // other processes
        REFUSE_CALL(SYS_ptrace, EPERM), REFUSE_CALL(SYS_process_vm_readv, EPERM),
        REFUSE_CALL(SYS_process_vm_writev, EPERM), REFUSE_CALL(SYS_tkill, EPERM),
        REFUSE_CALL(SYS_rt_sigqueueinfo, EPERM), REFUSE_CALL(SYS_rt_tgsigqueueinfo, EPERM),
        REFUSE_CALL(PIDFD_OPEN, EPERM), REFUSE_CALL(PIDFD_GETFD, EPERM),
        REFUSE_CALL(PIDFD_SEND_SIGNAL, EPERM),
        // memory and connections that no limit counts or that outlive the process
        REFUSE_CALL(SYS_memfd_create, EPERM), REFUSE_CALL(MEMFD_SECRET, EPERM),
        REFUSE_CALL(SYS_shmget, EPERM), REFUSE_CALL(SYS_msgget, EPERM),
        REFUSE_CALL(SYS_semget, EPERM), REFUSE_CALL(SYS_mq_open, EPERM),
        REFUSE_CALL(SYS_socket, EACCES), REFUSE_CALL(SYS_socketpair, EACCES),
        REFUSE_CALL(IO_URING_SETUP, EPERM), REFUSE_CALL(SYS_bpf, EPERM),
        REFUSE_CALL(SYS_perf_event_open, EPERM), OWN_ONLY(SYS_kill, own), OWN_ONLY(SYS_tgkill, own),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3), LOAD(args[0]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, THREAD, 1, 0), REFUSE(EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static bool has_seccomp(void) {
    return HAS_BOX && OWN_ARCHITECTURE != 0 && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
}

// ---- together -----------------------------------------------------------------------------------

static bool left_out;

void box_leave_out(void) {
    left_out = true;
}

void box_enter(const char *file, const char *room, unsigned cpu_seconds) {
    if (left_out) return;
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, cpu_seconds);
    limit(RLIMIT_FSIZE, 8 << 20);
    limit(RLIMIT_NOFILE, 256);
    if (!HAS_BOX) return;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    drop_capabilities();
    confine_files(file, room);
    if (has_seccomp()) confine_calls();
}

const char *box_describe(void) {
    const bool files = landlock_version() > 0, calls = has_seccomp();
    if (files && calls)
        return "a student's process reads system folders and its own file, writes nothing, starts "
               "no "
               "process, reaches no network and signals no process";
    if (calls)
        return "no Landlock: a student's process can read and write the user's files; it starts no "
               "process, reaches no network and signals no process";
    if (files)
        return "no seccomp: a student's process can start and signal processes and reach the "
               "network; it writes no files";
    return "neither Landlock nor seccomp: a student's process can do what the user can; what it "
           "starts is ended after the check unless it stops its grader";
}
