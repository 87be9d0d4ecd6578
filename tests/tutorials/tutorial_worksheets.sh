#!/bin/sh
# tutorial_worksheets.sh BIN_DIR: the answers of communication.md are the bytes that DataParallel copies and a ring
# sends.
. "$(dirname "$0")/../programs/checks.sh"
ask() { run "$*" "$bin/tutorial_worksheets" --ask "$@" && cp out.txt answer.txt; }
# column 'FIRST WORDS' N: from the last answer
column() { sed -n "s/^$1 *//p" answer.txt | awk -v n="$2" '{ print $n }'; }
is() { # WHAT IT-IS IT-SHOULD-BE
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: $2, and not $3: $(cat answer.txt)"
}

# Compares with step 5's copied bytes, for batches that divide evenly and one that does not.
for case in '2 60' '4 60' '3 50' '7 60'; do
    devices=${case% *} rows=${case#* }
    ask volume --devices "$devices" --rows "$rows"
    run 'step 5' "$bin/tutorial_05" --devices "$devices" --global-batch "$rows" --steps 1 --no-eval
    for device in 0 1; do
        is "device $device of $case" "$(column "DP, device $device" 2)" \
            "$(sed -n "s/^device=cpu:$device received_bytes=\([0-9]*\).*/\1/p" out.txt)"
    done
done
# By hand: 1,000 weights are 4,000 bytes.
ask volume --parameters 1000 --devices 5 --rows 5 --inputs 0 --outputs 0
is "the links' one direction, by NCCL" "$(column 'DP by NCCL, device 0' 1)" 4000
is 'a ring of five' "$(column 'DDP, ring, each' 1)" 6400
is 'the root of five' "$(column "DDP, tree, its root" 1)" 12000
is 'gathered twice and reduced once' "$(column 'fully sharded, each' 1)" 9600
ask volume --parameters 1000 --devices 1
is 'one alone' "$(column 'DDP, ring, each' 1)" 0
ask messages --parameters 1000 --tensors 6 --devices 4 --bucket-cap-mb 0.001
is 'four buckets of 1,049 bytes' "$(sed -n 's/.*4 buckets *//p' answer.txt)" 24
ask messages --devices 4 --units 17
is '17 units, three times three messages' "$(sed -n 's/.*17 units *//p' answer.txt)" 153
ask memory --parameters 1000 --devices 8 --states 2 --units 4
is 'an eighth, and two quarters' "$(column 'fully sharded, each' 1)" 2500
is 'an eighth of Adam' "$(column 'ZeRO-1, each' 3)" 1000
ask time --parameters 250000 --devices 4 --latency-us 100 --gbytes 1
is 'a ring: 6 latencies, and 1.5 MB' "$(column 'ring, all in one' 1)" 2.100
is 'two trees: 8 pieces, 11 rounds of 0.1 + 0.25' "$(column 'two trees, pipelined' 1)" 3.850
is 'NCCL: 6 latencies, and 2 MB' "$(column 'DP by NCCL' 1)" 2.600
is 'where the ring begins to win' "$(sed -n 's/.*from \([0-9]*\) bytes.*/\1/p' answer.txt)" 80000
tally tutorial_worksheets
