#!/bin/sh
# mutants.sh: tests the test. Each tests/mutants/*.patch plants one classic mistake of data-parallel code
# (a broadcast left out, a division forgotten, a tail lost, a barrier skipped); bench/compare.sh must
# find every one of them, by exit status 1, and must pass the tree as it is.
#
# Works on a copy of the tree with one build, which each patch changes by a file and changes back.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
tar -C "$root" -cf - CMakeLists.txt CMakePresets.json common dp ddp bench | tar -C "$work/tree" -xf -
cd "$work/tree"
survivors=0 caught=0

build() {
    { cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DWITH_TESTS=OFF &&
        cmake --build build -j "$(nproc)" --target train_single train_dp train_ddp ddprun \
            compare_tensors; } >"$work/build.log" 2>&1 || { cat "$work/build.log" && exit 1; }
}

# The exit status of the equivalence checks, in $status.
compare() {
    status=0
    timeout 300 bench/compare.sh --quick --only-equivalence --bin build/bin --out "$work/out" \
        >"$work/compare.log" 2>&1 || status=$?
}

build
compare
if [ "$status" != 0 ]; then
    tail -n 20 "$work/compare.log"
    echo "the tree without a mutant fails already (status $status)"
    exit 1
fi
echo "passed  the tree as it is"

for patch in "$root"/tests/mutants/*.patch; do
    name=$(basename "$patch" .patch)
    git apply "$patch" || { echo "$name: the patch no longer fits the code: renew it" && exit 1; }
    build
    compare
    git apply -R "$patch"
    if [ "$status" = 1 ]; then
        caught=$((caught + 1))
        echo "caught  $name"
    else
        survivors=$((survivors + 1))
        echo "SURVIVED (status $status)  $name"
    fi
done
echo "mutants: $caught caught, $survivors survived"
[ "$survivors" = 0 ]
