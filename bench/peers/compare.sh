#!/usr/bin/env bash
# compare.sh: compares our programs with PyTorch's DDP, DataParallel and single process, and our all-reduce with Open
# MPI's and Gloo's: the same weights and batches, one thread per rank, alternately. The measurements: peers.py; the
# report's sentences about them: bench/report/peers.py.
#
# PyTorch comes from $PYTHON, else from the virtual environment that --install-peers makes, else from python3.
# Writes peers.csv, gradients.csv, peers.svg, section.md and section.html, which bench/compare.sh's
# report brings in. The exit status is 0 only if the gradients agreed and every sum was right; 77 without torch
# and safetensors, or without a GPU for --device cuda.
#
# usage: bench/peers/compare.sh [options]
#   --device NAME      cpu (default) or cuda
#   --model "A B"      of mlp, convnet and resnet20 (default: all three)
#   --world "N M"      numbers of ranks (default: 1 2 4; with cuda, as many as there are GPUs)
#   --rounds N         rounds that must be undisturbed (default: 5)
#   --quick            two rounds of a few small steps: tries the command, and measures no speed
#   --install-peers    make a virtual environment with PyTorch, and install Open MPI (as root)
#   --venv DIR         where (default: ~/.cache/ddpc/peers)
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../compare/begin.sh"

device=cpu model="mlp convnet resnet20" world="1 2 4" install_peers=0 out=bench/out-peers
venv=${XDG_CACHE_HOME:-$HOME/.cache}/ddpc/peers
read_options bench/peers/compare.sh "$@"
rounds=${rounds:-$((quick ? 2 : 5))}
need_word --device "$device" 'cpu|cuda'
need_words --model "$model" 'mlp|convnet|resnet20'
need_numbers --world "$world" 1 "$(most_devices)"
worlds=$world
programs="train_single train_dp train_ddp ddprun dump_data compare_tensors bench_allreduce"
# shellcheck disable=SC2086 # the programs are words
need_programs $programs
unset OPENBLAS_CORETYPE # each side chooses its kernels itself

# Creates a virtual environment outside of the tree; the system's Python is not changed.
install_peers() {
    setup_require 1 peers
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet torch safetensors numpy || exit 2
}

find_python() {
    python=${PYTHON:-}
    [[ -n $python || ! -x $venv/bin/python ]] || python=$venv/bin/python
    python=${python:-python3}
    PYTHONDONTWRITEBYTECODE=1 "$python" -c 'import torch, safetensors.torch' 2>/dev/null && return
    echo "skipped: $python has no torch and safetensors; --install-peers makes an environment that has"
    exit 77
}

# Builds Open MPI's program, if its compiler is installed.
build_mpi() {
    if command -v mpicc >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
        mpicc -std=c11 -O2 -o "$out/mpi_allreduce" bench/peers/mpi_allreduce.c
    else
        echo "there is no Open MPI here: its all-reduce is left out" >&2
    fi
}

[[ $install_peers == 0 ]] || install_peers
find_python
# shellcheck disable=SC2086 # the programs are words
get_ready $programs
export PYTHONDONTWRITEBYTECODE=1

if [[ $device == cuda ]]; then
    gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
    [[ $gpus != 0 ]] || { echo "skipped: PyTorch sees no GPU" && exit 77; }
    worlds=$(tr -s ' ' '\n' <<<"$worlds" | awk -v gpus="$gpus" '$1 != "" && $1 <= gpus' | paste -sd ' ' -)
fi
open_section {peers,gradients}.csv mpi_allreduce
build_mpi
status=0 deadline=3600 live=1 # one world takes minutes, and shows its progress

# measure_world N: makes all rounds of N ranks
measure_world() {
    run_once "world-$1" "$python" bench/peers/peers.py world --bin "$bin" --out "$out/runs/world-$1" \
        --mpi "$out/mpi_allreduce" --device "$device" --model "$model" --world "$1" --rounds "$rounds" \
        $([[ $quick == 0 ]] || echo --quick) || status=1
    [[ $planning == 1 || -f $out/runs/world-$1/facts.txt ]] || exit 1
}

measure_worlds() {
    local world
    for world in $worlds; do
        begin_section "$world rank$([[ $world == 1 ]] || echo s): $rounds rounds or more"
        measure_world "$world"
    done
}

make_all measure_worlds
for file in peers gradients; do
    for world in $worlds; do
        cat "$out/runs/world-$world/$file.csv"
    done | awk 'NR == 1 { header = $0 } NR == 1 || $0 != header' >"$out/$file.csv"
done
mapfile -t facts <"$out/runs/world-$(awk '{ print $NF }' <<<"$worlds")/facts.txt"
[[ ! -f $out/mpi_allreduce ]] || facts+=("$(mpirun --version | head -n 1)")
configs=("$out"/runs/world-*/runs/mlp-*/ours/config.json)
hidden=$([[ ! -f ${configs[0]} ]] || json hidden "${configs[0]}")
write_facts "quick $quick" "hidden $hidden" "device $device" -- "${facts[@]}"
write_report peers || status=1
exit "$status"
