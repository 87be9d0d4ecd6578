#!/bin/sh
# scores.sh BIN_DIR: the accuracy and the mean IoU that are printed beside the training loss. They cover all rows of the
# step, over all devices, ranks and parts of the step, and are exact counts: one device, DataParallel and
# DistributedDataParallel print the same values.
. "$(dirname "$0")/checks.sh"

column() { # NAME FOLDER: the column in steps.csv, on one line
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next }
        { printf "%s ", $at }' "$2/steps.csv"
}

value() { sed -n "s/^ *\"$1\": *\([^,]*\),*$/\1/p" "$2/summary.json"; } # KEY FOLDER

expect() { # WHAT GOT WANTED
    checks=$((checks + 1))
    [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"
}

train() { # FOLDER COMMAND...: into out.txt and steps.csv
    folder=$1
    shift
    run "$folder" "$@" --no-eval --out "$folder"
}

# --- Samples: uneven shares of batches, a short last batch of an epoch

options="--model mlp --global-batch 61 --steps 30 --log-every 1"
ranks="--sampler blocked --normalize global"
# shellcheck disable=SC2086 # the options are words
{
    train single "$bin/train_single" $options
    train dp "$bin/train_dp" --devices 3 $options
    train ddp "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" $options $ranks
    train parts "$bin/train_single" $options --accumulate-steps 4
    train ddp-parts "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $options $ranks --accumulate-steps 3
}
accuracy=$(column accuracy single)
# Multiples of 1/61 (1/36 in an epoch's 25th batch), neither 0 nor 1, and not always equal.
echo "$accuracy" | tr ' ' '\n' | awk 'NF { rows = NR == 25 ? 36 : 61; hits = $1 * rows
    if (hits < 1 || hits > rows - 1 || (hits - int(hits + 0.5)) ^ 2 > 1e-8) print "step", NR - 1, $1 }
    NF && !seen[$1]++ { count++ } END { if (NR < 30 || count < 10) print "only", count }' >odd.txt
checks=$((checks + 1))
[ ! -s odd.txt ] || fail "no shares of a batch: $(cat odd.txt)"
for folder in dp ddp parts ddp-parts; do
    expect "accuracy of $folder" "$(column accuracy $folder)" "$accuracy"
done
expect "final_accuracy" "$(value final_accuracy single | cut -c 1-8)" \
    "$(echo "$accuracy" | awk '{ print substr($NF, 1, 8) }')"
grep -qE 'step=0 epoch=0 loss=[0-9.]+ accuracy=0\.[0-9]{4} lr=' out.txt || fail "no accuracy on the line of a step"

# Before the first update the ranks' rows together are one device's rows, in any distribution.
train alone "$bin/train_single" --model mlp --steps 1
train interleaved "$bin/ddprun" --nproc-per-node 3 "$bin/train_ddp" --model mlp --steps 1
expect "the accuracy of interleaved rows" "$(column accuracy interleaved)" "$(column accuracy alone)"

# With --log-every 7, a line has its own step's scores.
# shellcheck disable=SC2086
train some "$bin/train_single" $options --log-every 7
expect "every seventh" "$(column accuracy some)" "$(echo "$accuracy" | cut -d ' ' -f 1,8,15,22,29,30) "

# With an update of (almost) zero, the accuracy of a batch of all rows equals the evaluation's on the same rows.
mkdir same
for file in 1 2 3 4 5; do
    awk -v file=$file 'BEGIN { for (i = 0; i < 8; i++) printf "%d\n", (i * file) % 7 }' | while read -r label; do
        printf "\\00$label"
        awk -v n=$((label * 9 + file)) 'BEGIN { for (i = 0; i < 3072; i++) printf "%c", 33 + (i * n + n * n) % 90 }'
    done >same/data_batch_$file.bin
done
cat same/data_batch_?.bin >same/test_batch.bin
run "the same data twice" "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --data same --model mlp \
    --global-batch 40 --steps 1 --lr 1e-30 --out twice
expect "the evaluation's accuracy" "$(value final_accuracy twice)" "$(value test_accuracy twice)"
checks=$((checks + 1))
value test_accuracy twice | grep -qE '^0\.[0-9]*[1-9]' || fail "nothing is right: $(value test_accuracy twice)"

# 16-bit logits are overwritten by their gradient: the hits are counted before.
options="--device ref --model mlp --hidden 8 --steps 12 --log-every 1 --lr 0.5"
# shellcheck disable=SC2086
{
    train float "$bin/train_single" $options
    train half "$bin/train_single" $options --amp bf16
}
checks=$((checks + 1))
echo "$(column accuracy float)$(column accuracy half)" | awk '{ for (i = 1; i <= 12; i++) {
    off = $i - $(i + 12); if (off > 0.1 || off < -0.1) exit 1; if ($i > most) most = $i } exit !(most > 0.3) }' ||
    fail "accuracies: $(column accuracy float), in 16 bits $(column accuracy half)"

# --- Pixels: both scores; ignored pixels count in neither

