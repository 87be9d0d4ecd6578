#!/bin/sh
# training.sh BIN_DIR: the three training programs as programs.
#
# Resuming at any step continues bit for bit; invalid input gets one clear line and the right exit status and leaves no
# files; every program runs sensibly without arguments.
source=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/checks.sh"

# ---- resuming ----------------------------------------------------------------------------------------------
# 1,500 digits in batches of 60 are 25 steps per epoch: 31 and 44 are within the second epoch, 25 is its beginning.
resumes() { # NAME 'STOP ...' COMMAND...: the command without --steps
    name=$1 stops=$2
    shift 2
    "$@" --steps 57 --schedule constant --save "$name" >/dev/null 2>&1 || fail "$*"
    "$@" --steps 57 --schedule constant --save "$name-often" --save-every 7 >/dev/null 2>&1 || fail "$*"
    same "$name" "$name-often"
    for stop in $stops; do
        rm -f part*
        "$@" --steps "$stop" --schedule constant --save part >/dev/null 2>&1 || fail "$*"
        "$@" --steps 57 --schedule constant --resume part --save part >/dev/null 2>&1 ||
            fail "$* resumed at $stop"
        same "$name" part
    done
}
resumes single '1 25 31 44' "$bin/train_single" --model convnet --no-eval
resumes adamw '31' "$bin/train_single" --model mlp --optimizer adamw --lr 0.01 --augment
resumes dp '31' "$bin/train_dp" --devices 2 --model convnet --no-eval
resumes ddp '31' "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --model convnet

# PowerSGD carries errors and factors from step to step. The run is stopped after compression has begun (10), before it
# begins (31), and at the step where it begins (25), the end of the first epoch.
hook="train_ddp --model convnet --no-eval --comm-hook powersgd --powersgd-start"
resumes hook2 '31' "$bin/ddprun" --nproc-per-node 2 "$bin"/$hook 10
resumes hook3 '44' "$bin/ddprun" --nproc-per-node 3 "$bin"/$hook 31
for start in 25 31; do
    set -- "$bin/ddprun" --nproc-per-node 3 "$bin"/$hook $start --steps 57 --schedule constant --save cut
    "$@" --out "cut$start" --keep-epochs 1 >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
    mv cut whole # moved without the optimizer file that it names
    "$@" --resume "cut$start/model_00001.safetensors" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
    checks=$((checks + 1))
    "$bin/compare_tensors" --bitwise whole cut >cmp.txt || fail "cut at 25, start $start: $(cat cmp.txt)"
done
# A note tells if a resumed run cannot continue bit for bit: on other devices, without the hook, and from a run that had
# no hook.
goes_on() { # 'part of a line' CHECKPOINT COMMAND...
    checks=$((checks + 1))
    words=$1 from=$2
    shift 2
    "$@" --steps 60 --schedule constant --resume "$from" >out.txt 2>err.txt || fail "$*: $(cat err.txt)"
    [ "$(grep -c "$words.* not bit for bit" err.txt)" = 1 ] || fail "no \"$words\" from $*: $(cat err.txt)"
}
goes_on '2 ranks saved state of their own for powerSGD, and this run has 3: that state starts at zero' hook2 \
    "$bin/ddprun" --nproc-per-node 3 "$bin"/$hook 10
goes_on 'also holds powersgd.iteration' hook2 "$bin/train_single" --model convnet --no-eval
goes_on 'holds no state of powerSGD, which starts anew' ddp \
    "$bin/ddprun" --nproc-per-node 2 "$bin"/$hook 10
refuse 2 'powersgd.q.conv1.weight has not the shape' "$bin"/$hook 10 --powersgd-rank 2 --resume hook2
# Only the main rank gets --save: the other rank takes part nevertheless.
checks=$((checks + 1))
cat >one-saves.sh <<'END'
[ "$RANK" = 1 ] || set -- "$@" --save alone --out alone-out
exec "$@"
END
"$bin/ddprun" --nproc-per-node 2 sh one-saves.sh "$bin"/$hook 10 --steps 57 --schedule constant >out.txt 2>&1 ||
    fail "saving on one rank: $(cat out.txt)"
same hook2 alone

# SyncBatchNorm over three ranks computes one device's statistics, and can resume one device's checkpoint.
checks=$((checks + 1))
few="--model convnet --global-batch 48 --no-eval --schedule constant"
"$bin/train_single" $few --steps 6 --save whole >/dev/null 2>&1 || fail "train_single $few"
"$bin/train_single" $few --steps 3 --save parts >/dev/null 2>&1 || fail "train_single $few"
"$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" $few --steps 6 --sampler blocked --sync-batch-norm \
    --resume parts --save parts >out.txt 2>&1 || fail "--sync-batch-norm: $(cat out.txt)"
