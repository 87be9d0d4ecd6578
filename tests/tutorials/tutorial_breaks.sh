#!/bin/sh
# tutorial_breaks.sh BIN_DIR: every mistake that a tutorial program can make on purpose (--break=NAME) shows its
# symptom, which is absent without the mistake.
. "$(dirname "$0")/../programs/checks.sh"

says() { # 'REGULAR EXPRESSION': the last run printed such a line
    grep -qE -- "$1" out.txt || fail "no line \"$1\" from $what: $(cat out.txt)"
}
says_not() {
    ! grep -qE -- "$1" out.txt || fail "a line \"$1\" from $what: $(cat out.txt)"
}

# differ A B, agree A B: weights differ by more than rounding, or do not
differ() {
    checks=$((checks + 1))
    ! "$bin/compare_tensors" --tol 1e-4 "$1" "$2" >/dev/null 2>&1 || fail "$1 and $2 agree"
}
agree() {
    checks=$((checks + 1))
    "$bin/compare_tensors" --tol 1e-4 "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
}

short="--steps 30 --no-eval"

# ---- step 2: the mean of means -----------------------------------------------------------------------------
run 'step 1' "$bin/tutorial_01" $short --save whole
run 'seven shards' "$bin/tutorial_02" $short --shards 7 --save right
agree whole right
says 'rows=6 a_row_counts=1/60$'
run 'the mean of means' "$bin/tutorial_02" $short --shards 7 --break=mean-of-means --save wrong
differ whole wrong
says 'rows=6 a_row_counts=1/42$'
run 'the mean of equal means' "$bin/tutorial_02" $short --shards 4 --break=mean-of-means --save equal
agree whole equal # equal shards hide the mistake

# ---- step 3: another order of additions --------------------------------------------------------------------
for shards in 2 3; do
    run 'three threads' "$bin/tutorial_03" $short --shards $shards --save order
    run 'three threads again' "$bin/tutorial_03" $short --shards $shards --save again
    cmp order again || fail "two runs of step 3 differ"
    run 'the last shard first' "$bin/tutorial_03" $short --shards $shards --break=other-order --save other
    agree order other
    if [ "$shards" = 2 ]; then # a + b = b + a
        cmp order other || fail "the order of two shards makes a difference"
    else
        ! cmp -s order other || fail "the order of three shards makes no difference"
    fi
done

# ---- steps 4 and 5: DataParallel ---------------------------------------------------------------------------
run 'trained weights' "$bin/tutorial_01" --epochs 3 --no-eval --save trained
losses() { grep loss= out.txt >"$1"; } # saves the last run's losses
for devices in 1 2 3 7; do
    run 'forward' "$bin/tutorial_04" --devices $devices --epochs 1 --no-eval --log-every 1 --load-init trained
    losses forward$devices
    checks=$((checks + 1))
    cmp forward1 forward$devices || fail "$devices devices have other losses than one"
done
checks=$((checks + 1))
[ "$(wc -l <forward1)" = 25 ] || fail "not 25 losses: $(cat forward1)"
for mistake in first-rows other-order; do
    for devices in 1 3; do # on one device the mistake has no effect
        run "$mistake" "$bin/tutorial_04" --devices $devices --epochs 1 --no-eval --log-every 1 --load-init trained --break=$mistake
        losses wrong
        checks=$((checks + 1))
        if [ $devices = 1 ]; then cmp forward1 wrong; else awk -F= '$3 < 2 { exit 1 }' wrong; fi ||
            fail "$mistake on $devices devices: $(head -n 3 wrong)"
    done
done
run 'two devices' "$bin/tutorial_05" $short --weight-decay 0 --devices 2 --lr 0.04 --save half
run 'the mean' "$bin/tutorial_05" $short --weight-decay 0 --devices 2 --lr 0.08 --break=mean --save mean
cmp half mean || fail "the mean on two devices is not half of the learning rate"
run 'two devices' "$bin/tutorial_05" $short --devices 2 --save backward
run 'without the reduction' "$bin/tutorial_05" $short --devices 2 --break=no-reduce --save alone
says 'cpu:0 received_bytes=1200 '
differ backward alone

