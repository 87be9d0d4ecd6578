#!/bin/sh
# activation_patch.sh: measures how many files a new activation changes. Applies activation_patch/silu.patch, which adds
# SiLU and a model that uses it, to a copy of the tree; checks SiLU against PyTorch's formula
# (activation_patch/test_silu.c), against central differences (test_ops) and each host backend against ref
# (test_kernels_transformer); trains the model for a few steps; and counts the patch's files. Ends with 1 if a check
# fails or the patch has more than nine files.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/tests/nn/activation_patch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
git rev-parse >/dev/null 2>&1 || { echo "skipped: no git checkout" && exit 77; }

files=$(grep -c '^+++ ' "$here/silu.patch")
echo "silu.patch: $files files, at most 9"
[ "$files" -le 9 ]

mkdir "$work/tree"
git ls-files -z | tar -C "$root" --null -T - -cf - --ignore-failed-read 2>"$work/log" |
    tar -C "$work/tree" -xf -
cd "$work/tree"
patch -p1 -s <"$here/silu.patch"
cp "$here/test_silu.c" tests/nn/
echo 'ddpc_test(test_silu LIBS common)' >>tests/nn/CMakeLists.txt
{ cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-Werror -DWITH_CUDA=OFF -DWITH_MPI=OFF &&
    cmake --build build -j "$(nproc)" --target test_silu test_ops test_kernels_transformer train_single
} >"$work/log" 2>&1 || { tail -n 30 "$work/log" && exit 1; }
for test in test_silu test_ops test_kernels_transformer; do
    build/bin/$test >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
done
build/bin/train_single --model toy-silu --device cpu --steps 60 --log-every 1 --no-eval >"$work/steps"
awk '{ for (i = 1; i <= NF; i++) if (split($i, of, "=") == 2 && of[1] == "loss") loss[++n] = of[2] }
    END { printf "toy-silu: loss %s -> %s in %d steps\n", loss[1], loss[n], n
          exit !(n == 60 && loss[n] < 0.9 * loss[1]) }' "$work/steps"
