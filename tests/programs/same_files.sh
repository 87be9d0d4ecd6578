#!/bin/sh
# same_files.sh BIN_DIR: ranks whose disks have different files of the same name refuse to train. Each rank starts in
# its own folder, as on a separate machine.
. "$(dirname "$0")/checks.sh"

# ---- data of 4x4 pixels ------------------------------------------------------------------------------------
octal() { printf '\\%03o' "$(($1))"; }
number() { printf "$(octal "$1 / 16777216 % 256")$(octal "$1 / 65536 % 256")$(octal "$1 / 256 % 256")$(octal "$1 % 256")"; }
images() { # COUNT TEXT: the pixels' bytes repeat the text
    printf '\0\0\010\003' && number "$1" && number "${height:-4}" && number 4
    yes "$2" | head -c $((4 * ${height:-4} * $1))
}
labels() { # COUNT TEXT: letters from a to j
    printf '\0\0\010\001' && number "$1"
    yes "$2" | tr -d '\n' | tr a-j '\000-\011' | head -c "$1"
}
data() { # FOLDER TRAIN TEST [PIXELS [LABELS]]
    rm -rf "$1" && mkdir -p "$1"
    images "$2" "${4:-pixels}" >"$1/train-images-idx3-ubyte"
    labels "$2" "${5:-abcdefghij}" >"$1/train-labels-idx1-ubyte"
    images "$3" "${4:-pixels}" >"$1/t10k-images-idx3-ubyte"
    labels "$3" abcdefghij >"$1/t10k-labels-idx1-ubyte"
}

job() { "$bin/ddprun" --nproc-per-node 3 sh -c 'cd "$RANK" && exec "$0" "$@"' "$bin/${program:-train_ddp}" --data data --global-batch 12 "$@"; }
differs() { # 'MESSAGE' OPTIONS...: the job ends with 2, and every rank's error contains the message
    checks=$((checks + 1))
    words=$1 status=0
    shift
    job "$@" >out.txt 2>err.txt || status=$?
    [ "$status" = 2 ] || fail "status $status, not 2: $*: $(cat err.txt)"
    grep -qF -- "error: $words" err.txt || fail "no \"$words\" from $*: $(cat err.txt)"
}

for rank in 0 1 2; do data $rank/data 60 20; done
run 'the same data' job --epochs 2 --save kept --resume auto
data 1/data 57 20
differs '--data data: rank 1 does not see the same number of training samples as rank 0: 57, not 60'
data 1/data 60 19
data 2/data 60 19
differs '--data data: ranks 1, 2 do not see the same number of test samples as rank 0: 19, not 20'
data 1/data 60 20
data 2/data 60 20 pixelt
differs '--data data: rank 2 does not see the same contents of the training samples as rank 0'
data 2/data 60 20 pixels abcdefghji
differs '--data data: rank 2 does not see the same contents of the training samples as rank 0'
data 2/data 60 20
height=6
data 1/data 60 20
for program in train_ddp train_fsdp; do
    differs '--data data: rank 1 does not see the same height of training samples as rank 0: 6, not 4'
done
height= program=
data 1/data 60 20

# ---- checkpoints -------------------------------------------------------------------------------------------
# Rank 1's disk has another run's checkpoint, of the same size.
for rank in 1 2; do cp 0/kept* $rank; done
run 'the same checkpoint' job --epochs 2 --resume kept
run 'another run' job --epochs 2 --lr 0.01 --save other
mv 0/other 1/kept
mv 0/other.*.optimizer 1
differs '--resume kept: rank 1 does not see the same checkpoint as rank 0' --epochs 3 --resume kept
rm 1/kept
run 'a shorter run' job --epochs 1 --save kept
cp 0/kept 1/kept
cp 0/kept.*.optimizer 1
for rank in 0 2; do rm $rank/kept*; done
job --epochs 2 --save kept >/dev/null 2>&1 || fail "a longer run"
cp 0/kept* 2
differs '--resume kept: rank 1 does not see the same step to continue at as rank 0: 5, not 10' --epochs 3 --resume kept

tally same_files