"$bin/compare_tensors" --tol 1e-5 whole parts >cmp.txt 2>&1 || fail "--sync-batch-norm: $(cat cmp.txt)"

# Gradients in the buckets and beside them give equal bits.
for view in '' --no-gradient-as-bucket-view; do
    "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" $few --steps 4 --bucket-cap-mb 0.01 $view --save "view$view" \
        >out.txt 2>&1 || fail "train_ddp $view: $(cat out.txt)"
done
same view view--no-gradient-as-bucket-view

# Resuming from a folder: the newest valid checkpoint is used, with a note about each skipped one.
from_folder() { # LINES 'PART OF ONE': resumes from the folder run, ends with the bits of `single`
    checks=$((checks + 1))
    rm -f part*
    "$bin/train_single" --model convnet --no-eval --steps 57 --schedule constant --resume run --save part \
        >/dev/null 2>err.txt || fail "--resume run: $(cat err.txt)"
    [ "$(grep -c '^skipped ' err.txt)" = "$1" ] || fail "not $1 lines of what was skipped: $(cat err.txt)"
    grep -q "$2" err.txt || fail "no \"$2\": $(cat err.txt)"
    same single part
}
one() { "$bin/train_single" --model convnet --no-eval --schedule constant "$@" >out.txt 2>err.txt; }
one --steps 31 --save-every 10 --out run || fail "a run with --out"
from_folder 0 'resumed run/last.safetensors at step 31'
printf X | dd of=run/last.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
from_folder 1 'resumed run/previous.safetensors at step 30'
refuse 2 'the file is damaged' one --resume run/last.safetensors
rm run/last.safetensors.30.*.optimizer
refuse 2 'no whole checkpoint; 2 damaged' one --resume run
refuse 2 'no whole checkpoint; 2 damaged' one --resume auto --out run

# auto: starts from scratch without a checkpoint; afterwards resumes. Rows of steps.csv up to the checkpoint are kept.
checks=$((checks + 1))
one --steps 31 --save-every 10 --out fresh --resume auto --log-every 1 || fail "auto, at first"
grep -q 'starting at step 0' err.txt || fail "auto does not say that it starts: $(cat err.txt)"
rm fresh/last.safetensors
one --steps 57 --out fresh --resume auto --log-every 1 || fail "auto, at last"
grep -q 'resumed fresh/previous.safetensors at step 30' err.txt || fail "auto: $(cat err.txt)"
same single fresh/last.safetensors
[ "$(cut -d, -f1 fresh/steps.csv | tr '\n' ' ')" = "step $(seq 0 56 | tr '\n' ' ')" ] ||
    fail "rows of steps.csv are missing or there twice"
# A new run in an old folder: no checkpoint of the old run remains.
one --steps 3 --out fresh || fail "a new run in an old folder"
one --steps 57 --out fresh --resume fresh || fail "resuming the new run"
grep -q 'resumed fresh/last.safetensors at step 3' err.txt || fail "the old run's: $(cat err.txt)"
refuse 2 '--save or --out' one --resume auto
mkdir empty-folder
refuse 2 'holds no checkpoint' one --resume empty-folder

# ---- records -----------------------------------------------------------------------------------------------
# Epochs count from 0 in every line, and in the names of --dump-images' files (segnet.sh).
run "two epochs" "$bin/train_single" --epochs 2 --log-every 1 --out records
checks=$((checks + 1))
[ "$(sed -n 's/^epoch=\([0-9]*\) test_loss.*/\1/p' out.txt | tr '\n' ' ')" = "0 1 " ] ||
    fail "the epochs of evaluations: $(grep ^epoch out.txt)"
[ "$(sed -n 's/^step=.* epoch=\([0-9]*\) .*/\1/p' out.txt | sort -u | tr '\n' ' ')" = "0 1 " ] ||
    fail "the epochs of steps: $(grep -o ' epoch=[^ ]*' out.txt | sort -u)"
# config.json describes the command, the machine and all options, also those not given.
for line in '"data": "digits"' "\"host\": \"$(uname -n)\"" "\"date\": \"$(date -u +%Y-%m-%d)T[0-9:]*Z\""; do
    checks=$((checks + 1))
    grep -q "^ *$line,\$" records/config.json || fail "no $line in config.json: $(cat records/config.json)"
done
checks=$((checks + 1))
commit=null
[ ! -e "$source/.git" ] || ! git -C "$source" rev-parse HEAD >out.txt 2>&1 || commit='[0-9a-f]{12}'
grep -Eq "\"commit\": \"?$commit(\+changes)?\"?,\$" records/config.json ||
    fail "not $commit: $(grep commit records/config.json)"
run "a model with data of its own" "$bin/train_single" --model segnet --steps 1 --no-eval --out dense
grep -q '"data": "shapes"' dense/config.json || fail "segnet's data: $(grep data dense/config.json)"

