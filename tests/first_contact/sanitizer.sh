#!/usr/bin/env bash
# sanitizer.sh BIN_DIR TOOL full|quick [COMPUTE_SANITIZER]: runs the kernels' short tests under one tool of
# compute-sanitizer: all of them, even after a finding. 77 without it. NVIDIA's libraries read uninitialised padding of
# tiles: initcheck's findings do not fail a test if all of them are in functions listed in initcheck.suppressions (one
# regular expression per line).
set -uo pipefail
bin=$1 tool=$2 size=$3 sanitizer=${4:-}
[[ -n $sanitizer ]] || { echo "skipped: compute-sanitizer is not installed" && exit 77; }
suppressions=$(dirname "${BASH_SOURCE[0]}")/initcheck.suppressions
log=$(mktemp)
trap 'rm -f "$log"' EXIT
tests=("test_cuda_layout" "test_cuda_kernels cuda" "test_kernels cuda" "test_kernels_norm cuda"
    "test_kernels_halves cuda" "test_kernels_logits cuda" "test_kernels_copies cuda"
    "test_kernels_transformer cuda" "test_kernels_windows cuda" "test_kernels_pixels cuda")
[[ $size == full ]] || tests=("test_cuda_layout")
found=() suppressed=0

# Prints the functions of initcheck's findings: "=========     at 0x50 in FUNCTION" or "... at FUNCTION+0x50 in FILE".
functions() { sed -n -E 's/^=+ +at (0x[0-9a-f]+ in )?//p' "$log"; }

# Returns whether all findings are suppressed.
is_suppressed() {
    [[ $tool == initcheck && -n $(functions) ]] && ! functions | grep -qvEf "$suppressions"
}

for test in "${tests[@]}"; do
    echo "== $test"
    status=0
    # shellcheck disable=SC2086 # a test and its argument
    "$sanitizer" --tool "$tool" --error-exitcode 9 "$bin/"$test 2>&1 | tee "$log" || status=$?
    if [[ $status == 9 ]] && is_suppressed; then
        suppressed=$((suppressed + 1))
    elif [[ $status != 0 ]]; then
        found+=("${test%% *}")
    fi
done
[[ ${#found[@]} == 0 ]] || { echo "FAILED: $tool found something in ${found[*]}" && exit 1; }
echo "$tool: ${#tests[@]} tests, nothing found$([[ $suppressed == 0 ]] || echo " but in libraries, in $suppressed")"
