# gpus.sh: for bash tests whose ranks compute on GPUs; sourced with the folder of the programs as $bin. Sets gpus to the
# number of GPUs.
# shellcheck shell=bash
gpus=$("$bin/ddprun" --nproc-per-node gpu echo counted 2>/dev/null | grep -c counted || true)

# has_bf16: the GPU computes in bfloat16 (from compute capability 8.0 on).
has_bf16() {
    "$bin/train_single" --device cuda --model mlp --steps 1 --no-eval --amp bf16 >/dev/null 2>&1
}

# ranks_on_gpus N: sets launch to the command that starts N ranks. Each rank has its own GPU, and NCCL chooses the
# transport (P2P, NVLS, ...); if there are too few GPUs, ranks share them, for correctness only.
ranks_on_gpus() {
    launch=("$bin/ddprun" --nproc-per-node "$1")
    [[ $gpus -ge $1 ]] || launch+=(--fake-hosts)
}
