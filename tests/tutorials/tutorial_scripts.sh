#!/bin/sh
# tutorial_scripts.sh BIN_DIR: start, hint, grade and check_pages in a folder whose path contains spaces and a quote,
# and with files that crash, hang, exit, allocate all memory, or leave processes behind.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$source/tests/programs/checks.sh"
TUTORIAL_BUILD=$(cd "$bin/.." && pwd)
export TUTORIAL_BUILD
copy="$work/a student's folder"
mkdir "$copy"
(cd "$source" && find common dp ddp tutorials -name '*.h' -o -path 'tutorials/work' -prune -o -path 'tutorials/*' -type f |
    tar -cf - -T -) | tar -C "$copy" -xf -
cd "$copy"
mine=tutorials/work/02-shards/03-batch-mean.c

says() { # 'WORDS': the last command printed them
    grep -qF -- "$1" "$work/out" || fail "no \"$1\": $(cat "$work/out")"
}
try() { # STATUS COMMAND...
    checks=$((checks + 1))
    wanted=$1 status=0
    shift
    "$@" >"$work/out" 2>&1 </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: $*: $(cat "$work/out")"
}
answer() { # BODY: the body of batch_mean
    {
        echo '#include <stdlib.h>'
        echo '#include <string.h>'
        echo '#include <sys/mman.h>'
        echo '#include <unistd.h>'
        echo '#include "tutorials/02-shards/exercises/03-batch-mean.h"'
        echo 'double batch_mean(const double *means, const size_t *rows, size_t shards) {'
        echo "(void)rows, (void)shards; $1 return means[0]; }"
    } >"$mine"
}

# ---- start and hint ----------------------------------------------------------------------------------------
try 2 tutorials/start
try 2 tutorials/start 77
says 'there is no step 77'
try 0 tutorials/start 2 3
[ "$(grep -c '^wrote' "$work/out")" = 1 ] || fail "start 2 3 wrote more than one file: $(cat "$work/out")"
rm "$mine"
try 0 tutorials/start 2
says "wrote  tutorials/work/02-shards/03-batch-mean.c"
echo '// mine' >>"$mine"
try 0 tutorials/start 02
says "kept   tutorials/work/02-shards/03-batch-mean.c"
grep -q '// mine' "$mine" || fail "start has overwritten a file"
for hint in 1 2 3 3; do # the last hint is repeated
    try 0 tutorials/hint 02 3
    says "hint $hint of 3"
done

# ---- grade -------------------------------------------------------------------------------------------------
try 1 tutorials/grade 02 3
says 'Score 0/10'
try 1 tutorials/grade 02 3 --json
says '"score": 0'
cp "$source/tutorials/02-shards/exercises/03-batch-mean.c" "$mine"
try 0 tutorials/grade 02 3
says 'Score 10/10'
try 1 tutorials/grade --all # two exercises are not solved
says '02-shards/01-shard-bounds'
mkdir "$work/anna"
cp -r tutorials/work/02-shards "$work/anna/"
try 0 tutorials/grade 02 3 --work "$work/anna"
try 2 tutorials/grade --work
try 2 tutorials/grade
try 2 tutorials/grade 02 99 # no points were given
says 'has no exercise 99'

echo 'no C at all' >"$mine"
try 1 tutorials/grade 02 3
says 'It does not compile'
says 'Score 0/10'
rm "$mine"
try 1 tutorials/grade 02 3
says 'tutorials/start 02 writes it'
answer 'memset((void *)8, 1, 8);'
try 1 tutorials/grade 02 3
says 'It crashed (SIGSEGV)'
answer 'exit(0);'
try 1 tutorials/grade 02 3
says 'It ended the whole program with status 0'
answer 'for (;;) pause();' # ends as an endless loop does, at the same limit, and takes no processor time
try 1 tutorials/grade 02 3
says 'It did not end within'
# Printing a score gives no points.
answer 'if (write(1, "Score 10/10\n", 12) < 0) abort();'
try 1 tutorials/grade 02 3
[ "$(tail -n 1 "$work/out")" = 'Score 0/10' ] || fail "a printed score counts: $(cat "$work/out")"
if ! grep -q "sanitize='.*[a-z]" "$TUTORIAL_BUILD/tutorials/settings.sh"; then
    # With mmap, because malloc fills the memory that it returns there, and two gigabytes take seconds.
    answer 'for (int i = 0; i < 64; i++) { volatile char *p = mmap(NULL, (size_t)1 << 31, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); p[0] = 1; }'
    try 1 tutorials/grade 02 3
    says 'It crashed (SIGSEGV)'
