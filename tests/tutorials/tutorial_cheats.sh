#!/bin/sh
# tutorial_cheats.sh BIN_DIR: a file gets points only by its functions, and leaves no process or file behind: in
# bubblewrap, where it works, and with the kernel's own sandboxing alone.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
TUTORIAL_WORK=$work/mine
export TUTORIAL_BUILD TUTORIAL_WORK
if grep -q "sanitize='.*[a-z]" "$TUTORIAL_BUILD/tutorials/settings.sh"; then
    echo "tutorial_cheats: a sanitizer needs what the box refuses: nothing to be tested"
    exit 0
fi
step=02-shards
solution=$source/tutorials/02-shards/exercises/03-batch-mean.c
mkdir -p "$work/without"
printf '#!/bin/sh\nexit 1\n' >"$work/without/bwrap" # stands for a machine without bubblewrap
chmod +x "$work/without/bwrap"

# place NAME: makes a folder for the files and the graders' compiled objects; the mark is in all their command lines.
place() {
    mark=left-by-$$-$1
    TUTORIAL_WORK=$work/$1/mine TMPDIR=$work/$mark
    mine=$TUTORIAL_WORK/$step/03-batch-mean.c
    export TMPDIR
    mkdir -p "$TUTORIAL_WORK/$step" "$TMPDIR"
    cd "$work/$1"
}

# answer BODY [BEFORE]: a file whose function runs BODY and then returns a wrong answer; BEFORE stands before the
# function.
answer() {
    {
        printf '#include <%s.h>\n' dlfcn errno fcntl pthread signal stdio stdlib string sys/mman sys/prctl sys/resource sys/syscall sys/wait unistd
        echo '#include "tutorials/02-shards/exercises/03-batch-mean.h"'
        echo "${2:-}"
        echo 'double batch_mean(const double *means, const size_t *rows, size_t shards) {'
        echo "(void)means, (void)rows, (void)shards; $1 return 12345; }"
    } >"$mine"
}
# try 'PART OF THE OUTPUT': graded with no points, quickly, and nothing is left behind.
try() {
    checks=$((checks + 1)) status=0
    "$source/tutorials/grade" 02 3 >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 1 ] || fail "$what: status $status: $(tail -n 5 err.txt)"
    [ "$(tail -n 1 out.txt)" = 'Score 0/10' ] || fail "$what: it has points: $(cat out.txt)"
    grep -qF -- "$1" out.txt || fail "$what: no \"$1\": $(cat out.txt)"
    [ "$(cat out.txt err.txt | wc -c)" -lt 200000 ] || fail "$what: it printed $(cat out.txt err.txt | wc -c) bytes"
    ! pgrep -f "$mark" >/dev/null || fail "$what: a process is left"
}