# ---- invalid input -----------------------------------------------------------------------------------------
one=$bin/train_single # from here on without options of its own
"$one" --steps 1 --no-eval --save good --save-init init >/dev/null 2>&1
mkdir idx cifar empty
head -c 100 init >short
printf 'not a tensor file at all' >garbage
printf '\377\377\377\377\377\377\377\177{}' >huge
printf '\000\000\010\003\000\000\352\140\000\000\000\010\000\000\000\010short' \
    >idx/train-images-idx3-ubyte
printf '\000\000\010\001\000\000\352\140' >idx/train-labels-idx1-ubyte
head -c 5000 /dev/zero >cifar/data_batch_1.bin

refuse 2 '--global-batch' "$one" --global-batch 0
refuse 2 '--nonsense' "$one" --nonsense
refuse 2 '--epochs' "$one" --epochs many
refuse 2 'vgg' "$one" --model vgg
refuse 2 'no/such/folder' "$one" --data no/such/folder
refuse 2 'empty' "$one" --data empty
mkdir programs
: >programs/train
refuse 2 'no data set in it' "$one" --data programs
refuse 2 'IDX file is truncated: header says 60000' "$one" --data idx
refuse 2 'data_batch_1.bin' "$one" --data cifar
refuse 2 'nowhere' "$one" --load-init nowhere
refuse 2 'short' "$one" --load-init short
refuse 2 'garbage' "$one" --load-init garbage
refuse 2 'huge' "$one" --load-init huge
refuse 2 'fc1.weight' "$one" --load-init init --hidden 7
refuse 2 'conv1.weight' "$one" --load-init init --model convnet
refuse 2 'is no checkpoint' "$one" --resume init
refuse 2 'made with --seed 0, this run has 5' "$one" --resume good --seed 5
# A checkpoint of another model: the error names a weight, not an optimizer tensor.
refuse 2 'good: holds another model: fc1.weight is F32 [256, 64] in the file and F32 [7, 64] in this model' \
    "$one" --resume good --hidden 7
refuse 2 'fc2.weight is F32 [128, 256] in the file and F32 [10, 256] in this model' \
    "$one" --resume good --hidden 256
refuse 2 'there is no fc4.weight in the file, in this model it is [10, 10]' \
    "$one" --resume good --hidden 256,128,10
refuse 2 'there is no conv1.weight in the file, in this model it is [16, 1, 3, 3]' \
    "$one" --resume good --model convnet
refuse 2 'was written by optimizer sgd, this run uses adamw' "$one" --resume good --optimizer adamw
refuse 2 'was written by optimizer sgd, this run uses adam' "$one" --resume good --optimizer adam
rm good.*.optimizer
refuse 2 'optimizer' "$one" --resume good
refuse 2 '--dump-step' "$one" --dump-grads g --dump-step x
refuse 1 'the loss is' "$one" --lr 1e6 --schedule constant --model mlp --epochs 3
refuse 77 'cuda' "$one" --device cuda
refuse 2 'cannot make the folder' "$one" --out /proc/nowhere
refuse 2 'device' "$bin/train_dp" --device-ids 0,0
refuse 2 '--amp' "$one" --amp fp8
refuse 2 '--comm-hook powersgd: with --amp fp16' "$bin/train_ddp" --comm-hook powersgd --amp fp16
refuse 2 '--tf32 is for --device cuda, not cpu' "$one" --tf32 --steps 1
refuse 2 '--cuda-graph is for --device cuda, not cpu' "$bin/train_dp" --cuda-graph --steps 1
refuse 2 'a recorded step cannot have --sync-batch-norm' "$bin/train_ddp" --cuda-graph --sync-batch-norm