# ---- step 6: consequences of DataParallel ------------------------------------------------------------------
field() { sed -n "s/.*$1=\([-0-9.]*\).*/\1/p" out.txt | sed -n "${2}p"; } # field NAME LINE: from the last run
run 'a large output' "$bin/tutorial_06" --devices 2 --data synthetic:1x8x8:5000@120 --steps 2 --no-eval
[ "$(field peak_bytes 1)" -gt $(($(field peak_bytes 2) + 2400000)) ] || fail "device 0 is no fuller: $(cat out.txt)"
run 'a small last batch' "$bin/tutorial_06" --devices 8 --global-batch 64 --epochs 1 --no-eval
says 'shares=4.4.4.4.4.4.4.0$'
for rows in 2,60 1,30 1,60; do # DEVICES,ROWS: the memory of two devices equals one device's with half of the rows
    run 'batch norm' "$bin/tutorial_06" --model convnet --steps 1 --no-eval --devices ${rows%,*} --global-batch ${rows#*,}
    field 'running_mean.0.' 1 >>means.txt
done
[ "$(sed -n 1p means.txt)" = "$(sed -n 2p means.txt)" ] || fail "the running mean is not that of device 0"
[ "$(sed -n 1p means.txt)" != "$(sed -n 3p means.txt)" ] || fail "the running mean is that of all rows"

# ---- step 7: processes -------------------------------------------------------------------------------------
ranks() { # RANKS PROGRAM ...
    count=$1
    shift
    "$bin/ddprun" --nproc-per-node "$count" "$@"
}
run 'one rank prints' ranks 3 "$bin/tutorial_07" --steps 2 --no-eval
[ "$(grep -c loss= out.txt)" = 2 ] || fail "not two lines with a loss: $(cat out.txt)"
run 'every rank prints' ranks 3 "$bin/tutorial_07" --steps 2 --no-eval --break=every-rank-prints
[ "$(grep -c loss= out.txt)" = 6 ] || fail "not six lines with a loss: $(cat out.txt)"
run 'a barrier' ranks 2 "$bin/tutorial_07" --steps 2 --no-eval --save there
says 'the file is there'
run 'no barrier' ranks 2 "$bin/tutorial_07" --steps 2 --no-eval --save missing --break=no-barrier
says 'the file is not there'
# Two jobs with the same port, then each with its own.
mkfifo ready
port=$((20000 + $$ % 10000))
"$bin/ddprun" --nproc-per-node 1 --master-port $port sh -c 'echo up >ready; exec sleep 60' >/dev/null 2>&1 &
first=$!
read -r up <ready
refuse 1 'Address already in use' "$bin/ddprun" --nproc-per-node 1 --master-port $port true
run 'a port of its own' ranks 1 true
kill $first
wait $first || true
# Ctrl-C leaves no process.
timeout --foreground -s INT 1 "$bin/ddprun" --nproc-per-node 2 "$bin/tutorial_07" --epochs 100000 --save "$work/never" >/dev/null 2>err.txt || true
checks=$((checks + 1))
grep -q 'received SIGINT: ending all ranks' err.txt || fail "no word of the signal: $(cat err.txt)"
! pgrep -f "$work/never" >/dev/null || fail "a rank is left after SIGINT"

# ---- step 8: one rank's loss -------------------------------------------------------------------------------
run 'the gathered loss' ranks 4 "$bin/tutorial_08" $short --log-every 1 --save gathered
grep loss= out.txt >gathered.txt
run 'the loss of rank 0' ranks 4 "$bin/tutorial_08" $short --log-every 1 --save alone --break=local-loss
grep loss= out.txt >alone.txt
! cmp -s gathered.txt alone.txt || fail "rank 0's loss is that of all"
cmp gathered alone || fail "what is printed changes the weights"
run 'the loss of one process' "$bin/tutorial_02" $short --log-every 1 --shards 4
grep loss= out.txt | cmp - gathered.txt || fail "the gathered loss is not that of one process"

what='a deadlock' checks=$((checks + 1))
! ranks 2 "$bin/tutorial_08" --steps 1 --no-eval --break=deadlock >out.txt 2>&1 || fail "no rank times out"
says 'did not arrive within 2.0 s'

# ---- step 9: replicas that drift apart ---------------------------------------------------------------------
run 'replicas' ranks 3 "$bin/tutorial_09" $short
says '^replicas: equal$'
run 'no broadcast' ranks 3 "$bin/tutorial_09" $short --break=no-broadcast
says '^replicas: DIFFERENT in [1-9]'
run 'a forward beside the wrapper' ranks 3 "$bin/tutorial_09" $short --break=bypass
says '^replicas: DIFFERENT in [1-9]'
run '2 and 200' ranks 2 "$bin/tutorial_09_two_and_200"
says '^rank 1: weight once wrapped +2.00$'
[ "$(grep -c 'gradient after backward *2.00$' out.txt)" = 2 ] || fail "the first gradients: $(cat out.txt)"
[ "$(grep -c 'gradient after backward *200.00$' out.txt)" = 2 ] || fail "the second gradients: $(cat out.txt)"
says '^rank 1: weight after the step +198.00$'

# ---- step 10: the data of each rank -------------------------------------------------------------------------
run 'sixteen numbers' ranks 2 "$bin/tutorial_10_sixteen"
says '^rank 1 outputs +100 +60 +80 +50$'
says '^gathered +120 +90 +110 +130 +100 +60 +80 +50$'
firsts() { grep -c 'rank 0 begins with samples 44, 23, 2, 49$' out.txt; } # of two epochs
run 'set_epoch' ranks 2 "$bin/tutorial_10" --epochs 2 --no-eval --show
[ "$(firsts)" = 1 ] || fail "not one epoch of two begins with sample 44: $(cat out.txt)"
[ "$(grep -c ' 1500 of 1500 samples are seen, ' out.txt)" = 2 ] || fail "samples are missed: $(cat out.txt)"
run 'no set_epoch' ranks 2 "$bin/tutorial_10" --epochs 2 --no-eval --show --break=no-set-epoch
[ "$(firsts)" = 2 ] || fail "the epochs do not begin with the same samples: $(cat out.txt)"
run 'a seed per rank' ranks 2 "$bin/tutorial_10" --epochs 1 --no-eval --show --break=seed-per-rank
says ' 11[0-9][0-9] of 1500 samples are seen, ' # about three quarters

# ---- step 11: seeds, noise and the learning rate --------------------------------------------------------------
run 'noise' ranks 3 "$bin/tutorial_11" --steps 1 --no-eval --noise 0.1
[ "$(grep 'first noise' out.txt | sort -u -k 5 | wc -l)" = 3 ] || fail "ranks draw the same noise: $(cat out.txt)"
run 'the same noise' ranks 3 "$bin/tutorial_11" --steps 1 --no-eval --noise 0.1 --break=same-noise
[ "$(grep 'first noise' out.txt | sort -u -k 5 | wc -l)" = 1 ] || fail "ranks draw other noise: $(cat out.txt)"
run 'a schedule' ranks 4 "$bin/tutorial_11" --epochs 2 --no-eval --show
says '^epoch 1: .* lr=0.0400$'
run 'a fast schedule' ranks 4 "$bin/tutorial_11" --epochs 2 --no-eval --show --break=fast-schedule
says '^epoch 1: .* lr=0.0000$'
# Linear scaling keeps the accuracy within 0.01; the unscaled rate does not.
accuracy() { sed -n 's/^test_accuracy=0*\.\([0-9]*\)$/\1/p' out.txt; } # in units of 0.0001
run '60 rows in all' ranks 4 "$bin/tutorial_11"
small=$(accuracy)
run '60 rows each' ranks 4 "$bin/tutorial_11" --global-batch 240
unscaled=$(accuracy)
run '60 rows each, four times the rate' ranks 4 "$bin/tutorial_11" --global-batch 240 --lr 0.32 --warmup-steps 4
scaled=$(accuracy)
[ "$scaled" -gt $((small - 100)) ] || fail "the accuracy is not kept: $scaled after $small"
[ "$scaled" -gt $((unscaled + 200)) ] || fail "the old rate is as good: $unscaled, and $scaled"

# ---- step 12: messages and bytes ---------------------------------------------------------------------------
for buckets in 0,6 4096,3 100000,2 200000,1 1000000,1; do # BYTES,MESSAGES
    run 'buckets' ranks 2 "$bin/tutorial_12" $short --bucket-bytes ${buckets%,*}
    says "^each step: all_reduces=${buckets#*,} bytes=203304$"
    says '^replicas: equal$'
done
run 'the last bucket lost' ranks 2 "$bin/tutorial_12" $short --bucket-bytes 4096 --break=last-bucket-lost
says '^replicas: DIFFERENT in 2 of 6 parameters$'
what='other buckets' checks=$((checks + 1))
! ranks 2 "$bin/tutorial_12" $short --break=other-buckets >out.txt 2>&1 || fail "ranks with other buckets agree"
says 'ranks disagree: rank 0 runs all_reduce.F32, 50826, avg., rank 1 runs all_reduce.F32, 10, avg.'

# ---- step 13: the order of events --------------------------------------------------------------------------
gradients_before() { sed '/bucket 0 starts/,$d' out.txt | grep -c 'a gradient of' || true; }
run 'overlap' ranks 2 "$bin/tutorial_13" --steps 1 --no-eval --show --bucket-bytes 4096
[ "$(gradients_before)" = 2 ] || fail "the first bucket does not start after two gradients: $(cat out.txt)"
[ "$(sed '/backward is over/,$d' out.txt | grep -c starts)" = 3 ] || fail "a bucket starts after backward: $(cat out.txt)"
run 'no overlap' ranks 2 "$bin/tutorial_13" --steps 1 --no-eval --show --bucket-bytes 4096 --break=no-overlap
[ "$(gradients_before)" = 6 ] || fail "a bucket starts during backward: $(cat out.txt)"
says '^replicas: equal$' # the weights do not show the mistake
what='an order of its own' checks=$((checks + 1))
! ranks 2 "$bin/tutorial_13" $short --bucket-bytes 4096 --break=own-order >out.txt 2>&1 || fail "two orders agree"
says 'ranks disagree: rank 0 runs all_reduce.F32, 1290, avg., rank 1 runs all_reduce.F32, 16640, avg.'

# ---- step 14: the ring -------------------------------------------------------------------------------------
run 'the orders of a sum' ranks 3 "$bin/tutorial_14" $short --orders
for line in 'chunk 0: 16777216' 'chunk 1: 16777218' 'chunk 2: 16777216'; do says "^$line$"; done
says '^each step: rank 0 sends messages=4 bytes=271072$' # 2 (W - 1) chunks of a third
says '^replicas: equal$'
run 'chunks without numbers' ranks 5 "$bin/tutorial_14" $short --model toy --bucket-bytes 0
says '^replicas: equal$'
run 'a lost round' ranks 3 "$bin/tutorial_14" $short --break=lost-round
says '^replicas: DIFFERENT in 6 of 6 parameters$'
run 'all send first, and the messages are short' ranks 2 "$bin/tutorial_14" $short --break=send-first
says '^replicas: equal$'
what='all send first' checks=$((checks + 1))
! ranks 2 "$bin/tutorial_14" $short --hidden 1024,512 --break=send-first >out.txt 2>&1 || fail "long messages pass"
says 'did not arrive within 8.0 s'
run 'even ranks send first' ranks 2 "$bin/tutorial_14" --steps 3 --no-eval --hidden 1024,512
says '^replicas: equal$'
tally tutorial_breaks