every_cheat() {
    # ---- another's solution ----
    what="a solution's text" && echo '#include "tutorials/02-shards/exercises/03-batch-mean.c"' >"$mine"
    try 'It does not compile'
    what="a solution's text, from the root" && echo "#include \"$solution\"" >"$mine"
    try "It $1"
    what="a solution's text, as a system header" && printf '#pragma GCC system_header\n#include "%s"\n' "$solution" >"$mine"
    try "It $1"
    what='a link to a solution' && rm "$mine" && ln -sf "$solution" "$TUTORIAL_WORK/$step/borrowed.h" && echo '#include "borrowed.h"' >"$mine"
    try "It $1"
    what='a file read while it runs' && answer "if (fopen(\"$solution\", \"r\")) return 19.0 / 7;"
    try MISS
    what='a compiler called while it runs' && answer 'if (system("cc --version") == 0) return 0;'
    try MISS

    # ---- forged verdicts ---------
    what='a verdict in a constructor' && answer '' '__attribute__((constructor)) static void cheat(void) {
        for (int file = 3; file < 64; file++) if (write(file, "+", 1) < 0) continue;
        _exit(0); }'
    try MISS
    what='an empty sentence in a constructor' && answer '' '__attribute__((constructor)) static void cheat(void) {
        for (int file = 3; file < 64; file++) if (write(file, "", 1) < 0) continue;
        _exit(0); }'
    try MISS
    what='the end of a transcript' && answer 'unsigned end[2] = {0x4f555433, 0};
        for (int file = 3; file < 64; file++) if (write(file, end, sizeof end) < 0) continue;
        _exit(0);'
    try MISS
    what='a miss that says nothing' && answer 'unsigned miss[2] = {0x4f555432, 0};
        for (int file = 3; file < 64; file++) if (write(file, miss, sizeof miss) < 0) continue;
        _exit(0);'
    try MISS
    what="the judge's functions" && answer 'void (*end)(void *) = (void (*)(void *))dlsym(NULL, "grade_end"); if (end) end(calloc(1, 4096)); _exit(0);'
    try MISS
    what="the judge's memory" && answer 'char name[64]; snprintf(name, sizeof name, "/proc/%d/mem", getppid());
        if (open(name, O_RDWR) >= 0) return 0; raise(SIGKILL);'
    try 'signal 9'

    # ---- processes and files left behind
    what='a fork' && answer "if (fork() == 0) { setsid(); execl(\"/bin/sleep\", \"$mark\", \"300\", (char *)0); }"
    try MISS
    what='a chain of forks' && answer 'for (int i = 0; i < 100000; i++) if (fork() == 0) { setsid(); } else if (i > 0) _exit(0);'
    try MISS
    what='signals to all' && answer 'kill(-1, SIGSTOP); kill(0, SIGKILL); kill(getppid(), SIGSTOP); kill(getppid(), SIGKILL);'
    try MISS
    what='calls that reach out' && answer 'const long calls[] = {SYS_execve, SYS_execveat, SYS_unshare, SYS_setns, SYS_ptrace,
        SYS_process_vm_readv, SYS_process_vm_writev, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, 434, 438, 424,
        SYS_memfd_create, 447, SYS_shmget, SYS_msgget, SYS_semget, SYS_mq_open, SYS_socket, SYS_socketpair, 425, SYS_bpf,
        SYS_perf_event_open};
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
            if (syscall(calls[i], -1, -1, -1, -1, -1) >= 0 || (errno != EPERM && errno != EACCES)) return 0;
        if (syscall(435, -1, 0) >= 0 || errno != ENOSYS) return 0;
        raise(SIGKILL);'
    try 'signal 9'
    what='more than its share' && answer 'const int what[] = {RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE}, most[] = {0, 20, 8 << 20, 256};
        for (int i = 0; i < 4; i++) {
            struct rlimit now, more = {RLIM_INFINITY, RLIM_INFINITY};
            if (setrlimit(what[i], &more) == 0 || getrlimit(what[i], &now) != 0 || now.rlim_cur > (rlim_t)most[i]) return 0;
        }
        raise(SIGKILL);'
    try 'signal 9'
    what='a file elsewhere' && answer "if (open(\"$work/stolen\", O_CREAT | O_WRONLY, 0600) >= 0 || open(\"/tmp/$mark\", O_CREAT | O_WRONLY, 0600) >= 0) return 0; raise(SIGKILL);"
    try 'signal 9'
    [ ! -e "$work/stolen" ] && [ ! -e "/tmp/$mark" ] || fail "$what: it is there"
    what='a file cut' && echo whole >cut && answer "if (truncate(\"$PWD/cut\", 0) == 0) return 0; raise(SIGKILL);"
    if printf '6.2\n%s\n' "$(uname -r)" | sort -CV; then try 'signal 9'; fi # older kernels' Landlock does not cover that call

    # ---- files that do not end 
    begin=$(date +%s)
    what='deaf to signals, and loud' && answer 'signal(SIGALRM, SIG_IGN); signal(SIGXCPU, SIG_IGN); signal(SIGTERM, SIG_IGN); prctl(PR_SET_PDEATHSIG, 0);
        static char much[65536]; for (;; usleep(500)) if (write(1, much, sizeof much) < 0) continue;'
    try 'It did not end within'
    what='stopped' && answer 'for (;;) raise(SIGSTOP);'
    try 'It did not end within'
    [ $(($(date +%s) - begin)) -lt 60 ] || fail "two hangs took $(($(date +%s) - begin)) s"
}

# With bubblewrap and without it, at the same time: both wait for the timeout.
"$source/tutorials/grade" --box >out.txt
boxed=''
if grep -q '^bubblewrap' out.txt; then
    (place boxed && every_cheat 'does not compile' && tally 'in bubblewrap' && [ "$failures" = 0 ]) &
    boxed=$!
fi
PATH=$work/without:$PATH
place bare
run 'what holds without bubblewrap' "$source/tutorials/grade" --box
grep -q '^no bubblewrap' out.txt || fail "bubblewrap was found: $(cat out.txt)"
if grep -q 'starts no process, reaches no network and signals no process$' out.txt && ! grep -q 'no Landlock' out.txt; then
    every_cheat 'includes a file'
fi
# The correct file gets its points here, too; its resource use is printed.
cp "$solution" "$mine"
run 'the solution' "$source/tutorials/grade" 02 3
run 'the cost' "$source/tutorials/grade" --timing 02 3
grep -qE '^02-shards/03-batch-mean (-|[0-9.]+) [0-9.]+ [0-9.]+$' out.txt || fail "no cost: $(cat out.txt)"
cat out.txt
# The substitute for bubblewrap around a step's program: passes on the command's status, and ends all its children.
run 'a command without arguments' "$bin/tutorial_keeper" true
refuse 2 'this is called by tutorials/run' "$bin/tutorial_keeper"
refuse 2 "$work/none: No such file" "$bin/tutorial_keeper" "$work/none"
refuse 2 'this is called by tutorials/run' env TUTORIAL_CALLS=calls "$bin/tutorial_host" none
refuse 2 'this is called by tutorials/run' env TUTORIAL_CALLS=calls "$bin/tutorial_host" none ---
for ends in 'exit 7:7' 'kill -TERM $$:143'; do
    checks=$((checks + 1)) status=0
    "$bin/tutorial_keeper" sh -c "TMPDIR=$mark setsid sleep 300 & ${ends%:*}" >out.txt 2>&1 || status=$?
    [ "$status" = "${ends#*:}" ] || fail "under tutorial_keeper, ${ends%:*}: status $status"
    ! grep -qlz "^TMPDIR=$mark\$" /proc/[0-9]*/environ 2>/dev/null || fail "under tutorial_keeper, ${ends%:*}: a process is left"
done
checks=$((checks + 1))
[ -z "$boxed" ] || wait "$boxed" || fail "in bubblewrap: see above"
tally tutorial_cheats
