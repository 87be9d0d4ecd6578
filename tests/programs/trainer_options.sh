#!/bin/sh
# trainer_options.sh BIN_DIR: options that change the trainer's behaviour, each compared with a run that shows its
# effect: evaluation alone, parts of a step, clipping, the order of samples, checkpoints by epoch, notes when resuming,
# the printed loss, and outputs that cannot be written.
. "$(dirname "$0")/checks.sh"
PATH=$bin:$PATH # commands are stored in variables, and the folder's name may have spaces
single="train_single --log-every 1"
rank0='\[0\]: '

says() { # 'PART OF A LINE': stderr has such a line
    checks=$((checks + 1))
    grep -q -- "$1" err.txt || fail "no \"$1\": $(cat err.txt)"
}
within() { # TOLERANCE A B
    checks=$((checks + 1))
    "$bin/compare_tensors" --tol "$1" "$2" "$3" >cmp.txt 2>&1 || fail "$2 and $3: $(tail -n 1 cmp.txt)"
}
quiet() { # 'PART OF A LINE': stderr has no such line
    checks=$((checks + 1))
    ! grep -q -- "$1" err.txt || fail "\"$1\" is said: $(cat err.txt)"
}
differ() { # A B: the bits differ: the option has an effect
    checks=$((checks + 1))
    ! "$bin/compare_tensors" --bitwise "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2 are the same"
}
loss() { sed -n "s/^step=$1 .* loss=\([^ ]*\) .*/\1/p" out.txt; }

# ---- outputs that cannot be written are detected before the first step -------------------------------------
for option in --trace --save --save-init --dump-grads --out; do
    refuse 2 "'': a" $single --steps 3 --no-eval $option ''
    [ ! -s out.txt ] || fail "$option '': there were steps before it was refused"
done

# ---- evaluation alone --------------------------------------------------------------------------------------
run "a run to evaluate" $single --epochs 2 --model convnet --save last --save-init init --out run
last=$(grep '^epoch=1 ' out.txt | cut -d ' ' -f 2-)
for program in train_single "train_dp --devices 3" \
    "ddprun --nproc-per-node 3 train_ddp"; do
    run "--evaluate" $program --model convnet --evaluate last
    checks=$((checks + 1))
    [ "$(cat out.txt)" = "evaluated=last $last" ] || fail "$program: $(cat out.txt), not $last"
done
run "weights alone" $single --model convnet --evaluate init --out evaluated
checks=$((checks + 1))
grep -q '^evaluated=init test_loss=2' out.txt || fail "the initial weights: $(cat out.txt)"
grep -q '"test_accuracy": 0' evaluated/summary.json || fail "no accuracy in summary.json"
refuse 2 "last" $single --model mlp --evaluate last
refuse 2 "--steps has no effect" $single --model convnet --evaluate last --steps 3
refuse 2 "--save has no effect" $single --model convnet --evaluate last --save other

# ---- checkpoints by epoch ----------------------------------------------------------------------------------
few="--epochs 4 --hidden 16 --schedule constant"
run "--keep-epochs" $single $few --out kept --keep-epochs 2
checks=$((checks + 1))
[ "$(cd kept && echo model_*.safetensors)" = "model_00002.safetensors model_00004.safetensors" ] ||
    fail "kept: $(ls kept)"
