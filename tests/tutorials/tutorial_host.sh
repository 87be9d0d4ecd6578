#!/bin/sh
# tutorial_host.sh BIN_DIR: the program that runs a step's program with a student's functions: the arguments it passes,
# the calls it counts, the function in which a signal arrived, and refused files.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
export TUTORIAL_CALLS="$work/calls"
library() { cc -shared -fPIC "$@" || fail "cc $*"; }

# A program that calls first N times; first calls second and then behaves as requested.
cat >program.c <<'END'
#include <stdio.h>
#include <stdlib.h>
void first(const char *what);
int step_main(int argc, char **argv) {
    for (int i = 0; i < argc; i++) printf("%s\n", argv[i]);
    for (int i = 1; i < argc; i++) first(argv[i]);
    return 7;
}
END
printf 'void second(void);\n#include <signal.h>\n#include <stdlib.h>\nvoid first(const char *what) { second(); if (atoi(what)) raise(atoi(what)); }\n' >first.c
printf 'void second(void) {}\n' >second.c
library -o program.so program.c
library -finstrument-functions -o first.so first.c
library -finstrument-functions -o second.so second.c
both="./second.so second ./first.so first" # second must be loaded before first, which needs its symbol

# host STATUS WORD...: $TUTORIAL_CALLS must contain the lines of wanted.txt
host() {
    checks=$((checks + 1)) wanted=$1 status=0
    shift
    rm -f calls
    "$bin/tutorial_host" ./program.so "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "$*: status $status: $(cat err.txt)"
    cmp -s wanted.txt calls || fail "$*: $(cat calls)"
}
printf 'called second 3\ncalled first 3\n' >wanted.txt
host 7 $both -- 0 x --
[ "$(paste -sd ' ' out.txt)" = "$bin/tutorial_host 0 x --" ] || fail "arguments: $(cat out.txt)"
printf 'called second 0\ncalled first 0\n' >wanted.txt
host 7 $both --
checks=$((checks + 1))
umask 0
host 7 $both --
umask 022
[ "$(stat -c %a calls)" = 666 ] || fail "the calls have mode $(stat -c %a calls)"
# A signal in first after second has returned. The record has the signal in two digits, and the rank.
for signal in 4 6 7 8 11 15; do
    printf 'inside first %02d 0\n' $signal >wanted.txt
    host $((128 + signal)) $both -- $signal
done
printf 'inside first 11 12\n' >wanted.txt
RANK=12 host 139 $both -- 0 11
# A name longer than a record is cut.
long=$(printf '%0150d' 0 | tr 0 x)
printf 'void first(const char *what) { (void)what; __builtin_trap(); }\n' | sed "s/first/$long/" >long.c
printf 'void %s(const char *);\nvoid first(const char *what) { %s(what); }\n' "$long" "$long" >first.c
library -finstrument-functions -o long.so long.c
library -finstrument-functions -o first.so first.c
printf 'inside %s 0inside first 04 0\n' "$long" >wanted.txt
host 132 ./long.so "$long" ./first.so first -- x

# Up to 16 functions are counted; a 17th is refused.
sixteen=''
printf 'void first(const char *what) {' >first.c
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    printf 'void f%d(void) {}\n' $i >f$i.c
    library -finstrument-functions -o f$i.so f$i.c
    sixteen="$sixteen ./f$i.so f$i"
    printf 'void f%d(void); f%d();' $i $i >>first.c
done
echo '(void)what; }' >>first.c
library -finstrument-functions -o first.so first.c
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo "called f$i 2"; done >wanted.txt
echo 'called first 2' >>wanted.txt
host 7 $sixteen ./first.so first -- 0 0
refuse 2 'more than 16 functions' "$bin/tutorial_host" ./program.so $sixteen ./first.so first ./second.so second -- 0
refuse 2 'none.so' "$bin/tutorial_host" ./program.so ./none.so first -- 0
refuse 2 'third is not defined in your file' "$bin/tutorial_host" ./program.so ./second.so third -- 0
refuse 2 './second.so has no step_main' "$bin/tutorial_host" ./second.so --
refuse 2 'undefined symbol' "$bin/tutorial_host" ./program.so --
refuse 2 'this is called by tutorials/run' "$bin/tutorial_host" ./program.so ./second.so second
refuse 2 'this is called by tutorials/run' env -u TUTORIAL_CALLS "$bin/tutorial_host" ./program.so --
tally tutorial_host
