/* test_player.c: a check's processes: the judge, its player, the messages between them, their
 * rights, and how each ends the other. The C library's libm stands for the student's file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/sync.h"
#include "tutorials/grading/box.h"
#include "tutorials/grading/grader.h"

static char room[] = "/tmp/test_player-XXXXXX";

// Instructions for a check and its observations, shared with its processes.
static struct Told {
    SyncWord processes[2];
    size_t read;                   // number of fences read
    size_t calls, leaking, leaked; // each call before `leaking` leaks `leaked` blocks
    bool repeats;                  // a call after a failure
    size_t fence, fences;          // index of the fence to write behind; equal to fences: none
    struct rlimit given;           // limit of descriptors before
    char room[64];
} * told;

static Outcome outcome_with(void (*run)(Grade *grade), const char *file, bool last) {
    const GradeCheck one = {"a check", 1, NULL, run};
    return supervise_check(&one, file, room, last);
}

static Outcome outcome_of(void (*run)(Grade *grade)) {
    return outcome_with(run, "libm.so.6", true);
}

static void expect(Outcome outcome, const char *wanted) {
    if (*wanted ? strncmp(outcome.sentence, wanted, strlen(wanted)) != 0 : *outcome.sentence)
        fail_msg("\"%s\", not \"%s\"", outcome.sentence, wanted);
    assert_int_equal(outcome.result, *wanted ? RESULT_MISS : RESULT_PASS);
}

// ---- the messages -------------------------------------------------------------------------------

static void hand_over(Grade *grade) {
    static const size_t sizes[] = {0, 1, 4087, 4088, 4089, 4096, 4097, 70000, 3, 4000, 100};
    static unsigned char data[70000];
    const bool plays = grade_plays(grade);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < sizes[s]; i++) data[i] = (unsigned char)(plays ? 7 * i + s : 0);
        grade_out(grade, data, sizes[s]);
        for (size_t i = 0; i < sizes[s]; i++)
            GRADE_EXPECT(grade, data[i] == (unsigned char)(7 * i + s), "byte %zu of %zu", i, s);
    }
}

static void every_size_is_handed_over(void **state) {
    (void)state;
    expect(outcome_of(hand_over), "");
}

static struct {
    uint32_t kind, bytes;
    char text[SENTENCE_MAX + 1];
} forged;
static size_t forged_bytes;

static void forge(Grade *grade) {
    int value = 0;
    if (grade_plays(grade)) _exit(write(grade->transcript, &forged, forged_bytes) < 0);
    GRADE_OUT(grade, value);
}

static void a_transcript_is_not_believed(void **state) {
    (void)state;
    enum { OUTPUT = 0x4f555431, MISS, END, HEAD = 8 };
    static const char not_its_own[] = "It wrote into a file descriptor that is not its own.";
    static const char ended[] = "It ended the whole program with status 0";
    static const struct {
        uint32_t kind, bytes;
        size_t sent;
        const char *sentence;
    } cases[] = {
        {MISS, SENTENCE_MAX, HEAD + SENTENCE_MAX, not_its_own},
        {MISS, SENTENCE_MAX - 1, HEAD + SENTENCE_MAX - 1, "xxx"},
        {MISS, 1, HEAD + 1, "x"},
        {MISS, 4, HEAD + 2, ended},
        {MISS, 0, HEAD, not_its_own},
        {OUTPUT, 5, HEAD + 5, not_its_own},
        {OUTPUT, 4, HEAD + 4, ended}, // without END
        {OUTPUT, 4, HEAD + 3, ended},
        {END, 4, HEAD + 4, not_its_own},
        {END, 0, 3, ended},
        {END, 0, 0, ended},
    };
    memset(forged.text, 'x', sizeof forged.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        forged.kind = cases[i].kind;
        forged.bytes = cases[i].bytes;
        forged_bytes = cases[i].sent;
        expect(outcome_of(forge), cases[i].sentence);
    }
}

static void give_half_a_verdict(Grade *grade) {
    _exit(write(grade->verdict, "abc", 3) == 3 ? 5 : 6);
}

static void crash_after_loading(Grade *grade) {
    if (grade_plays(grade)) (void)STUDENT(grade, fabs)(1);
    if (grade_plays(grade)) raise(SIGSEGV);
    grade_out(grade, NULL, 0);
}

static void call_nothing(Grade *grade) {
    if (grade_plays(grade)) grade_function(grade, "no_such_function");
    grade_out(grade, NULL, 0);
}

static void early_ends_are_misses(void **state) {
    (void)state;
    expect(outcome_of(give_half_a_verdict), "It ended the whole program with status 5");
    expect(outcome_of(crash_after_loading), "It crashed (SIGSEGV)");
    expect(outcome_of(call_nothing), "Your file does not define the function no_such_function.");
    expect(outcome_with(call_nothing, "none", true), "Your file cannot be loaded: none");
}

// ---- memory -------------------------------------------------------------------------------------

static void leak(Grade *grade) {
    for (size_t i = 0; i < told->calls; i++) {
        if (grade_plays(grade)) (void)STUDENT(grade, fabs)(1);
        for (size_t k = 0; grade_plays(grade) && i < told->leaking && k < told->leaked; k++)
            (void)watched_malloc(8);
        grade_out(grade, NULL, 0);
    }
}

static void leak_in_ranks(GradeRank *me) {
    for (size_t i = 0; i < told->calls; i++) {
        (void)STUDENT(me->grade, fabs)(1);
        (void)watched_malloc(8);
    }
}

static void play_leaking_ranks(Grade *grade) {
    grade_ranks(grade, 2, leak_in_ranks, told);
}

// Blocks allocated by the first and the last call do not count as leaks.
static void leaks_cost_the_last_check(void **state) {
    (void)state;
    static const struct {
        size_t calls, leaking, leaked;
        bool last;
        const char *sentence;
    } cases[] = {
        {3, 9, 1, true, ""},
        {4, 9, 1, false, ""},
        {4, 9, 1, true, "In 2 calls 2 blocks of memory were allocated and never freed"},
        {4, 9, 3, true, "In 2 calls 6 blocks of memory were allocated and never freed"},
        {5, 4, 1, true, "In 3 calls 3 blocks of memory were allocated and never freed"},
        {5, 3, 1, true, ""},
        {9, 1, 8, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        told->calls = cases[i].calls;
        told->leaking = cases[i].leaking;
        told->leaked = cases[i].leaked;
        expect(outcome_with(leak, "libm.so.6", cases[i].last), cases[i].sentence);
    }
    told->calls = 1; // in each of the four runs of a last check
    expect(outcome_of(play_leaking_ranks), "In 2 calls 2 blocks of memory were allocated");
}

// A rank's calls leave `leaked` blocks, and where the barrier fails `leaking` more.
static void leak_after_failure(GradeRank *me) {
    for (size_t i = 0; i < told->calls; i++) (void)STUDENT(me->grade, fabs)(1);
    for (size_t k = 0; k < told->leaked; k++) (void)watched_malloc(8);
    me->status = watched_pg_run(me->group, pg_barrier(), &me->err);
    for (size_t k = 0; me->status != 0 && k < told->leaking; k++) (void)watched_malloc(8);
    if (me->status != 0 && told->repeats) (void)STUDENT(me->grade, fabs)(1);
}

static void play_failing_ranks(Grade *grade) {
    grade_broken_ranks(grade, 2, leak_after_failure, told);
}

// Memory that is kept where nothing fails is no leak; the blocks of several calls are not compared.
static void leaks_after_a_failure_are_misses(void **state) {
    (void)state;
    static const char miss[] = "The connection was lost, and the call returned without freeing its "
                               "memory: every return after an allocation needs the free. (rank 0, "
                               "its collective number 1, ";
    static const struct {
        size_t calls, leaked, leaking;
        const char *sentence, *blocks;
        bool repeats;
    } cases[] = {{1, 0, 0, "", "", false}, {1, 0, 1, miss, "1 blocks", false},
                 {1, 2, 0, "", "", false}, {1, 2, 1, miss, "3 blocks", false},
                 {2, 0, 1, "", "", false}, {1, 0, 1, "", "", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        told->calls = cases[i].calls;
        told->leaked = cases[i].leaked;
        told->leaking = cases[i].leaking;
        told->repeats = cases[i].repeats;
        Outcome outcome = outcome_with(play_failing_ranks, "libm.so.6", false);
        expect(outcome, cases[i].sentence);
        assert_non_null(strstr(outcome.sentence, cases[i].blocks));
    }
}

static void write_behind_one(Grade *grade) {
    const bool plays = grade_plays(grade);
    for (size_t i = 0; i < told->fences; i++) {
        char *memory = grade_fenced(grade, 10);
        told->read += (size_t)memory[9];
        if (plays && i == told->fence) memory[10 + 63] = 1;
    }
    grade_out(grade, NULL, 0);
}

static void the_last_64_fences_are_kept(void **state) {
    (void)state;
    told->fences = 66;
    for (told->fence = 2; told->fence <= 66; told->fence += 32)
        expect(outcome_of(write_behind_one),
               told->fence < 66 ? "Something was written behind a buffer." : "");
    told->fence = 1; // the 66th has its place
    expect(outcome_of(write_behind_one), "");
    told->fence = 65;
    expect(outcome_of(write_behind_one), "Something was written behind a buffer.");
}

// ---- the sandbox --------------------------------------------------------------------------------

static bool has_box(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(DDPC_SANITIZE)
    return false;
#else
    return syscall(444, NULL, 0, 1) > 0 && prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0;
#endif
}

static rlim_t smaller(rlim_t a, rlim_t b) {
    return a < b ? a : b;
}

// Returns NULL, or the name of a limit that neither equals the one before nor, if that was higher,
// the maximum.
static const char *wrong_limit(const struct rlimit before[4], const rlim_t most[4]) {
    static const int resources[] = {RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE};
    static const char *const names[] = {"core", "cpu", "fsize", "nofile"};
    for (int i = 0; i < 4; i++) {
        struct rlimit now;
        getrlimit((__rlimit_resource_t)resources[i], &now);
        const rlim_t max = smaller(before[i].rlim_max, most[i]);
        if (now.rlim_max != max || now.rlim_cur != smaller(before[i].rlim_cur, max))
            return names[i];
    }
    return NULL;
}

static bool may_open(const char *path, int how) {
    int file = open(path, how | O_CLOEXEC, 0600);
    if (file >= 0) close(file);
    return file >= 0;
}

static void *do_nothing(void *nothing) {
    return nothing;
}

// Returns NULL, or the name of a system call that the box should refuse with this error. With these
// arguments the kernel has another error for it, or does nothing.
static const char *wrong_call(void) {
    const struct {
        const char *name;
        long number, arguments[3];
        int error;
    } calls[] = {
#ifdef SYS_fork
        {"fork", SYS_fork, {0}, EPERM},
#endif
        {"clone3", 435, {0}, ENOSYS},
        {"execve", SYS_execve, {0}, EPERM},
        {"execveat", SYS_execveat, {-1, 0}, EPERM},
        {"unshare", SYS_unshare, {0}, EPERM},
        {"setns", SYS_setns, {-1}, EPERM},
        {"ptrace", SYS_ptrace, {16 /* attach */, 0}, EPERM},
        {"process_vm_readv", SYS_process_vm_readv, {0}, EPERM},
        {"process_vm_writev", SYS_process_vm_writev, {0}, EPERM},
        {"tkill", SYS_tkill, {0}, EPERM},
        {"rt_sigqueueinfo", SYS_rt_sigqueueinfo, {0}, EPERM},
        {"rt_tgsigqueueinfo", SYS_rt_tgsigqueueinfo, {0}, EPERM},
        {"pidfd_open", 434, {0}, EPERM},
        {"pidfd_getfd", 438, {-1, -1}, EPERM},
        {"pidfd_send_signal", 424, {-1}, EPERM},
        {"memfd_create", SYS_memfd_create, {0}, EPERM},
        {"memfd_secret", 447, {-1}, EPERM},
        {"shmget", SYS_shmget, {1}, EPERM},
        {"msgget", SYS_msgget, {1}, EPERM},
        {"semget", SYS_semget, {1}, EPERM},
        {"mq_open", SYS_mq_open, {0}, EPERM},
        {"socket", SYS_socket, {-1}, EACCES},
        {"socketpair", SYS_socketpair, {-1}, EACCES},
        {"io_uring_setup", 425, {0}, EPERM},
        {"bpf", SYS_bpf, {-1}, EPERM},
        {"perf_event_open", SYS_perf_event_open, {0}, EPERM},
        {"tgkill", SYS_tgkill, {getppid(), getppid(), 0}, EPERM},
        {"kill", SYS_kill, {getppid(), 0}, EPERM},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const long *arguments = calls[i].arguments;
        errno = 0;
        if (syscall(calls[i].number, arguments[0], arguments[1], arguments[2], 0, 0, 0) != -1 ||
            errno != calls[i].error)
            return calls[i].name;
    }
    return syscall(SYS_tgkill, getpid(), getpid(), 0) == 0 && kill(getpid(), 0) == 0 ? NULL : "own";
}