same kept/model_00004.safetensors kept/last.safetensors
run "from the second epoch" $single $few --resume kept/model_00002.safetensors --save second
same kept/last.safetensors second
run "another run in the folder" $single $few --seed 3 --out kept --keep-epochs 3
checks=$((checks + 1))
[ "$(cd kept && echo model_*.safetensors)" = model_00003.safetensors ] || fail "taken over: $(ls kept)"
# A run that resumes a checkpoint of its own folder keeps the folder's other checkpoints; resuming from elsewhere starts
# another run.
cp -R kept mine
run "on in the folder" sh -c 'cd mine && "$0" "$@"' $single $few --epochs 5 --seed 3 --resume last.safetensors --out .
checks=$((checks + 1))
[ -e mine/model_00003.safetensors ] && [ -e mine/previous.safetensors ] || fail "its own: $(ls mine)"
run "from elsewhere" $single $few --epochs 5 --resume second --out mine --no-eval
checks=$((checks + 1))
[ "$(cd mine && echo *.safetensors)" = last.safetensors ] || fail "another run's: $(ls mine)"
# --save-every may save after an epoch's last batch, before the epoch's end is processed.
two="--epochs 2 --hidden 16 --schedule constant --no-eval"
run "an epoch" $single $two --epochs 1 --save-every 25 --out ends
run "on from its last batch" $single $two --resume ends/previous.safetensors --save on
run "two epochs at once" $single $two --save at-once
same on at-once
refuse 2 "--keep-epochs has no effect: it needs --out" $single --keep-epochs 2

# ---- one of them -------------------------------------------------------------------------------------------
run "a batch, a step" "$bin/train_single" --global-batch 1500 --steps 1 --no-eval
says "; 1 batch per epoch, 1 step$"
says "; 1 device ("
run "two steps" "$bin/train_single" --steps 2 --no-eval
says "; 25 batches per epoch, 2 steps$"
refuse 2 "--node-rank 1: nodes are counted from 0, and there is 1" "$bin/ddprun" --node-rank 1 true

# ---- notes when resuming -----------------------------------------------------------------------------------
run "a finished run" $single $few --resume second
says "the run is finished: 100 of 100 steps done"
refuse 2 "second: stands at step 100, and this run ends at step 50 -- give larger" $single --hidden 16 --schedule constant --steps 50 --resume second
run "with other options" $single --epochs 5 --hidden 16 --schedule step --lr 0.02 --momentum 0.5 \
    --weight-decay 0.02 --resume second
says "second was made with --lr 0.08, this run has 0.02: it continues with the new value"
says "second was made with --schedule constant, this run has step: it continues with the new value"
says "second was made with --momentum 0.9, this run has 0.5: it continues with the new value"
says "second was made with --weight-decay 0.01, this run has 0.02: it continues with the new value"
says "second was made with steps in all 100, this run has 125: it continues with the new value"
# Resuming a resumed run: the second checkpoint has the settings of the run that wrote it.
other="--hidden 16 --schedule step --lr 0.02 --momentum 0.5 --weight-decay 0.02 --no-eval"
run "two devices" train_dp --devices 2 $other --steps 110 --resume second --save third
says "second was made with devices 1, this run has 2"
run "two devices again" train_dp --devices 2 $other --steps 110 --resume third --save fourth
quiet "was made with"
run "three devices" train_dp --devices 3 $other --epochs 5 --resume fourth
says "fourth was made with devices 2, this run has 3"
says "fourth was made with steps in all 110, this run has 125: it continues with the new value"
refuse 2 "was written by optimizer sgd, this run uses adamw" $single --epochs 5 --hidden 16 --optimizer adamw \
    --resume second
refuse 2 "--resume brings its own weights: --load-init would be overwritten" $single $few --resume second --load-init second
run "adam" $single $few --optimizer adam --betas 0.8,0.99 --save adam
run "adam with other betas" $single --epochs 5 --hidden 16 --optimizer adam --betas 0.8,0.999 --resume adam
says "adam was made with --betas 0.8,0.99, this run has 0.8,0.999: it continues with the new value"
run "adam with its betas" $single --epochs 5 --hidden 16 --schedule constant --optimizer adam --betas 0.8,0.99 --resume adam
checks=$((checks + 1))
! grep -q 'betas\|beta2' err.txt || fail "Adam's factors have not changed: $(cat err.txt)"
run "the same options" $single $few --resume kept/last.safetensors --seed 3
checks=$((checks + 1))
! grep -q 'was made with' err.txt || fail "nothing has changed: $(cat err.txt)"
refuse 2 "was made with --sampler-seed 0, this run has 9" $single --epochs 5 --hidden 16 --sampler-seed 9 \
    --resume second

