#!/usr/bin/env bash
# sanitizer.sh BIN_DIR TOOL full|quick [COMPUTE_SANITIZER]: the short tests of the kernels under one tool of
# compute-sanitizer: all of them, also after one in which it found something. 77 without it.
set -uo pipefail
bin=$1 tool=$2 size=$3 sanitizer=${4:-}
[[ -n $sanitizer ]] || { echo "skipped: compute-sanitizer is not installed" && exit 77; }
tests=("test_cuda_layout" "test_cuda_kernels cuda" "test_kernels cuda" "test_kernels_norm cuda"
    "test_kernels_halves cuda" "test_kernels_transformer cuda" "test_kernels_windows cuda" "test_kernels_pixels cuda")
[[ $size == full ]] || tests=("test_cuda_layout")
found=()
for test in "${tests[@]}"; do
    echo "== $test"
    # shellcheck disable=SC2086 # a test and its argument
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/"$test || found+=("${test%% *}")
done
[[ ${#found[@]} == 0 ]] || { echo "FAILED: $tool found something in ${found[*]}" && exit 1; }
echo "$tool: ${#tests[@]} tests, nothing found"