# Options that others make ineffective: named before the first step. (Of pixels: segnet.sh.)
useless() { # OPTION 'why' COMMAND...
    option=$1 why=$2
    shift 2
    refuse 2 "$option has no effect: $why" "$@"
}
useless --hidden 'only --model mlp' "$one" --model convnet --hidden 256,128
useless --augment 'it moves the pixels' "$one" --model toy --augment
useless --epochs '--steps says' "$one" --steps 2 --epochs 10
useless --momentum 'adam and adamw have moments' "$one" --optimizer adamw --momentum 0.9
useless --nesterov 'it is a momentum of --optimizer sgd' "$one" --optimizer adamw --nesterov
useless --nesterov 'it is a momentum of --optimizer sgd' "$one" --optimizer adam --nesterov
useless --betas 'they are of --optimizer adam' "$one" --betas 0.9,0.99
useless --eps 'it is of --optimizer adam' "$one" --eps 1e-7
useless --loss '--data has numbers, not classes' "$one" --model toy --loss bce
useless --pos-weight 'it is of --loss bce' "$one" --pos-weight 2
useless --gamma 'it is of --schedule step' "$one" --gamma 0.5
useless --step-every 'it is of --schedule step' "$one" --schedule cosine --step-every 5
useless --power 'it is of --schedule polynomial' "$one" --schedule step --power 2
useless --warmup-start 'there is no warm-up without --warmup-steps' "$one" --warmup-start 0.1
useless --save-every 'it needs --save or --out' "$one" --save-every 5
useless --dump-step 'it needs --dump-grads' "$one" --dump-step 0
useless --devices '--device-ids lists' "$bin/train_dp" --devices 2 --device-ids 0,1
useless --powersgd-rank 'it needs --comm-hook powersgd' "$bin/train_ddp" --powersgd-rank 1
useless --powersgd-start 'it needs --comm-hook powersgd' "$bin/train_ddp" --comm-hook fp16 --powersgd-start 9
useless --find-unused-parameters '--static-graph' "$bin/train_ddp" --static-graph --find-unused-parameters
useless --sync-batch-norm 'the model has no batch norm' "$bin/train_ddp" --model mlp --sync-batch-norm
useless --no-broadcast-buffers 'the model has no buffers' "$bin/train_ddp" --model mlp --no-broadcast-buffers
useless --master-port '--standalone takes' "$bin/ddprun" --standalone --master-port 29511 true
useless --master-addr '--standalone takes' "$bin/ddprun" --standalone --master-addr 127.0.0.1 true
refuse 2 '--warmup-steps 11: the run has only 10 steps' "$one" --steps 10 --warmup-steps 11
refuse 2 "--betas: '0.9,1' is out of range" "$one" --optimizer adam --betas 0.9,1
refuse 2 "--betas: '0.9' is not two numbers" "$one" --optimizer adam --betas 0.9
refuse 2 '--nesterov: Nesterov momentum requires a momentum' "$one" --nesterov --momentum 0
# An option with its default value, or with some effect, is accepted.
checks=$((checks + 1))
"$one" --model convnet --steps 2 --warmup-steps 2 --no-eval --dump-grads kept >/dev/null 2>err.txt ||
    fail "defaults are refused: $(cat err.txt)"
PET_MASTER_PORT=29511 "$bin/ddprun" --standalone true 2>err.txt || fail "the environment's: $(cat err.txt)"
[ ! -e g ] || fail "a refused run left a file"

# Under ddprun an error of all ranks is printed once, and ddprun's report names the first rank.
checks=$((checks + 1)) status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --global-batch 61 >out.txt 2>err.txt || status=$?
[ "$status" = 2 ] || fail "status $status of an indivisible batch: $(cat err.txt)"
[ "$(grep -c 'not divisible' err.txt)" = 1 ] || fail "$(cat err.txt)"
grep -q '^ddprun: rank [01] .* exited with status 2 ' err.txt || fail "$(cat err.txt)"

# A batch smaller than the number of devices leaves some idle, with a note.
checks=$((checks + 1))
"$bin/train_dp" --devices 4 --global-batch 2 --steps 2 --no-eval >/dev/null 2>err.txt || fail "batch 2 on 4"
grep -q 'idle' err.txt || fail "no word about idle devices: $(cat err.txt)"

# ---- the model as a table -----------------------------------------------------------------------------------
for program in train_single train_dp "ddprun --nproc-per-node 2 train_ddp"; do
    checks=$((checks + 1))
    "$bin"/$program --summary --model convnet >out.txt 2>err.txt || fail "$program --summary: $(cat err.txt)"
    [ "$(tail -n 1 out.txt)" = "6138 parameters (24552 bytes), 98 elements in buffers" ] || fail "$(cat out.txt)"
    [ "$(grep -c '^conv2  *Conv2d  *weight \[32, 16, 3, 3\]  *4608$' out.txt)" = 1 ] || fail "$(cat out.txt)"
done

# ---- no arguments --------------------------------------------------------------------------------------------
nothing() { # COMMAND...: succeeds and prints something
    checks=$((checks + 1))
    timeout 300 "$@" >out.txt 2>err.txt </dev/null || fail "$*: $(cat err.txt)"
    [ -s out.txt ] || fail "$* printed nothing"
}
for program in train_single train_dp train_ddp ddprun; do nothing "$bin/$program"; done
# The measuring programs take long with their defaults (defaults.sh): here they run one small round. Sanitizers' builds
# have no bench_allocations.
if [ -x "$bin/bench_allocations" ]; then
    nothing "$bin/bench_allreduce" --iterations 2 --max-bytes 65536
    nothing "$bin/bench_step" --rounds 1 --width 256
    nothing "$bin/bench_scaling" --rounds 1 --model toy
fi

tally training
