#!/usr/bin/env bash
# clang_kernels.sh [ARCHITECTURE...]: compiles every .cu file with clang, as a second compiler beside nvcc, and prints a
# table with a row for each file and a column for the host code and for each architecture (75 86 90), to PTX. Headers
# are CUDA 12.4's and NCCL 2.19.3's, from NVIDIA's Python packages, downloaded once (25 MB and 200 MB). $CLANG: the
# compiler (the newest clang++-N from 16 on). Status 1 if a file does not compile or has a warning, except clang's own
# about CUDA's version; 77 without such a clang or without the headers.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
architectures=("${@:-75}")
[[ $# -gt 0 ]] || architectures=(75 86 90)
clang=${CLANG:-$(compgen -c clang++- | grep -E '^clang\+\+-[0-9]+$' | sort -t - -k 2 -n | tail -n 1)}
version=$("${clang:-clang++}" -dumpversion 2>/dev/null | cut -d . -f 1)
[[ ${version:-0} -ge 16 ]] || { echo "skipped: no clang++-16 or newer (Debian: clang-19)" && exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. tests/rigs/packages.sh
for name in nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-nccl-cu12==2.19.3; do
    folder=$(package "$name") || { echo "skipped: no $name: $(tail -n 1 "$work/pip")" && exit 77; }
    folders+=("$folder")
done

# A toolkit in the layout that clang expects.
toolkit=$work/cuda
mkdir -p "$toolkit/include" "$toolkit/bin"
cp -r "${folders[0]}/." "${folders[1]}/." "$toolkit/include"
mv "$toolkit/include/nvvm" "$toolkit"
: >"$toolkit/include/curand_mtgp32_kernel.h" # included by clang's own header, but unused

# compiled FILE OPTION...: prints "ok" or "FAILED"; the first errors are in $work/errors
compiled() {
    local file=$1
    shift
    if "$clang" -x cuda --cuda-path="$toolkit" -std=c++17 -O1 -Wall -Wextra -Werror -Wno-unknown-cuda-version \
        -I. -isystem "${folders[2]}" "$@" "$file" >"$work/log" 2>&1; then
        echo ok
    else
        grep -m 3 -E 'error|warning' "$work/log" >>"$work/errors"
        echo FAILED
    fi
}

failures=0
mapfile -t files < <(find common ddp dp -name '*.cu' | sort)
printf '%-36s  %-6s' "$("$clang" --version | sed -n 's/.*version \([0-9.]*\).*/clang \1/p'), CUDA 12.4" host
printf '  %-6s' "${architectures[@]/#/sm_}"
echo
for file in "${files[@]}"; do
    : >"$work/errors"
    row=("$(compiled "$file" --cuda-host-only -fsyntax-only)")
    for architecture in "${architectures[@]}"; do
        row+=("$(compiled "$file" --cuda-device-only --cuda-gpu-arch="sm_$architecture" -S -o "$work/ptx")")
    done
    printf '%-36s' "$file"
    printf '  %-6s' "${row[@]}"
    echo
    sed 's/^/    /' "$work/errors"
    [[ " ${row[*]} " != *FAILED* ]] || failures=$((failures + 1))
done
echo "clang_kernels: ${#files[@]} files, $failures failures"
[[ ${#files[@]} -gt 0 && $failures == 0 ]]