// Returns NULL, or the name of a right that a student's process should not have, or lacks.
static const char *wrong_right(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct has[2] = {{1, 1, 1}};
    char inside[100], deeper[120];
    pthread_t thread;
    snprintf(inside, sizeof inside, "%s/folder", told->room);
    snprintf(deeper, sizeof deeper, "%s/file", inside);
    if (syscall(SYS_capget, &header, has) != 0 || has[0].effective || has[0].permitted ||
        has[1].effective)
        return "capabilities";
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return "new privileges";
    if (pthread_create(&thread, NULL, do_nothing, NULL) != 0) return "no thread";
    pthread_join(thread, NULL);
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) != -1 || errno != EPERM) return "a process";
    if (wrong_call()) return wrong_call();
    if (!may_open("/usr", O_RDONLY | O_DIRECTORY) || !may_open("/proc/self/status", O_RDONLY) ||
        !may_open("/dev/null", O_WRONLY) || !may_open("/dev/urandom", O_RDONLY))
        return "system files cannot be opened";
    if (may_open("/proc/self/comm", O_WRONLY)) return "system files can be written";
    if (may_open("/etc/passwd", O_RDONLY) || may_open("/", O_RDONLY | O_DIRECTORY))
        return "other files can be opened";
    if (mkdir(inside, 0700) != 0 || !may_open(deeper, O_RDWR | O_CREAT) ||
        truncate(deeper, 1) != 0 || unlink(deeper) != 0 || rmdir(inside) != 0)
        return "no files in its room";
    return NULL;
}

