#!/bin/sh
# capstone_table.sh BIN_DIR FILES: class --table ranks capstones. Where bubblewrap works, a capstone can neither write
# outside of its folder nor leave a process behind.
files=$2
top=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/../programs/checks.sh"
TUTORIAL_BUILD=$work/build TUTORIAL_WORK=$work/w TUTORIAL_BATCH=16
export TUTORIAL_BUILD TUTORIAL_WORK TUTORIAL_BATCH

# A copy of the build. Its train_dp reports given step times to `capstone speed` instead of training: with the student's
# wrapper a step is 33.5 ms longer over the link, with its own 20.2 ms. The first two steps and a later step are outliers.
mkdir -p build/bin build/tutorials
cp "$bin"/../tutorials/settings.sh build/tutorials
cp "$bin/ddprun" "$bin/train_dp" "$bin/train_ddp" "$bin/compare_tensors" "$bin"/tutorial_* build/bin
mv build/bin/train_dp build/bin/trained_dp
cat >build/bin/train_dp <<'END'
#!/bin/sh
case " $* " in *' --out run '*) ;; *) exec "${0%/*}/trained_dp" "$@" ;; esac
ms=10
case " $* " in *' --wrapper '*' --link 0.5,20 '*) ms=46 ;; *' --wrapper '*) ms=12.5 ;; *' --link 0.5,20 '*) ms=30.2 ;; esac
mkdir run && printf 'step,step_ms,loss\n0,900,2\n1,800,2\n2,%s,1\n3,%s,1\n4,950,1\n' $ms $ms >run/steps.csv
END
chmod +x build/bin/train_dp

# ---- the ranking -------------------------------------------------------------------------------------------
hand_in() { # STUDENT NAME FILE
    mkdir -p "hand ins/$1/capstones"
    cp "$files/$3" "hand ins/$1/capstones/$2.c"
}
hand_in 'cy "d"' own-all-reduce sum_naive.c
hand_in bo own-all-reduce sum_ring.c
hand_in an own-dp dp_packed.c
find 'hand ins' | sort >before
run 'class --table' "$top/tutorials/class" 'hand ins' --table
[ "$(awk '{ print $1 }' out.txt | paste -sd ' ' -)" = 'own-all-reduce bo cy  own-dp an' ] || fail "the order: $(cat out.txt)"
checks=$((checks + 3))
grep -qE '^bo +24/24 +[0-9]+[.][0-9] +[0-9]+[.][0-9] +39$' out.txt || fail "bo: $(cat out.txt)"
grep -qE '^cy "d" +18/24 +- +- +-$' out.txt || fail "cy: $(cat out.txt)"
grep -qE '^an +[0-9]+/[0-9]+ +33[.]5 +20[.]2 +[0-9]+$' out.txt || fail "an: $(cat out.txt)"
find 'hand ins' | sort | cmp -s before - || fail "something was written into a student's folder"
rm -rf 'hand ins/an' 'hand ins/bo'
run 'class --table --json' "$top/tutorials/class" 'hand ins' --table --json
[ "$(cat out.txt)" = '{"capstone": "own-all-reduce", "student": "cy \"d\"", "points": "18/24", "exposed_ms": null, "built_in_ms": null, "lines": null}' ] ||
    fail "JSON: $(cat out.txt)"
mkdir empty
checks=$((checks + 1)) status=0
"$top/tutorials/class" empty --table >out.txt 2>err.txt || status=$?
[ "$status" = 2 ] && grep -qF 'no folder in empty holds a capstone' err.txt || fail "an empty class: status $status: $(cat err.txt)"

# ---- the sandbox (bubblewrap) ------------------------------------------------------------------------------
if ! command -v bwrap >/dev/null || ! bwrap --ro-bind / / --unshare-all true 2>/dev/null; then
    echo "there is no bubblewrap that works: its box is not tested"
    tally capstone_table
    exit
fi
mark=left-by-$$
cat >hostile.c <<END
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void leave(void) {
    int file = open("$work/left", O_CREAT | O_WRONLY, 0666);
    if (file >= 0) close(file);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) execl("/bin/sh", "$mark", "-c", "sleep 300; true", "$mark", (char *)0);
        _exit(0);
    }
}
END
cat "$files/sum_ring.c" >>hostile.c
checks=$((checks + 2))
"$top/tutorials/capstone" grade own-all-reduce hostile.c >out.txt 2>err.txt || : # with points or without
grep -q '^Score ' out.txt || fail "no score: $(cat out.txt err.txt)"
[ ! -e left ] || fail "a file outside of the box was written"
! pgrep -f "$mark" >/dev/null || fail "a process was left behind"
tally capstone_table
