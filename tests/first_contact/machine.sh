#!/usr/bin/env bash
# machine.sh FOLDER BUILD: describes the machine. Writes FOLDER/*.txt, and prints the lines for the index. A tool that
# is missing or takes more than 20 seconds is reported in a line.
set -uo pipefail
folder=$1 build=$2
mkdir -p "$folder"

note() { # FILE COMMAND...
    timeout -k 5 20 "${@:2}" >"$folder/$1" 2>&1 || echo "(${*:2}: status $?)" >>"$folder/$1"
}

note nvidia-smi.txt nvidia-smi
note nvidia-smi-q.txt nvidia-smi -q
note topology.txt nvidia-smi topo -m
note kernel.txt sh -c 'dmesg -T || journalctl -k -n 400 --no-pager'
note cpu.txt lscpu
note memory.txt sh -c 'free -m; df -h /dev/shm /tmp; ulimit -a'
note system.txt sh -c 'uname -a; cat /etc/os-release; cat /proc/driver/nvidia/version'
note build.txt grep -E '^(CUDA|CMAKE_CUDA|CMAKE_BUILD_TYPE|NCCL|CUDNN|WITH)' "$build/CMakeCache.txt"
note tools.txt sh -c 'for t in gcc nvcc cmake gdb compute-sanitizer nsys python3; do
    command -v $t >/dev/null && echo "$t: $($t --version 2>&1 | grep -m 1 -E "[0-9]+\.[0-9]+")" || echo "$t: not installed"; done'
note libraries.txt sh -c 'for f in "$0"/bin/train_ddp "$0"/lib/libddpc_*.so; do echo "$f:"; ldd "$f"; done' "$build"
note environment.txt sh -c 'env | grep -E "^(CUDA|NCCL|DDPC|LD_|OPENBLAS|OMP|SLURM|PYTHON)" | sort'
# The cards, and the loaded versions of CUDA, cuBLASLt and cuDNN, as they report themselves.
note computes.txt "$build/bin/gpu_probe" machine

if grep -q '^[^(]' "$folder/computes.txt"; then cat "$folder/computes.txt"; fi
timeout 20 nvidia-smi --query-gpu=index,name,memory.total,driver_version,pcie.link.gen.max,pcie.link.width.current \
    --format=csv,noheader 2>/dev/null | sed 's/^/GPU /' || echo "nvidia-smi says nothing"
sed -n 's/^PRETTY_NAME="\(.*\)"/system: \1/p' "$folder/system.txt"
echo "kernel: $(uname -r)"
sed -n 's/^Model name: */CPU: /p; s/^CPU(s): */cores: /p' "$folder/cpu.txt"
sed -n 's/^\(CMAKE_CUDA_ARCHITECTURES\|CMAKE_CUDA_COMPILER\):[A-Z]*=/\1: /p' "$folder/build.txt"
sed -n 's/.*\(lib\(cudart\|cublasLt\|cudnn\|nccl\)\.so[.0-9]*\) => \([^ ]*\).*/\1: \3/p' "$folder/libraries.txt" | sort -u
sed -n 's/^\(gdb\|compute-sanitizer\|nvcc\): /&/p' "$folder/tools.txt"