# ---- threads of a device's products ------------------------------------------------------------------------
# The same number of threads gives the same bits; another number divides products differently, and some of OpenBLAS's
# kernels then round differently. The description of the BLAS in config.json contains the number.
few="--model mlp --hidden 97,301 --steps 6 --no-eval"
run "one thread" $single $few --save threads-1
for threads in 2 3; do
    run "--threads $threads" $single $few --threads $threads --save threads-$threads --out threads
    checks=$((checks + 1))
    grep -q "\"blas\": .* $threads threads," threads/config.json || fail "--threads $threads: $(cat threads/config.json)"
    within 1e-5 threads-1 threads-$threads
    run "again" $single $few --threads $threads --save again
    same threads-$threads again
done
run "ranks of two threads" ddprun --nproc-per-node 2 train_ddp --steps 6 --sampler blocked --threads 2
says "bits: not promised against DataParallel (products on several threads may round otherwise)"
refuse 2 "--threads is for one device per process: the 2 of this one" train_dp --devices 2 --threads 2
refuse 2 "--threads is for --device cpu, not ref:0" $single --device ref --threads 2
refuse 2 "--threads 1000: this BLAS gives no product 1000 threads" $single --threads 1000

# ---- parts of a step ---------------------------------------------------------------------------------------
for parts in 1 3; do
    run "$parts parts" $single --steps 12 --no-eval --accumulate-steps $parts --save parts$parts --out acc$parts
    losses="${losses:-} $(loss 11)"
done
checks=$((checks + 1))
[ "$(echo $losses | tr ' ' '\n' | cut -c 1-6 | sort -u | wc -l)" = 1 ] || fail "losses: $losses"
within 1e-6 parts1 parts3
differ parts1 parts3
run "ddp, 3 parts" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --sampler blocked --steps 12 --no-eval \
    --accumulate-steps 3 --save ddp3
run "dp, 3 parts" "$bin/train_dp" --devices 2 --steps 12 --no-eval --accumulate-steps 3 --save dp3
within 1e-6 parts3 ddp3
within 1e-6 dp3 ddp3
# A rank's buckets are reduced once per step, for any number of parts; its activations are those of one part.
for parts in 1 4; do
    run "$parts parts, moved" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --steps 10 --no-eval \
        --model convnet --global-batch 120 --accumulate-steps $parts --out moved$parts
done
checks=$((checks + 1))
number() { sed -n "s/.*\"$1\": \([0-9.]*\).*/\1/p" "$2"; }
[ "$(number moved_bytes_per_step moved1/summary.json)" = "$(number moved_bytes_per_step moved4/summary.json)" ] ||
    fail "parts are communicated one by one"
awk -v moved="$(number moved_bytes_per_step moved1/summary.json)" -v w="$(number parameters moved1/summary.json)" \
    'BEGIN { exit !(moved >= 2 * 4 * w && moved < 9 * w) }' || # a rank reads half of the gradients and half of the sums
    fail "not twice the gradient's bytes: $(cat moved1/summary.json)"
awk -v a="$(number peak_bytes_device0 moved1/summary.json)" -v b="$(number peak_bytes_device0 moved4/summary.json)" \
    'BEGIN { exit !(b < 0.6 * a) }' || fail "four parts take as much memory as one"
refuse 2 "a device has 30 of --global-batch 60" "$bin/train_dp" --devices 2 --accumulate-steps 31

# ---- clipped gradients: equal norms and bits everywhere ----------------------------------------------------
clip="--steps 12 --no-eval --clip-grad-norm 0.3"
run "single, clipped" $single $clip --save clip1
run "dp, clipped" "$bin/train_dp" --devices 4 $clip --save clip2
run "ddp, clipped" "$bin/ddprun" --nproc-per-node 4 "$bin/train_ddp" --sampler blocked $clip --save clip4
differ parts1 clip1
same clip2 clip4
within 1e-6 clip1 clip2
run "clipping far away" $single --steps 12 --no-eval --clip-grad-norm 1e9 --save unclipped
same parts1 unclipped

