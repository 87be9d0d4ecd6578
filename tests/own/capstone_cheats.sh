#!/bin/sh
# capstone_cheats.sh BIN_DIR FILES: a capstone gets points only through its functions. A file that ends the judge's
# process, prints the judge's lines, includes a file of the solutions, starts processes or makes system calls gets none,
# and leaves no process or file behind.
files=$2
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_BUILD=$bin/.. TUTORIAL_WORK=$work/w
export TUTORIAL_BUILD TUTORIAL_WORK
mark=left-by-$$

# cheat NAME 'sentence': mine.c gets no points, the judge prints the sentence, and no process is left
cheat() {
    checks=$((checks + 1)) status=0
    "$top/tutorials/capstone" grade "$capstone" mine.c >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 1 ] && grep -q '^Score 0/24$' out.txt || fail "$capstone, $1: status $status: $(cat out.txt err.txt)"
    grep -qF -- "$2" out.txt || fail "$capstone, $1: no \"$2\": $(cat out.txt)"
    ! pgrep -f "$mark" >/dev/null || fail "$capstone, $1: a process is left"
}
# body 'statements': writes mine.c, an all-reduce with this body
body() {
    echo '#define _GNU_SOURCE' >mine.c
    printf '#include <%s.h>\n' fcntl signal stdlib string sys/mman sys/socket unistd >>mine.c
    printf '#include "ddp/own/own_all_reduce.h"\nstatic int sum(ProcessGroup *group, float *values, size_t count, Error *err) {\n' >>mine.c
    printf '    %s\n    return 0;\n}\nconst OwnAllReduce own_all_reduce = {OWN_ALL_REDUCE_VERSION, sum};\n' "$1" >>mine.c
}

# ---- cheats in the function, each with the judge's verdict
while read -r capstone file; do
    for end in '_exit(0)' 'process_end(0)'; do
        { printf '#include <unistd.h>\n#include "common/base/error.h"\n__attribute__((constructor)) static void cheat(void) { %s; }\n' "$end" && cat "$files/$file"; } >mine.c
        cheat "$end in a constructor" "It calls ${end%(*}, which is neither a public function nor"
    done
    { printf '#include "common/base/error.h"\n__attribute__((constructor)) static void cheat(void) { Error none = {0}; printf("END 0 0\\nEND 0 1\\n"); error_exit(&none); }\n' && cat "$files/$file"; } >mine.c
    cheat 'an error without one' 'MISS'
    echo "#include \"$files/$file\"" >mine.c
    cheat "another's file" "$files/$file" # bubblewrap hides it; without bubblewrap, it is not one of the allowed headers
done <<END
own-ddp ddp_overlap.c
own-dp dp_one_node.c
own-fsdp fsdp_tensors.c
own-all-reduce sum_ring.c
END

capstone=own-all-reduce
body 'exit(0);'
cheat 'exit' 'It calls exit,'
body '__asm__ volatile("syscall" : : "a"(231), "D"(0));'
cheat 'a system call' 'by an instruction of its own'

# ---- processes and files that would stay, system calls
body "if (fork() == 0) execl(\"/bin/sleep\", \"$mark\", \"300\", (char *)0);"
cheat 'a process' 'It calls '
body "return system(\"touch '$work/left'\");"
cheat 'a command' 'It calls system,'
body "return open(\"$work/left\", O_CREAT | O_WRONLY, 0600);"
cheat 'a file' 'It calls open'
body 'return kill(-1, SIGSTOP);'
cheat 'a signal' 'It calls kill,'
body 'return socket(AF_INET, SOCK_STREAM, 0);'
cheat 'a socket' 'It calls socket,'
body 'return memfd_create("hoard", 0);'
cheat 'memory without a name' 'It calls memfd_create,'
body 'signal(SIGALRM, SIG_IGN); for (;;) raise(SIGSTOP);'
cheat 'stopped' 'It calls '
[ ! -e left ] || fail 'a file was written'

tally capstone_cheats
