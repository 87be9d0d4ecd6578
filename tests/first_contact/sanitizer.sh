#!/usr/bin/env bash
# sanitizer.sh BIN_DIR TOOL full|quick [COMPUTE_SANITIZER]: the short tests of the kernels under one tool of
# compute-sanitizer. 77 without it.
set -euo pipefail
bin=$1 tool=$2 size=$3 sanitizer=${4:-}
[[ -n $sanitizer ]] || { echo "skipped: compute-sanitizer is not installed" && exit 77; }
tests=("test_cuda_layout" "test_cuda_kernels cuda" "test_kernels cuda" "test_kernels_norm cuda")
[[ $size == full ]] || tests=("test_cuda_layout")
for test in "${tests[@]}"; do
    # shellcheck disable=SC2086 # a test and its argument
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/"$test
done
echo "$tool: ${#tests[@]} tests, nothing found"
