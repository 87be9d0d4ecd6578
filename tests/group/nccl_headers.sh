#!/usr/bin/env bash
# nccl_headers.sh [--cuda FOLDER]... [FOLDER...]: compiles ddp/group/nccl with the nccl.h of each FOLDER and prints a
# table with a row for each version of NCCL and of CUDA. Without FOLDER: with the headers of several versions
# ($NCCL_VERSIONS) from NVIDIA's Python packages, downloaded once (200 MB each; only the header is kept in the user's
# cache). Without --cuda: with the toolkit's headers, and with CUDA 12.4's from a package. scale.cu is compiled if there
# is an nvcc. Status 1 if a file does not compile or has a warning, 77 without headers.
set -uo pipefail
versions=${NCCL_VERSIONS:-2.19.3 2.21.5 2.23.4 2.28.9}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 rows=0 cudas=() folders=()

while [[ $# -gt 0 ]]; do
    case $1 in
    --cuda)
        [[ $# -ge 2 ]] || { echo "error: --cuda needs a folder" >&2 && exit 2; }
        cudas+=("$(realpath "$2")")
        shift
        ;;
    -*) echo "error: unknown option $1" >&2 && exit 2 ;;
    *)
        [[ -e $1/nccl.h ]] || { echo "error: there is no nccl.h in $1" >&2 && exit 2; }
        folders+=("$(realpath "$1")")
        ;;
    esac
    shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
. tests/rigs/packages.sh

# number_of FILE MACRO: prints the number that the header defines
number_of() {
    sed -n "s/^#define[ \t]*$2[ \t]*\([0-9]*\).*/\1/p" "$1" | head -n 1
}

# compiles COMMAND...: prints "ok" or "FAILED"; the compiler's messages are in $work/errors
compiles() {
    if "$@" >"$work/log" 2>&1; then
        echo ok
    else
        grep -m 2 -E 'error|warning' "$work/log" >>"$work/errors"
        echo FAILED
    fi
}

compile_with() { # folders of NCCL's headers and of CUDA's headers
    local nccl cuda c=ok cu="-" file include=(-I. -isystem "$1" -isystem "$2")
    nccl=$(number_of "$1/nccl.h" NCCL_MAJOR).$(number_of "$1/nccl.h" NCCL_MINOR).$(number_of "$1/nccl.h" NCCL_PATCH)
    cuda=$(number_of "$2/cuda_runtime_api.h" CUDART_VERSION)
    : >"$work/errors"
    for file in ddp/group/nccl/*.c; do
        [[ $(compiles "${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -D_GNU_SOURCE -fsyntax-only \
            "${include[@]}" "$file") == ok ]] || c=FAILED
    done
    # nvcc only works with its own toolkit's headers, which it finds by itself.
    if [[ -n $nvcc && $2 == "$toolkit" ]]; then
        cu=$(compiles "$nvcc" -std=c++17 -arch=sm_75 --extended-lambda -Werror all-warnings -I. -isystem "$1" -c \
            -o "$work/object" ddp/group/nccl/scale.cu)
    fi
    printf '%-8s  %-6s  %-6s  %s\n' "$nccl" "$((cuda / 1000)).$((cuda % 1000 / 10))" "$c" "$cu"
    sed 's/^/    /' "$work/errors"
    rows=$((rows + 1))
    [[ $c != FAILED && $cu != FAILED ]] || failures=$((failures + 1))
}

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
toolkit=${nvcc:+$(dirname "$(dirname "$nvcc")")/include}
if [[ ${#cudas[@]} == 0 ]]; then
    [[ ! -e $toolkit/cuda_runtime_api.h ]] || cudas+=("$toolkit")
    older=$(package nvidia-cuda-runtime-cu12==12.4.127)
    [[ -z $older ]] || cudas+=("$older")
fi
if [[ ${#folders[@]} == 0 ]]; then
    for version in $versions; do
        folder=$(package "nvidia-nccl-cu12==$version")
        [[ -n $folder ]] && folders+=("$folder") || echo "NCCL $version: no header: $(tail -n 1 "$work/pip")"
    done
fi
[[ ${#cudas[@]} -gt 0 && ${#folders[@]} -gt 0 ]] || { echo "skipped: no headers of NCCL or CUDA" && exit 77; }

printf '%-8s  %-6s  %-6s  %s\n' NCCL CUDA "*.c" scale.cu
for folder in "${folders[@]}"; do
    for cuda in "${cudas[@]}"; do compile_with "$folder" "$cuda"; done
done
echo "nccl_headers: $rows pairs, $failures failures"
[[ $failures == 0 ]]
