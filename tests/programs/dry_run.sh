#!/bin/sh
# dry_run.sh BIN_DIR [DEVICE]: --dry-run prints the exact memory of a run's devices: compared with the counters of real
# runs, for several networks and all three programs.
. "$(dirname "$0")/checks.sh"
PATH=$bin:$PATH
device=${2:-cpu}
value() { sed -n "s/^$1=\([0-9]*\).*/\1/p" out.txt | head -n 1; }

# held WHAT COMMAND...: compares the dry run with three real steps.
held() {
    what=$1
    shift
    run "$what, dry" "$@" --device "$device" --dry-run
    peak=$(value peak_bytes)
    other=$(sed -n 's/^peak_bytes=\([0-9]*\).*/\1/p' out.txt | tail -n +2 | sort -n | tail -n 1)
    sum=$(awk -F= '/^[a-z]*_bytes=/ && !/^peak/ { n += $2 } END { printf "%.0f", n }' out.txt)
    checks=$((checks + 2))
    [ "$sum" = "$peak" ] || fail "$what: the kinds add up to $sum, not to $peak"
    ! grep -q '=1844674407' out.txt || fail "$what: fewer bytes than none: $(cat out.txt)"
    cp out.txt dry.txt
    run "$what" "$@" --device "$device" --steps 3 --no-eval --out computed
    checks=$((checks + 1))
    computed=$(sed -n 's/.*"peak_bytes_device0": *\([0-9]*\).*/\1/p' computed/summary.json)
    [ "$peak" = "$computed" ] || fail "$what takes $computed bytes, and said $peak: $(cat dry.txt)"
    [ -n "$other" ] || return 0
    computed=$(sed -n 's/.*"peak_bytes_other": *\([0-9]*\).*/\1/p' computed/summary.json)
    [ "$other" = "$computed" ] || fail "$what: other devices take $computed bytes, and it said $other"
}

if [ "$device" = cuda ]; then
    status=0
    train_single --device cuda --steps 1 --no-eval >out.txt 2>err.txt || status=$?
    [ $status != 77 ] || { cat err.txt && exit 77; }
fi
tiny="--model gpt --layers 2 --heads 2 --embedding 32 --context 16 --global-batch 6 --optimizer adamw"
held "a gpt" train_single $tiny
held "a larger one" train_single $tiny --layers 3 --context 33 --global-batch 5 --clip-grad-norm 1
amp=bf16
[ "$device" = cpu ] || train_single --device cuda --amp bf16 --steps 1 --no-eval >out.txt 2>err.txt || amp=fp16
held "a gpt in $amp" train_single $tiny --amp $amp
gpt2="--model gpt2 --vocabulary 50257 --context 1024 --global-batch 8 --optimizer adamw --dry-run"
if [ "$device $amp" = "cuda bf16" ]; then
    run "GPT-2 on a GPU" train_single --device cuda $gpt2
    single=$(value peak_bytes)
    run "GPT-2 on a GPU in bf16" train_single --device cuda $gpt2 --amp bf16
    checks=$((checks + 2)) # logits in 16 bits, overwritten by their gradient
    [ "$(value logits_bytes)" = $((8 * 1024 * 50257 * 2)) ] || fail "GPT-2's logits in bf16: $(value logits_bytes)"
    [ $(($(value peak_bytes) * 10)) -lt $((single * 6)) ] || fail "GPT-2 takes $(value peak_bytes) bytes in bf16, $single in float32"
fi
held "an mlp" train_single
held "a convnet in two parts" train_single --model convnet --accumulate-steps 2
# On GPUs both devices are on one card: a machine need not have two.
if [ "$device" = cuda ]; then two="--device-ids 0,0"; else two="--devices 2"; fi
held "two devices" train_dp $two $tiny
if [ "$device" = cpu ]; then
    held "two ranks" ddprun --nproc-per-node 2 train_ddp $tiny
    cp dry.txt out.txt
    whole=$(value optimizer_bytes)
    held "two ranks with ZeRO-1" ddprun --nproc-per-node 2 train_ddp $tiny --zero-optimizer
    cp dry.txt out.txt
    half=$(value optimizer_bytes)
    checks=$((checks + 1))
    [ $((half * 200 / whole)) = 100 ] || [ $((half * 200 / whole)) = 99 ] || fail "ZeRO-1 holds $half of $whole bytes of state"
    held "two ranks, fully sharded" ddprun --nproc-per-node 2 train_fsdp $tiny
    # A dry run allocates no memory, only addresses, and sends nothing: 8 ranks with 6 GB of weights each.
    xl="--model gpt2-xl --vocabulary 50257 --optimizer adamw --drop-last --dry-run"
    run "GPT-2 XL" train_single $xl --global-batch 1
    whole=$(value peak_bytes)
    run "GPT-2 XL on eight ranks" ddprun --nproc-per-node 8 train_ddp $xl --global-batch 8
    checks=$((checks + 1))
    [ "$(value peak_bytes)" = "$whole" ] || fail "one of eight ranks takes $(value peak_bytes) bytes, one device $whole"
    held "segnet" train_single --model segnet --global-batch 8
    # Bytes of a batch in its slot: 60 digits of 64 pixels with labels; 6 texts of 16 tokens with next tokens.
    for counts in "15840 2400:" "1536 28416:$tiny"; do
        run "a batch" train_single --device cpu ${counts#*:} --dry-run
        checks=$((checks + 1))
        [ "$(value batch_bytes) $(value logits_bytes)" = "${counts%%:*}" ] || fail "batch and logits: $(cat out.txt)"
    done
    # More than this machine's memory: 124 million parameters of 4 bytes, 16 bytes each in total.
    run "GPT-2" train_single $gpt2
    checks=$((checks + 2))
    [ "$(value weights_bytes)" = $((124439808 * 4)) ] || fail "GPT-2 has $(value weights_bytes) bytes of weights"
    grep -Eq '^peak_bytes=[0-9]+ \([1-9][0-9]*\.[0-9][0-9] GiB on dry-' out.txt &&
        awk '/^peak_bytes=/ && $2 != sprintf("(%.2f", substr($1, 12) / 1024 ^ 3) { exit 1 }' out.txt || fail "GPT-2's peak: $(cat out.txt)"
    [ "$(value optimizer_bytes)" = $((124439808 * 8)) ] || fail "its optimizer: $(value optimizer_bytes)"
    [ "$(value logits_bytes)" = $((8 * 1024 * 50257 * 4)) ] || fail "its logits: $(value logits_bytes)"
    # The parameter counts of GPT-2's other sizes are those of OpenAI's weights.
    for count in medium:354823168 large:774030080 xl:1557611200; do
        run "gpt2-${count%:*}" train_single --model "gpt2-${count%:*}" --vocabulary 50257 --global-batch 1 --dry-run
        checks=$((checks + 1))
        [ "$(value weights_bytes)" = $((${count#*:} * 4)) ] || fail "gpt2-${count%:*}: $(value weights_bytes) bytes of weights"
    done
    refuse 2 '--out has no effect: --dry-run' train_single --dry-run --out x
fi
tally dry_run
