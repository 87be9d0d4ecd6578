#!/bin/sh
# linked_once.sh BIN BUILD: a changed source is linked into librooms.so and into the programs that are installed or measured,
# not into each test and tutorial (common/cmake/rooms.cmake). A program that has librooms.so and a room of its own
# would have two copies of that room's state.
set -eu
bin=$1 build=$2
[ -e "$build/lib/librooms.so" ] || exit 77 # with sanitizers there is none
failures=0
fail() {
    echo "FAILED  $*"
    failures=$((failures + 1))
}

shared=0
for program in "$bin"/*; do
    name=${program##*/} how=
    readelf -d "$program" 2>/dev/null | grep -q 'NEEDED.*librooms\.so' && how=shared shared=$((shared + 1))
    nm --defined-only "$program" 2>/dev/null | grep -q ' T error_set$' && how="$how own"
    ! nm "$program" 2>/dev/null | grep -q ' __wrap_' || how="$how wrapped"
    case "$name $how" in
    *'shared own') fail "$name links librooms.so and a room's archive" ;;
    train_*' own' | ddprun' '* | flight_report' '* | compare_tensors' '* | merge_traces' '* | dump_data' '* | bench_*) ;;
    *' own wrapped') ;; # ld --wrap, which a shared object's own calls escape
    tutorial_grader' '* | tutorial_host' '* | tutorial_capstone_*' '*) ;; # a student's file calls them
    *own) fail "$name links archives: it is linked anew for each source that changes" ;;
    esac
done
[ "$shared" != 0 ] || fail "no program links librooms.so"
if [ -e "$build/build.ninja" ]; then # after "||" stands what is only made before
    waiting=$(sed -n 's/ || .*//; s/^build bin\/\([^:]*\):.*librooms\.so.*/\1/p' "$build/build.ninja")
    [ -z "$waiting" ] || fail "these wait for the content of librooms.so: $waiting"
fi
[ "$failures" = 0 ]