fi
# No process survives the grading, even in its own session.
answer "if (fork() == 0) { setsid(); execl(\"/bin/sleep\", \"left-by-$$\", \"300\", (char *)0); }"
try 1 tutorials/grade 02 3
! pgrep -f "left-by-$$" >/dev/null || fail "a process that a student's file started is left"

# ---- check_pages -------------------------------------------------------------------------------------------
page() { printf '%s\n' "$@" >"$copy/page.md"; }
ln -s "$source"/bench "$source"/README.md . 2>/dev/null || true
page '```console' '$ echo one; echo two' one two '```' '`tutorials/lesson.h:/^Rows lesson_rows/`'
try 0 tutorials/check_pages page.md
page '```console' '$ echo one; echo two' one three '```'
try 1 tutorials/check_pages page.md
says '+two'
try 0 tutorials/check_pages --accept page.md
grep -qx two page.md || fail "--accept has not taken it over"
page '<!-- varies: [0-9]+ s -->' '```console' '$ echo took 5 s' 'took 17 s' '```'
try 0 tutorials/check_pages page.md
page '```console' '$ echo --steps 60 --log-every 1 | sed "s/.*steps 9 .*/(the median of 6)/"' '(the median of 40)' '```'
try 0 tutorials/check_pages --quick page.md
try 1 tutorials/check_pages page.md
says '+--steps 60 --log-every 1'
page '`tutorials/lesson.h:/^Rows lesson_cols/`'
try 1 tutorials/check_pages page.md
says 'nothing in tutorials/lesson.h matches'
page '`dp/gone.h:/x/`'
try 1 tutorials/check_pages page.md
page '[gone](gone.md)'
try 1 tutorials/check_pages page.md
says 'leads nowhere'
page '<!-- excerpt: tutorials/02-shards/shards.c nowhere -->' '```c' '```'
try 1 tutorials/check_pages page.md
says 'there is no ANCHOR: nowhere'
page '<!-- not run: it needs a friend -->' '```console' '$ false' hello '```'
try 0 tutorials/check_pages page.md

# ---- clock and timeline ------------------------------------------------------------------------------------
# Steps of 10, 30, 20 and 900 ms: the first third is excluded; the median of 30, 20 and 900 is used. In each step
# forward takes a quarter of the time and backward the rest; the second thread has an all-reduce in the last half.
printf 'step=%d loss=1 step_ms=%s lr=1\n' 0 10 1 30 2 20 3 900 >lines
try 0 sh -c 'tutorials/clock <lines'
says 'a step takes 30.00 ms (the median of 3)'
try 1 sh -c 'echo step=0 loss=1 | tutorials/clock'
awk 'function span(name, tid, from, length_, step) {
    printf "{\"ph\": \"X\", \"name\": \"%s\", \"pid\": 0, \"tid\": %d, \"ts\": %f, \"dur\": %f, \"args\": {\"number\": %d}},\n", name, tid, 2.8e9 + from, length_, step
}
BEGIN {
    for (tid = 0; tid < 2; tid++)
        printf "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 0, \"tid\": %d, \"args\": {\"name\": \"%s\"}},\n", tid, tid ? "comm" : "main"
    n = split("10000 30000 20000 900000", us, " ")
    for (step = 0; step < n; step++) {
        t = us[step + 1]
        span("forward", 0, at, t / 4, step)
        span("backward", 0, at + t / 4, 3 * t / 4, step)
        span("all_reduce", 1, at + t / 2, t / 2, step)
        at += t
    }
}' >trace.json
try 0 tutorials/timeline trace.json
says 'a step of 30.0 ms'
says 'rank 0 main   |FFFFFFFFFFFFFFFFBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB|'
says 'rank 0 comm   |................................AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA|'
try 2 tutorials/timeline no-such-file
tally tutorial_scripts