static void examine_box(Grade *grade) {
    static const int resources[] = {RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE};
    static const rlim_t most[] = {0, 20, 8 << 20, 256};
    struct rlimit before[4];
    if (told->given.rlim_max > 0) setrlimit(RLIMIT_NOFILE, &told->given);
    for (int i = 0; i < 4; i++) getrlimit((__rlimit_resource_t)resources[i], &before[i]);
    snprintf(told->room, sizeof told->room, "%s", grade_room(grade));
    if (grade_plays(grade)) {
        (void)STUDENT(grade, fabs)(1);
        const char *limit = wrong_limit(before, most), *right = has_box() ? wrong_right() : NULL;
        GRADE_EXPECT(grade, !limit, "limit of %s", limit);
        GRADE_EXPECT(grade, !right, "%s", right);
    }
    grade_out(grade, NULL, 0);
}

static void a_player_is_confined(void **state) {
    (void)state;
    static const struct rlimit given[] = {{0, 0}, {100, 200}, {300, 400}, {100, 256}, {256, 257}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        told->given = given[i];
        expect(outcome_of(examine_box), "");
    }
    told->given = (struct rlimit){0};
}

// Descriptor 0 may be reused for pipes and Landlock rules.
static void a_closed_input_is_no_matter(void **state) {
    (void)state;
    const int kept = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    const Outcome right = outcome_of(hand_over), confined = outcome_of(examine_box);
    dup2(kept, STDIN_FILENO);
    close(kept);
    expect(right, "");
    expect(confined, "");
}

