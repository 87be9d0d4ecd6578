#!/usr/bin/env bash
# kill.sh BIN_DIR [OPTION of ddprun...]: kill -9 of a rank during replayed steps, each of which is saved. The job must
# end by itself, with all ranks, and its checkpoint must be that of a successful step.
set -uo pipefail
bin=$1
cd "$(mktemp -d)" || exit 1
trap 'rm -rf "$PWD"' EXIT
two=("$bin/ddprun" "${@:2}" --nproc-per-node 2)
run=(--device cuda --cuda-graph --schedule constant --no-eval --save last)

trap 'tail -n 3 out err; exit 1' TERM # a hang: prints the job's output

fail() {
    echo "FAILED: $*"
    exit 1
}

# shellcheck disable=SC2016 # expanded by the ranks' shells
"${two[@]}" sh -c 'echo $$ >"pid$RANK"; exec "$0" "$@"' "$bin/train_ddp" \
    "${run[@]}" --epochs 1000000 --log-every 10 --save-every 1 >out 2>err &
tries=0
until grep -q '^step=20 ' out || ! kill -0 $! 2>/dev/null || [[ $tries == 600 ]]; do
    sleep 0.2
    tries=$((tries + 1))
done
begin=$SECONDS status=0
kill -9 "$(cat pid1)" 2>>err
wait $! || status=$?
seconds=$((SECONDS - begin + 1))
cat err
for rank in 0 1; do
    kill -0 "$(cat "pid$rank")" 2>/dev/null && kill -9 "$(cat "pid$rank")" && fail "rank $rank was still alive"
done
[[ $status != 77 ]] || { grep -m 1 error: err && exit 77; } # no suitable NCCL
[[ $status == 137 ]] || fail "status $status, not 137" # 128 + 9: the rank's SIGKILL
step=$(grep -ao '[^"/]*\.optimizer' last | head -n 1 | cut -d . -f 2)
[[ -n $step ]] || fail "there is no checkpoint"
mv last lost
"${two[@]}" "$bin/train_ddp" "${run[@]}" --steps "$step" || exit 1
"$bin/compare_tensors" --bitwise lost last || fail "the checkpoint of step $step holds other weights"
echo "the job ended within $seconds s, with all ranks, and the checkpoint of step $step is right"
