#!/bin/sh
# linked_once.sh BIN BUILD: a changed source is linked into librooms.so and into the installed and measured programs,
# not into each test and tutorial (common/cmake/rooms.cmake). A program that links librooms.so and a folder's own
# library would have two copies of that library's state.
set -eu
bin=$1 build=$2
[ -e "$build/lib/librooms.so" ] || exit 77 # sanitizers' builds have none
failures=0
fail() {
    echo "FAILED  $*"
    failures=$((failures + 1))
}

# For each program: "NAME own shared wrapped", which of these apply
cd "$bin"
programs=$({
    readelf -d ./* 2>/dev/null | awk '/^File: / { name = $2 } /NEEDED.*librooms\.so/ { print name, "shared" }'
    nm -A ./* 2>/dev/null | awk -F : '/ T error_set$/ { print $1, "own" } / __wrap_/ { print $1, "wrapped" }'
} | sort -u | awk '{ all[$1] = all[$1] " " $2 } END { for (name in all) print substr(name, 3) all[name] }')
shared=0
while read -r name how; do
    case "$name $how" in
    *shared) shared=$((shared + 1)) ;;
    esac
    case "$name $how" in
    *' own shared') fail "$name links librooms.so and a room's archive" ;;
    train_*' own' | ddprun' '* | flight_report' '* | compare_tensors' '* | merge_traces' '* | dump_data' '* | bench_*) ;;
    *' own wrapped') ;; # ld --wrap has no effect on calls within a shared object
    tutorial_grader' '* | tutorial_host' '* | tutorial_capstone_*' '*) ;; # students' files call their functions
    *' own') fail "$name links archives: it is linked anew for each source that changes" ;;
    esac
done <<END
$programs
END
[ "$shared" != 0 ] || fail "no program links librooms.so"
if [ -e "$build/build.ninja" ]; then # order-only dependencies follow "||"
    waiting=$(sed -n 's/ || .*//; s/^build bin\/\([^:]*\):.*librooms\.so.*/\1/p' "$build/build.ninja")
    [ -z "$waiting" ] || fail "these wait for the content of librooms.so: $waiting"
fi
[ "$failures" = 0 ]
