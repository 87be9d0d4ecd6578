#!/bin/sh
# deletable.sh: verifies that the core is small and that each feature of DistributedDataParallel can be deleted without
# changing the others: after its files, its line in ddp/features/features.c and its lines in CMakeLists.txt there are
# deleted, train_ddp must build without a warning, lack the feature's option, and train. Last, all features are deleted
# together.
#
# Works on a copy of the tree with one build, without optimization; each deletion is undone after its check. ddp/fsdp is
# deleted too: the folder, and every line of CMake that names it. Exit status 1 if a check fails.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
tar -C "$root" -cf - CMakeLists.txt common ddp | tar -C "$work/tree" -xf -
cd "$work/tree"
sed -i '/include(install)/d; /add_subdirectory(dp)/d; /add_subdirectory(bench)/d; /add_subdirectory(tutorials/d' CMakeLists.txt
failures=0

# Each feature, and a word that only its option adds to --help.
features='sync_batch_norm --sync-batch-norm
static_graph --static-graph
unused_parameters --find-unused-parameters
gradient_as_bucket_view --no-gradient-as-bucket-view
comm_hooks allreduce
powersgd_hook powersgd
zero_optimizer --zero-optimizer
fast_sums --fast-sums
logging_data
post_local_sgd
optimizer_hook
join'

fail() {
    echo "FAILED  $*"
    failures=$((failures + 1))
}

# Ninja and gold, if installed: make would spend a third of this test's CPU time on checking for changes, and ld.bfd takes
# four times as long as gold to link train_ddp.
generator='' linker=''
! command -v ninja >/dev/null || generator='-G Ninja'
! command -v ld.gold >/dev/null || linker=-fuse-ld=gold
build() {
    # shellcheck disable=SC2086 # the generator is two words or none
    { cmake -S . -B build $generator -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS="-O0 -Werror" -DWITH_TESTS=OFF \
        -DCMAKE_EXE_LINKER_FLAGS="$linker" \
        -DWITH_CUDA=OFF -DWITH_MPI=OFF &&
        cmake --build build -j "$(nproc)" --target train_ddp; } >"$work/log" 2>&1
}

# Deletes a feature's files (join.c and join_ddp.c are one feature), and every line that names them.
delete() {
    for file in "ddp/features/$1.c" "ddp/features/$1.h" "ddp/features/$1_ddp.c" \
        "ddp/features/$1_ddp.h"; do
        [ -e "$file" ] || continue
        rm "$file"
        sed -i "/\b$(basename "$file")/d" ddp/features/CMakeLists.txt
    done
    sed -i "/FEATURE($1)/d" ddp/features/features.c
}

restore() {
    tar -C "$root" -cf - ddp | tar -C "$work/tree" -xf -
    touch ddp/features/features.c ddp/features/CMakeLists.txt
}

# check WHAT WORD...: builds and trains the tree without WHAT. --help must not contain the words.
check() {
    what=$1
    shift
    if ! build; then
        fail "without $what: it does not build: $(grep -E 'error|No rule|undefined' "$work/log" | head -n 3)"
        return
    fi
    build/bin/train_ddp --help >"$work/help"
    for word; do
        ! grep -q -- "$word" "$work/help" || fail "without $what: --help still says $word"
    done
    build/bin/train_ddp --steps 2 --no-eval >"$work/log" 2>&1 || fail "without $what: $(cat "$work/log")"
    echo "built   without $what"
}

# Deletes the folder of fully sharded data parallel, and every line that names it.
delete_fsdp() {
    rm -r ddp/fsdp
    sed -i '/fsdp/d' ddp/CMakeLists.txt
}

core='ddp/reducer.c ddp/gradient_slab.c ddp/distributed_data_parallel.c'
lines=$(cat $core | wc -l)
[ "$lines" -lt 740 ] || fail "$core have $lines lines together"
found=$(grep -nwiE 'join|powersgd|power_sgd|static_graph|unused_parameters|local_sgd|sync_batch_norm|logger' \
    $core || true)
[ -z "$found" ] || fail "the core names features: $found"

build || { cat "$work/log" && exit 1; }
build/bin/train_ddp --help >"$work/whole"
words=''
while read -r name word; do
    words="$words $word"
    [ -z "$word" ] || grep -q -- "$word" "$work/whole" || fail "--help does not say $word at all"
    delete "$name"
    check "$name" $word
    restore
done <<END
$features
END
delete_fsdp
check fsdp
found=$(grep -rlE 'ddp/fsdp/[a-z_]*\.h|fsdp_[a-z_]*\(' common ddp || true)
[ -z "$found" ] || fail "without fsdp, these call it: $found"
restore
for name in $(echo "$features" | cut -d ' ' -f 1); do delete "$name"; done
! grep -q 'FEATURE([a-z]' ddp/features/features.c || fail "this script does not know all of ddp/features/features.c"
check "any feature" $words

echo "deletable: $lines lines of core, $failures failures"
[ "$failures" = 0 ]
