#!/bin/sh
# training.sh BIN_DIR: what the three training programs promise as programs.
#
# Resuming anywhere continues bit for bit; bad input gets one clear line, the right exit status and leaves
# nothing behind; every program does something sensible without arguments.
set -eu
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
checks=0 failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# refuse STATUS 'part of the message' COMMAND...: the command must end with that status, with exactly one
# line that begins with "error: " and contains the words.
refuse() {
    checks=$((checks + 1))
    wanted=$1 words=$2
    shift 2
    status=0
    "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted: $*: $(cat err.txt)"
    [ "$(grep -c '^error: ' err.txt)" = 1 ] || fail "not one error line: $*: $(cat err.txt)"
    grep '^error: ' err.txt | grep -qF -- "$words" || fail "no \"$words\" from $*: $(cat err.txt)"
}

same() { # A B: equal bits, in all tensors of both pairs of files
    checks=$((checks + 1))
    "$bin/compare_tensors" --bitwise "$1" "$2" >cmp.txt 2>&1 || fail "$1 and $2: $(tail -n 1 cmp.txt)"
    "$bin/compare_tensors" --bitwise "$1".*.optimizer "$2".*.optimizer >cmp.txt 2>&1 ||
        fail "the optimizer states of $1 and $2: $(tail -n 1 cmp.txt)"
}

# ---- resuming ----------------------------------------------------------------------------------------------
# 1,500 digits in batches of 60 are 25 steps per epoch: 31 and 44 lie inside the second epoch, 25 between.
resumes() { # NAME 'STOP ...' COMMAND...: the program and its fixed options
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

# ---- bad input ---------------------------------------------------------------------------------------------
one=$bin/train_single
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
refuse 2 'IDX file is truncated: header says 60000' "$one" --data idx
refuse 2 'data_batch_1.bin' "$one" --data cifar
refuse 2 'nowhere' "$one" --load-init nowhere
refuse 2 'short' "$one" --load-init short
refuse 2 'garbage' "$one" --load-init garbage
refuse 2 'huge' "$one" --load-init huge
refuse 2 'fc1.weight' "$one" --load-init init --hidden 7
refuse 2 'conv1.weight' "$one" --load-init init --model convnet
refuse 2 'is no checkpoint' "$one" --resume init
refuse 2 'seed' "$one" --resume good --seed 5
rm good.*.optimizer
refuse 2 'optimizer' "$one" --resume good
refuse 2 '--dump-step' "$one" --dump-grads g --dump-step x
refuse 1 'the loss is' "$one" --lr 1e6 --schedule constant --model mlp --epochs 3
refuse 77 'cuda' "$one" --device cuda
refuse 2 'cannot make the folder' "$one" --out /proc/nowhere
refuse 2 'device' "$bin/train_dp" --device-ids 0,0
[ ! -e g ] || fail "a refused run left a file"

# Under ddprun every rank says what it met, and ddprun's report says which was first.
checks=$((checks + 1)) status=0
"$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --global-batch 61 >out.txt 2>err.txt || status=$?
[ "$status" = 2 ] || fail "status $status of an indivisible batch: $(cat err.txt)"
grep -q '^ddprun: rank [01] .* exited with status 2 .*not divisible' err.txt || fail "$(cat err.txt)"

# A batch smaller than the number of devices leaves some idle and says so.
checks=$((checks + 1))
"$bin/train_dp" --devices 4 --global-batch 2 --steps 2 --no-eval >/dev/null 2>err.txt || fail "batch 2 on 4"
grep -q 'idle' err.txt || fail "no word about idle devices: $(cat err.txt)"

# ---- no arguments --------------------------------------------------------------------------------------------
for program in train_single train_dp train_ddp ddprun bench_allreduce bench_step bench_scaling; do
    checks=$((checks + 1))
    timeout 60 "$bin/$program" >out.txt 2>err.txt </dev/null || fail "$program: $(cat err.txt)"
    [ -s out.txt ] || fail "$program printed nothing"
done

echo "training: $checks checks, $failures failures"
[ "$failures" = 0 ]
