#!/bin/sh
# memory_limit.sh BIN_DIR: --memory-limit ends a program whose device needs more, and changes nothing otherwise: within
# one limit, one device, DataParallel, DistributedDataParallel and ZeRO-1 end with a message, and fully_shard trains.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"

gpt="--model gpt --data text --layers 4 --heads 4 --embedding 64 --context 32 --global-batch 4 --optimizer adamw"
gpt="$gpt --steps 3 --no-eval --drop-last --clip-grad-norm 0.5"
PATH=$bin:$PATH # names instead of paths, which may contain spaces
ranks="ddprun --nproc-per-node 4"

# peak FOLDER: prints the largest device's peak bytes.
peak() { sed -n 's/.*"peak_bytes_[a-z0-9]*": *\([0-9]*\).*/\1/p' "$1/summary.json" | sort -n | tail -1; }
# mib BYTES: half a byte is added, against rounding down.
mib() { awk "BEGIN { printf \"%.9f\", ($1 + 0.5) / 1048576 }"; }
# outgrow WORDS COMMAND...: must end with status 1 and a line with these words (of one or several ranks).
outgrow() {
    checks=$((checks + 1)) words=$1 status=0
    shift
    "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 1 ] && grep -qE "error: [a-z:0-9-]* is out of memory: asked for .*$words" err.txt ||
        fail "status $status: $*: $(cat err.txt)"
}

# shellcheck disable=SC2086 # the options and commands are words
{
    for name in single dp ddp zero1 fsdp; do
        case $name in
        single) command=train_single ;;
        dp) command="train_dp --devices 4" ;;
        ddp) command="$ranks train_ddp --sampler blocked" ;;
        zero1) command="$ranks train_ddp --sampler blocked --zero-optimizer" ;;
        fsdp) command="$ranks train_fsdp --sampler blocked" ;;
        esac
        run "$name" $command $gpt --out $name --save $name.weights
        # Its peak suffices as a limit, and one byte less does not.
        needed=$(peak $name)
        run "$name, just enough" $command $gpt --memory-limit "$(mib "$needed")" --save $name.limited
        same $name.weights $name.limited
        outgrow '' $command $gpt --memory-limit "$(mib $((needed - 1)))"
        eval "$name=$needed"
    done
    for other in dp zero1 fsdp; do same ddp.weights $other.weights; done

    # fully_shard's peak plus one percent: enough only for fully_shard.
    limit=$(mib $((fsdp + fsdp / 100)))
    for command in train_single "train_dp --devices 4" "$ranks train_ddp" "$ranks train_ddp --zero-optimizer"; do
        outgrow 'in use of the [0-9]* that --memory-limit allows' $command $gpt --memory-limit "$limit"
    done
    run "fully_shard within the limit" $ranks train_fsdp $gpt --memory-limit "$limit"

    # --dry-run reports it before a run.
    outgrow '' train_single $gpt --dry-run --memory-limit "$limit"
    run "a dry run within the limit" train_single $gpt --dry-run --memory-limit "$(mib $((single + single / 10)))"
}
tally memory_limit