# ---- the order of the samples ------------------------------------------------------------------------------
run "1500 samples in 23 batches of 64" $single --epochs 1 --global-batch 64 --drop-last --no-eval --save drop1
checks=$((checks + 1))
[ "$(wc -l <out.txt)" = 23 ] || fail "not 23 steps: $(tail -n 1 out.txt)"
run "dp, dropped" "$bin/train_dp" --devices 2 --epochs 2 --global-batch 64 --drop-last --no-eval --save drop2
run "ddp, dropped" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --sampler blocked --epochs 2 \
    --global-batch 64 --drop-last --no-eval --save drop3
same drop2 drop3
run "interleaved, dropped" "$bin/ddprun" --nproc-per-node 4 "$bin/train_ddp" --epochs 1 --log-every 1 \
    --global-batch 64 --drop-last --no-eval --save drop4
checks=$((checks + 1))
[ "$(wc -l <out.txt)" = 23 ] || fail "interleaved, not 23 steps: $(tail -n 1 out.txt)"
within 1e-5 drop1 drop4 # every step has the same samples
refuse 2 "no batch is left" $single --global-batch 2000 --drop-last

run "seed 5" $single --seed 5 --steps 30 --no-eval --save seed5 --save-init init5
run "order 5 from other weights" $single --seed 1 --sampler-seed 5 --load-init init5 --steps 30 --no-eval \
    --save order5
within 0 seed5 order5
run "order 1" $single --seed 1 --load-init init5 --steps 30 --no-eval --save order1
differ seed5 order1

# ---- --augment: a picture of 12 x 12 pixels is cropped at 9 x 9 positions, flipped or not ------------------
mkdir one
for split in train t10k; do
    printf '\0\0\010\003\0\0\0\001\0\0\0\014\0\0\0\014' >one/$split-images-idx3-ubyte
    awk 'BEGIN { for (i = x = 0; i < 144; i++) { x = (x * 75 + 74) % 65537; printf "%c", 33 + x % 90 } }' >>one/$split-images-idx3-ubyte
    printf '\0\0\010\001\0\0\0\001\001' >one/$split-labels-idx1-ubyte
done
run "one picture" $single --data one --hidden 8 --global-batch 1 --augment --lr 0 --momentum 0 --weight-decay 0 \
    --no-eval --steps 2500
checks=$((checks + 1))
places=$(sed -n 's/.* loss=\([^ ]*\) .*/\1/p' out.txt | sort -u | wc -l)
[ "$places" = $((9 * 9 * 2)) ] || fail "--augment makes $places pictures of one, not 162"

# ---- --dump-step: first and last step, several steps with {step} in the name --------------------------------
three="$single --steps 3 --no-eval"
refuse 2 "--dump-step 3: the run ends with step 2" $three --dump-grads 'g{step}' --dump-step 0,3
refuse 2 "for several steps the name needs {step}" $three --dump-grads g --dump-step 0,2
refuse 2 "--dump-step 0,,2: expected steps like 0,1,10" $three --dump-grads 'g{step}' --dump-step 0,,2
run "two steps' gradients" $three --dump-grads 'g{step}x' --dump-step 0,2 --warmup-steps 1 --warmup-start 0.5
checks=$((checks + 1))
[ "$(ls | grep '^g[0-9{]' | paste -sd ' ' -)" = "g0x g2x" ] || fail "gradients of steps 0 and 2: $(ls | grep '^g')"

# ---- the printed loss is the trained loss -----------------------------------------------------------
# Rank r's rows of the first batch are batch r of a run that does not learn. Ranks have different numbers of labelled
# pixels, so that the mean over all pixels differs from the mean of local means.
seg="--model segnet --data shapes:16x16@40 --no-shuffle --lr 0 --momentum 0 --weight-decay 0 --no-eval"
run "each rank's rows" $single $seg --steps 2 --global-batch 4 --out means
run "the average of means" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $seg --steps 1 --global-batch 8 \
    --sampler blocked --out average
run "the mean over all" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $seg --steps 1 --global-batch 8 \
    --sampler blocked --normalize global --out all