static void leave_the_box_out(Grade *grade) {
    struct rlimit before = {0}, now = {0};
    box_leave_out();
    getrlimit(RLIMIT_NOFILE, &before);
    if (grade_plays(grade)) {
        (void)STUDENT(grade, fabs)(1);
        getrlimit(RLIMIT_NOFILE, &now);
        GRADE_EXPECT(grade, now.rlim_max == before.rlim_max, "limits");
        GRADE_EXPECT(grade, may_open("/etc/passwd", O_RDONLY), "files");
        GRADE_EXPECT(grade, kill(getppid(), 0) == 0, "signals");
    }
    grade_out(grade, NULL, 0);
}

// Simulates a kernel without Landlock, without seccomp, or without both, for this process.
static void take_away(bool landlock, bool seccomp) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, landlock ? 444 : UINT32_MAX, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, seccomp ? SYS_prctl : UINT32_MAX, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void the_box_is_described(void **state) {
    (void)state;
    static const char *const descriptions[] = {"a student's process reads system folders",
                                               "no Landlock: ", "no seccomp: ", "neither "};
    if (!has_box()) return;
    expect(outcome_of(leave_the_box_out), "");
    for (int i = 0; i < 4; i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            take_away(i & 1, i & 2);
            _exit(strncmp(box_describe(), descriptions[i], strlen(descriptions[i])) != 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

// ---- ending processes ---------------------------------------------------------------------------

static void wait_until(bool (*holds)(void)) {
    for (int i = 0; i < 20000 && !holds(); i++) usleep(1000);
    assert_true(holds());
}

static bool all_are_there(void) {
    return sync_load(&told->processes[0]) != 0 && sync_load(&told->processes[1]) != 0;
}

static void play_for_ever(Grade *grade) {
    const bool plays = grade_plays(grade);
    sync_store(&told->processes[plays], (uint32_t)getpid());
    if (plays)
        for (;;) pause();
    grade_out(grade, NULL, 0);
}

static int killed; // number of killed adopted children

static bool all_are_killed(void) {
    int status = 0;
    while (waitpid(-1, &status, WNOHANG) > 0)
        killed += WIFSIGNALED(status) && WTERMSIG(status) == 9;
    return killed == 3;
}

static void a_killed_grader_ends_its_processes(void **state) {
    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    memset(told->processes, 0, sizeof told->processes);
    const pid_t grader = fork();
    if (grader == 0) _exit(outcome_of(play_for_ever).result);
    wait_until(all_are_there);
    kill(grader, SIGKILL);
    wait_until(all_are_killed);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// The check leaves two processes; the parent of one of them ends before the check.
static void leave_processes(Grade *grade) {
    snprintf(told->room, sizeof told->room, "%s", grade_room(grade));
    GRADE_EXPECT(grade, prctl(PR_GET_DUMPABLE) == 0, "other processes may read the judge");
    for (int i = 0; i < 2; i++) {
        if (fork() != 0) continue;
        close(grade->verdict);
        setsid();
        if (i == 0 && fork() != 0) _exit(0);
        sync_store(&told->processes[i], (uint32_t)getpid());
        for (;;) pause();
    }
    while (!all_are_there()) usleep(1000);
    if (grade_plays(grade)) GRADE_EXPECT(grade, prctl(PR_GET_DUMPABLE) == 1, "ranks need to");
}

static void nothing_is_left(void **state) {
    (void)state;
    const Grader grader = {"left", {{"one", 1, NULL, leave_processes}}};
    int status = 0;
    memset(told->processes, 0, sizeof told->processes);
    const pid_t child = fork();
    if (child == 0) {
        close(STDOUT_FILENO);
        _exit(grader_run(&grader, "no file", false) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++)
        assert_true(kill((pid_t)sync_load(&told->processes[i]), 0) != 0 && errno == ESRCH);
    assert_true(access(told->room, F_OK) != 0 && errno == ENOENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_handed_over),
        cmocka_unit_test(a_transcript_is_not_believed),
        cmocka_unit_test(early_ends_are_misses),
        cmocka_unit_test(leaks_cost_the_last_check),
        cmocka_unit_test(leaks_after_a_failure_are_misses),
        cmocka_unit_test(the_last_64_fences_are_kept),
        cmocka_unit_test(a_player_is_confined),
        cmocka_unit_test(a_closed_input_is_no_matter),
        cmocka_unit_test(the_box_is_described),
        cmocka_unit_test(a_killed_grader_ends_its_processes),
        cmocka_unit_test(nothing_is_left),
    };
    told = grade_shared(sizeof *told);
    if (!mkdtemp(room)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(room) != 0 || failed;
}
