#!/bin/sh
# mixed_precision.sh BIN_DIR: --amp bf16 and fp16 in the three training programs.
#
# DataParallel and DistributedDataParallel have equal bits, also if fp16's scaler skips steps; a resumed run continues
# bit for bit, with the scale of the checkpoint; dumped gradients are unscaled and equal float32's within the rounding
# of their factors; ten epochs reach float32's accuracy.
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

# ---- DataParallel and DistributedDataParallel --------------------------------------------------------------
# A small batch and a high learning rate overflow several times: with the initial scale and with the next.
short="--model convnet --steps 24 --no-eval --schedule constant --log-every 1 --dump-step 0,1,10"
dp() { # NAME DEVICES OPTION...
    name=$1 devices=$2
    shift 2
    run "dp $name" "$bin/train_dp" --devices "$devices" $short --out "$name" \
        --dump-grads "$name.{step}.grads" "$@"
}
ddp() { # NAME RANKS OPTION...
    name=$1 ranks=$2
    shift 2
    run "ddp $name" "$bin/ddprun" --nproc-per-node "$ranks" "$bin/train_ddp" $short --out "$name" \
        --sampler blocked --dump-grads "$name.{step}.grads" "$@"
}
as_dp() { # DP DDP: equal gradients, weights, losses and scales
    same "$1/last.safetensors" "$2/last.safetensors"
    for step in 0 1 10; do
        checks=$((checks + 1))
        "$bin/compare_tensors" --bitwise "$1.$step.grads" "$2.$step.grads" >cmp.txt 2>&1 ||
            fail "the gradients of step $step of $1 and $2: $(tail -n 1 cmp.txt)"
    done
    expect "scales of $1 and $2" "$(column scale "$1")" "$(column scale "$2")"
    expect "steps that $1 and $2 skipped" "$(value skipped_steps "$1")" "$(value skipped_steps "$2")"
}
# With an average of local means, local gradients are larger than DataParallel's by the number of ranks: in fp16 they
# overflow or underflow in other steps. Divided by the global batch they are equal.
for amp in bf16 fp16; do
    set -- --amp $amp --global-batch 8 --lr 1
    for devices in 2 3; do
        dp $amp-dp$devices $devices "$@"
        ddp $amp-ddp$devices $devices "$@" --normalize global
        as_dp $amp-dp$devices $amp-ddp$devices
    done
    ddp $amp-one-by-one 2 "$@" --normalize global --bucket-cap-mb 0
    ddp $amp-no-overlap 2 "$@" --normalize global --no-overlap
    as_dp $amp-dp2 $amp-one-by-one
    as_dp $amp-dp2 $amp-no-overlap
done
ddp bf16-average 2 --amp bf16 --global-batch 8 --lr 1
as_dp bf16-dp2 bf16-average
checks=$((checks + 2))
for run in fp16-dp2 fp16-dp3; do
    [ "$(value skipped_steps $run)" -ge 2 ] || fail "$run skipped no steps: $(column scale $run)"
done
expect 'what bf16 skipped' "$(value skipped_steps bf16-dp2) $(value scale bf16-dp2)" '0 1'
# Every skipped step halves the scale; nothing else changes it.
halved=$(column scale fp16-dp2 | awk '{ print log($1 / $NF) / log(2) }')
expect 'halvings' "$halved" "$(value skipped_steps fp16-dp2)"

# ---- gradients -----------------------------------------------------------------------------------------------
# Dumped gradients are unscaled. The factors of a product have 8 (bf16) or 11 (fp16) bits, a relative error of 2^-9 or
# 2^-12; after three layers a gradient has a few times that: its cosine with float32's is 1 minus about its square.
first="--model mlp --steps 1 --no-eval --dump-step 0"
run gradients "$bin/train_single" $first --dump-grads none.grads
direction() { # AMP SMALLEST
    run gradients "$bin/train_single" $first --amp "$1" --dump-grads "$1.grads"
    checks=$((checks + 1))
    "$bin/compare_tensors" --csv --tol 1 none.grads "$1.grads" >rows.csv 2>/dev/null || fail "$(cat rows.csv)"
    awk -F, -v least="$2" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        !($at["cosine"] > least) || $at["max_ulp"] == 0 { print; bad = 1 }
        END { exit bad || NR != 7 }' rows.csv >bad.txt || fail "$1: $(cat bad.txt rows.csv)"
    norms "$1"
}
norms() { # a cosine does not depend on the norm: a scale that was not removed would give 65536
    "$bin/compare_tensors" --csv none.grads "$1.grads" 2>/dev/null | awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        !($at["max_abs"] < 0.02) { exit 1 }' || fail "$1: gradients of another size: $(cat rows.csv)"
}
direction bf16 0.9999
direction fp16 0.999999