checks=$((checks + 1))
column() { # NAME FILE
    awk -F , -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' "$2"
}
{ column loss means/steps.csv && column loss average/steps.csv && column loss all/steps.csv; } | awk '
    { x[NR] = $1; if (length($1) >= 10) exact++ } # 9 digits, the last of which may be 0
    END {
        mean = (x[1] + x[2]) / 2
        if (!exact) print "fewer than 9 digits"
        if (NR != 4 || x[3] - mean > 1e-7 || mean - x[3] > 1e-7) print x[3] " is not the mean " mean
        if (x[4] - mean < 1e-5 && mean - x[4] < 1e-5) print "both means are alike: nothing is shown"
    }' >wrong.txt
[ ! -s wrong.txt ] || fail "$(cat wrong.txt)"

# ---- PowerSGD announces what it compresses, and refuses to compress nothing --------------------------------
power="train_ddp --comm-hook powersgd --no-eval"
refuse 2 "--powersgd-start 1000: the run ends after step 249" $power
refuse 2 "--powersgd-start 23: the run ends after step 22" $power --epochs 1 --global-batch 64 --drop-last \
    --powersgd-start 23
run "a start in the last step" $power --epochs 1 --global-batch 64 --drop-last --powersgd-start 22
# 256 x 64, 128 x 256 and 10 x 128 become 320, 384 and 138 numbers; 394 numbers of biases are not compressed.
says "powersgd: compresses 3 of 6 tensors from step 22 on; 41.1 times less travels then"
run "nothing to compress" $power --hidden 4 --powersgd-rank 4 --steps 5 --powersgd-start 2
says "powersgd: none of 4 tensors is a matrix that --powersgd-rank 4 would make 2 times smaller"
run "no hook" "$bin/train_ddp" --steps 2 --no-eval
checks=$((checks + 1))
! grep -q powersgd err.txt || fail "powersgd speaks without being asked"

# ---- devices without rows, and repeated starts ------------------------------------------------------------------
run "10 rows on 4 devices: 3, 3, 3, 1" train_dp --devices 4 --global-batch 10 --steps 1 --no-eval
quiet idle
run "9 rows on 4 devices: 3, 3, 3" train_dp --devices 4 --global-batch 9 --steps 1 --no-eval
says 'note: each batch, 9 rows on 4 devices: 3 chunks of at most 3, 1 device idle$'
six="--model toy --data synthetic:10:5@1006 --devices 4 --global-batch 10 --steps 1 --no-eval"
run "1006 rows, 10 at a time" train_dp $six
says "note: the epoch's last batch, 6 rows on 4 devices: 3 chunks of at most 2, 1 device idle\$"
run "the last batch is dropped" train_dp $six --drop-last
quiet idle
alone='3 processes were started, and each of them trains the whole model on its own'
run "train_single, three times" ddprun --nproc-per-node 3 train_single --steps 1 --no-eval
checks=$((checks + 1))
[ "$(grep -c "$alone" err.txt)" = 1 ] || fail "not said once: $(cat err.txt)"
run "the first of three by mpirun" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3 train_dp --steps 1 --no-eval
says "$alone -- for one training by all of them use train_ddp\$"
run "the second" env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 train_single --steps 1 --no-eval
quiet "processes were started"
run "the first of three by PMI" env PMI_RANK=0 PMI_SIZE=3 train_dp --steps 1 --no-eval
says "$alone"
run "the first of three by srun" env SLURM_PROCID=0 SLURM_NTASKS=3 SLURM_STEP_ID=0 train_dp --steps 1 --no-eval
says "$alone"
run "a batch script of three tasks" env SLURM_PROCID=0 SLURM_NTASKS=3 train_dp --steps 1 --no-eval
quiet "started"
run "one task of mpirun" env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 train_dp --steps 1 --no-eval
quiet "started"
run "one model in three processes" ddprun --nproc-per-node 3 train_ddp --steps 1 --no-eval
quiet "processes were started"
tally trainer_options
