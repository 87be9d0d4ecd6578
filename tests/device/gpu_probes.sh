#!/usr/bin/env bash
# gpu_probes.sh BIN_DIR PROBES_DIR: what nobody can know of a machine's GPU without asking it. One line per
# question, with its answer; each has a minute, then it is ended by force:
#
#   - several ranks on one card by ddprun --fake-hosts: does NCCL add up, small buffers and large ones?
#   - the same by CUDA IPC, without NCCL;
#   - a rank killed in a collective: does the job end, and everybody with it?
#   - which cuDNN, and how many convolutions it has deterministic plans for.
#
# The status is 77 without a GPU, 1 if an answer is wrong, or none came.
set -uo pipefail
bin=$1 probes=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DDPC_EMULATED_GPUS=1 # of the emulator; a real machine has what it has
failures=0

[[ -x $probes/gpu_probe ]] || { echo "skipped: this build has no CUDA" && exit 77; }

answer() { # QUESTION ok|FAILED|HANGS TEXT
    [[ $2 == ok ]] || failures=$((failures + 1))
    printf '%-34s %-7s %s\n' "$1:" "$2" "$3"
}

ask() { # QUESTION COMMAND...
    local question=$1 status=0
    shift
    timeout -k 5 60 "$@" >"$work/out" 2>"$work/err" || status=$?
    case $status in
    0) answer "$question" ok "$(tail -n 1 "$work/out")" ;;
    124 | 137) answer "$question" HANGS "ended by force after 60 s" ;;
    77) cat "$work/err" && exit 77 ;;
    *) answer "$question" FAILED "status $status: $(grep -m 1 error: "$work/err" || tail -n 1 "$work/err")" ;;
    esac
}

# Ends rank 1 in the middle of a long training; all of the job has to be gone soon after.
kill_a_rank() {
    local question="kill -9 of a rank in a collective" tries=0 begin status=0 rank alive=none
    # shellcheck disable=SC2016 # the ranks' shells fill in $$ and $RANK
    timeout -k 5 120 "$bin/ddprun" --fake-hosts --nproc-per-node 2 sh -c \
        'echo $$ >"$1/pid$RANK"
         exec "$2/train_ddp" --device cuda --epochs 1000000 --log-every 10 --no-eval' \
        sh "$work" "$bin" >"$work/out" 2>"$work/err" &
    until grep -q '^step=20 ' "$work/out" || ! kill -0 $! 2>/dev/null || [[ $tries == 200 ]]; do
        sleep 0.2
        tries=$((tries + 1))
    done
    begin=$SECONDS
    kill -9 "$(cat "$work/pid1")" 2>>"$work/err"
    wait $! || status=$?
    for rank in 0 1; do ! kill -0 "$(cat "$work/pid$rank")" 2>/dev/null || alive="rank $rank"; done
    if [[ $((SECONDS - begin)) -ge 60 ]]; then
        answer "$question" HANGS "the job did not end by itself"
    elif [[ $status != 137 || $alive != none ]]; then # 128 + 9: how the rank ended
        answer "$question" FAILED "status $status, still alive: $alive: $(tail -n 1 "$work/err")"
    else
        answer "$question" ok "the job ended within $((SECONDS - begin + 1)) s, with all ranks"
    fi
}

ask "the GPU and its libraries" "$probes/gpu_probe" convolutions
for bytes in 4096 1048576 67108864; do
    ask "NCCL, 2 ranks on one card" "$bin/ddprun" --fake-hosts --nproc-per-node 2 \
        "$probes/gpu_probe" all-reduce $bytes
    if [[ -x $probes/gpu_probe_ipc ]]; then # the emulator has no IPC
        ask "CUDA IPC, 2 ranks on one card" "$probes/gpu_probe_ipc" $bytes
    fi
done
kill_a_rank
[[ $failures == 0 ]]
