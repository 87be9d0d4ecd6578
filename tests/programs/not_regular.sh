#!/bin/sh
# not_regular.sh BIN_DIR: a path that is not a regular file is refused at once wherever a program reads a file. The
# FIFOs have no writer: a program that opens one like a file blocks until `timeout` ends it, with 124.
. "$(dirname "$0")/checks.sh"

run 'weights' "$bin/train_single" --steps 1 --no-eval --save weights.safetensors --out run
mkdir folder tokens idx cifar pictures dumps
mkfifo fifo
ln -s /dev/zero device
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")' || exit 77
head -c 4000 /dev/zero >tokens/train.bin

# refused KIND PLACE COMMAND...: PLACE becomes a file of this kind, which the command must refuse.
refused() {
    kind=$1 place=$2 status=0
    shift 2
    checks=$((checks + 1))
    rm -rf "$place"
    ln -s "$PWD/$kind" "$place"
    timeout 30 "$@" >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = 2 ] || fail "status $status, not 2, for a $kind: $*: $(cat err.txt)"
    named=$kind
    [ "$kind" != fifo ] || named=FIFO
    grep -q "^error: .*$(basename "$place"): is a $named, not a regular file$" err.txt || fail "$* says of a $kind: $(cat err.txt)"
}

# The files of a data set, in reading order.
for kind in fifo folder socket device; do
    refused $kind text.txt "$bin/train_single" --model gpt --data text.txt
    refused $kind text.txt.gz "$bin/train_single" --model gpt --data text.txt.gz
    refused $kind tokens/val.bin "$bin/train_single" --model gpt --data tokens
    refused $kind idx/train-images-idx3-ubyte "$bin/train_single" --data idx
    refused $kind cifar/data_batch_1.bin "$bin/train_single" --data cifar
    refused $kind weights "$bin/train_single" --load-init weights
    refused $kind weights "$bin/train_ddp" --evaluate weights
    refused $kind weights "$bin/compare_tensors" weights.safetensors weights
    refused $kind run/trace.json "$bin/merge_traces" merged.json run/trace.json
    refused $kind dumps/flight_world_rank_0.json "$bin/flight_report" dumps
    refused $kind profile "$bin/bench_scale" --profile profile
done
mkdir pictures/train
touch pictures/train/a.pgm
for kind in fifo socket device; do # these two options accept a folder
    refused $kind weights "$bin/train_dp" --resume weights
    refused $kind pictures/train/a.ppm "$bin/train_single" --model segnet --data pictures
done

# A rank's log file under --log-dir is a FIFO, first without a reader, then with one.
mkdir -p logs/attempt_0/0
mkfifo logs/attempt_0/0/stdout.log
logs_to_a_fifo() { # WHY
    refuse 2 "cannot write logs/attempt_0/0/stdout.log: $1" \
        timeout -k 1 20 "$bin/ddprun" --nproc-per-node 1 --log-dir logs true
}
logs_to_a_fifo "No such device or address"
cat logs/attempt_0/0/stdout.log &
sleep 0.2
logs_to_a_fifo "it is not a regular file"
kill $! 2>/dev/null || true
tally not_regular