options="--model segnet --data shapes:16x16@40 --global-batch 16 --epochs 4 --log-every 1"
# shellcheck disable=SC2086
{
    train pixels-dp "$bin/train_dp" --devices 2 $options
    train pixels-ddp "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $options $ranks
}
for name in accuracy mean_iou; do
    expect "$name of pixels" "$(column $name pixels-ddp)" "$(column $name pixels-dp)"
    checks=$((checks + 1))
    column $name pixels-dp | tr ' ' '\n' |
        awk 'NF { if (!($1 > 0 && $1 < 1)) exit 1; if (!seen[$1]++) count++ } END { exit count < 5 }' ||
        fail "$name of pixels: $(column $name pixels-dp)"
done
grep -qE 'step=0 .* accuracy=0\.[0-9]{4} miou=0\.[0-9]{4} lr=' out.txt || fail "no mean IoU on the line of a step"
expect "final_miou" "$(value final_miou pixels-dp | cut -c 1-8)" \
    "$(column mean_iou pixels-dp | awk '{ print substr($NF, 1, 8) }')"

# --- Regression has neither score

train numbers "$bin/train_single" --model toy --steps 2
expect "no accuracy" "$(column accuracy numbers)$(column mean_iou numbers)" "nan nan nan nan "
checks=$((checks + 1))
! grep -qE 'accuracy|miou' out.txt || fail "an accuracy of regression: $(cat out.txt)"

# --- summary.json has the last line's values, the best of all evaluations, and null for missing scores

summed() { # NAME COMMAND...: checks all keys of scores
    name=$1
    shift
    run "$name" "$@" --log-every 1 --out "$name"
    checks=$((checks + 1))
    awk '
        function note(word, prefix, pair) {
            split(word, pair, "=")
            if (pair[1] ~ /^(test_)?(loss|accuracy|miou|perplexity|bits)$/) said[prefix pair[1]] = pair[2]
            if (pair[1] ~ /^test_(accuracy|miou)$/ && pair[2] > best[pair[1]]) best[pair[1]] = pair[2]
        }
        FILENAME == "out.txt" { for (i = 1; i <= NF; i++) note($i, /^step=/ ? "final_" : ""); next }
        match($0, /"(final|test|best_test)_[a-z]+": [^,]+/) {
            split(substr($0, RSTART + 1, RLENGTH - 1), pair, /": /)
            found[pair[1]] = pair[2]
        }
        END {
            dense = "test_miou" in said
            if (dense) said["best_test_miou"] = best["test_miou"]
            samples = !dense && !("test_bits" in said) && "test_accuracy" in said
            said["best_test_accuracy"] = samples ? best["test_accuracy"] : "null"
            if (!("test_accuracy" in said)) said["test_accuracy"] = said["final_accuracy"] = "null"
            for (key in said) {
                difference = found[key] - said[key]
                if (!(key in found) || (said[key] == "null") != (found[key] == "null") ||
                    (difference < 0 ? -difference : difference) > 6e-5 * (key ~ /perplexity/ ? 10 * said[key] : 1))
                    print key " is " found[key] ", not " said[key]
            }
            for (key in found) if (!(key in said)) print key " is " found[key] ", and was not said"
        }' out.txt "$name/summary.json" >wrong.txt
    [ ! -s wrong.txt ] || fail "$name: $(cat wrong.txt out.txt)"
}
summed samples "$bin/train_single" --epochs 3 --lr 1 --hidden 8 --global-batch 300
summed falls "$bin/train_single" --model segnet --data shapes:16x16@40 --global-batch 8 --epochs 3 --lr 0.5
summed words "$bin/train_single" --model gpt --layers 1 --heads 1 --embedding 8 --context 8 --steps 3
summed distances "$bin/train_single" --model toy --data synthetic:10:5@120 --epochs 2
checks=$((checks + 1))
[ "$(value best_test_miou falls)" != "$(value test_miou falls)" ] || fail "falls: its last epoch is its best"
# For texts and numbers the best evaluation has the smallest loss: here the last one.
checks=$((checks + 2))
[ -e words/best.safetensors.3.*.optimizer ] || fail "the best text: $(ls words)"
[ -e distances/best.safetensors.4.*.optimizer ] || fail "the best numbers: $(ls distances)"
run "weights alone" "$bin/train_single" --evaluate samples/last.safetensors --hidden 8 --out alone-again
expect "no step" "$(value steps alone-again) $(value moved_bytes_per_step alone-again) $(value communication_ms alone-again)" "0 0 0"
expect "no score of a step" "$(value final_loss alone-again) $(value final_accuracy alone-again)" "null null"
expect "its evaluation" "$(value test_loss alone-again) $(value test_accuracy alone-again)" \
    "$(value test_loss samples) $(value test_accuracy samples)"
# An evaluation needs the memory of one batch, for any number of batches.
for count in 8000 16000; do
    run "$count numbers" "$bin/train_single" --model toy --data synthetic:10:5@$count --steps 1 --no-eval --save weights
    run "evaluated" "$bin/train_single" --model toy --data synthetic:10:5@$count --evaluate weights --out of-$count
done
expect "the bytes of 16000 numbers" "$(value peak_bytes_device0 of-16000)" "$(value peak_bytes_device0 of-8000)"
tally scores