# ---- resuming ------------------------------------------------------------------------------------------------
whole() { "$bin/train_single" $options "$@"; }
resumes() { # NAME STEPS 'STOP ...' OPTION...: also while the scale changes
    name=$1 steps=$2 stops=$3
    shift 3
    options="--no-eval --schedule constant --log-every 1 $*"
    run "$name" whole --steps "$steps" --out "$name"
    for stop in $stops; do
        rm -rf part
        run "$name until $stop" whole --steps "$stop" --out part
        run "$name from $stop" whole --steps "$steps" --out part --resume part
        same "$name/last.safetensors" part/last.safetensors
        expect "scales of $name" "$(column scale part)" "$(column scale "$name")"
        expect "losses of $name" "$(column loss part)" "$(column loss "$name")"
    done
}
resumes bf16 30 '11' --model convnet --amp bf16
resumes falls 30 '1 2 9' --model convnet --amp fp16 --global-batch 8 --lr 0.2
resumes adamw 30 '9' --model convnet --amp fp16 --global-batch 4 --lr 0.01 --optimizer adamw
checks=$((checks + 1))
[ "$(value skipped_steps falls)" -ge 2 ] || fail "falls: nothing was skipped"
resumes grows 2010 '1700 2005' --model toy --amp fp16
expect 'the scale after 2000 good steps' "$(column scale grows | awk '{ print $2000, $2001, $2010 }')" \
    '65536 131072 131072'

# Resuming in another precision works, with a note.
says() { # COUNT 'part of a line' OPTION...
    count=$1 words=$2
    shift 2
    run "resuming $*" "$bin/train_single" --no-eval --schedule constant --steps 33 --model convnet "$@"
    expect "lines with '$words'" "$(grep -c "$words" err.txt)" "$count"
}
small='--global-batch 8 --lr 0.2'
says 1 'made with --amp fp16, this run has none: it continues, but not bit for bit' --resume falls $small
says 1 'made with --amp fp16, this run has bf16' --resume falls $small --amp bf16
says 1 'made with --amp bf16, this run has fp16' --resume bf16 --amp fp16
says 0 'made with --amp' --resume falls $small --amp fp16
# A valid file with a scale that no GradScaler can have is refused by name.
if command -v python3 >/dev/null; then
    python3 - falls/last.safetensors falls/scaled <<'END'
import re, sys, zlib
file = open(sys.argv[1], "rb").read()
file = re.sub(rb'("scale": *")(0x[^"]*)"', lambda m: m[1] + b"-" + b"0" * (len(m[2]) - 1) + b'"', file)
at = file.index(b'"crc32"') + file[file.index(b'"crc32"') + 7:].index(b'"') + 8
zeros = file[:at] + b"0" * 8 + file[at + 8:]
open(sys.argv[2], "wb").write(file[:at] + b"%08x" % zlib.crc32(zeros[8:]) + file[at + 8:])
END
    checks=$((checks + 1)) status=0
    "$bin/train_single" --no-eval --schedule constant --steps 33 --model convnet $small --amp fp16 --resume falls/scaled >out.txt 2>err.txt || status=$?
    [ "$status" = 2 ] && grep -q '^error: falls/scaled: The scale must be positive and finite, not -0' err.txt ||
        fail "status $status of a scale of -0: $(cat err.txt)"
fi

# ---- ten epochs ----------------------------------------------------------------------------------------------
for model in mlp convnet; do
    for amp in none bf16 fp16; do
        run "$model $amp" "$bin/train_single" --model $model --amp $amp --epochs 10 --out "$model-$amp"
    done
    for amp in bf16 fp16; do
        checks=$((checks + 1))
        awk -v a="$(value test_accuracy $model-none)" -v b="$(value test_accuracy $model-$amp)" \
            'BEGIN { exit !(a > 0.97 && b > a - 0.01) }' ||
            fail "$model: $(value test_accuracy $model-$amp) in $amp, $(value test_accuracy $model-none) in float32"
    done
done
# An overflow in forward means that training has diverged; lowering the scale does not help.
checks=$((checks + 1)) status=0
"$bin/train_single" --model mlp --amp fp16 --lr 1e6 --schedule constant >out.txt 2>err.txt || status=$?
[ "$status" = 1 ] && grep -q '^error: the loss is .* training has diverged' err.txt ||
    fail "status $status of a run that diverges: $(cat err.txt)"

tally mixed_precision
