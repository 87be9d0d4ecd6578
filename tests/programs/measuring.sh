#!/bin/sh
# measuring.sh BIN_DIR PART: the numbers that a small program of bench/ prints beside its times are computed again:
# floating-point operations, parameters, ratios, norms; and invalid options are refused. PART is a program, without
# "bench_".
. "$(dirname "$0")/checks.sh"

# field NAME: prints the number after NAME= in out.txt.
field() { grep -oE "(^| )$1=[^ ]+" out.txt | head -n 1 | cut -d = -f 2; }

# near A B PERCENT WHAT
near() {
    checks=$((checks + 1))
    awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a - b; exit !(b > 0 && (d < 0 ? -d : d) <= b * p / 100) }' || fail "$4: $1, not $2"
}

# Rate times time equals the operations of the model's products, also with the sizes of no options. (More: test_bench_step.c.)
step_part() {
    # step OPERATIONS OPTION...: sgemm's rate counts the linear layers only. The tolerance is that of printed numbers.
    step() {
        operations=$1
        shift
        run "bench_step $*" "$bin/bench_step" --rounds 3 "$@"
        awk -v ms="$(field step_ms_p50)" -v g="$(field step_gflops)" -v s="$(field sgemm_gflops)" 'BEGIN {
            print ms * g * 1e6, 100 * (0.06 / g + 0.0006 / ms), g / s, 100 * (0.06 / g + 0.06 / s + 0.0006 * s / g) }' >wanted.txt
        read -r product percent ratio percent_of_ratio <wanted.txt
        near "$product" "$operations" "$percent" "work of $*"
        near "$(field step_to_sgemm)" "$ratio" "$percent_of_ratio" "ratio of $*"
    }
    mlp_work() { awk -v w="$1" -v n="$2" -v b="$3" 'BEGIN { print 2 * b * w * w * (2 + 3 * (n - 1)) + 6 * b * w * 10 }'; }
    gpt_work() { # layers, embedding, context, texts: 12 c c in a block's linear layers; attention computes half of all pairs
        awk -v n="$1" -v c="$2" -v t="$3" -v b="$4" 'BEGIN { print 6 * b * t * (12 * c * c * n + c * 76) + 6 * n * b * t * (t + 1) * c }'
    }
    step "$(mlp_work 192 2 256)" --width 192
    step "$(gpt_work 4 128 64 12)" --model gpt
    checks=$((checks + 1))
    grep -qx "layers=4 heads=4 embedding=128 context=64 batch=12 rounds=3" out.txt || fail "a gpt's sizes: $(cat out.txt)"
    refuse 2 'resnet20 has convolutions' "$bin/bench_step" --model resnet20
}

# With one round, medians equal the round.
zero_part() {
    run bench_zero "$bin/ddprun" --nproc-per-node 3 "$bin/bench_zero" --hidden 96,64 --rounds 1 --steps 3
    checks=$((checks + 1))
    awk -v n=$(((784 + 1) * 96 + (96 + 1) * 64 + (64 + 1) * 10)) '
    function of(name) { for (i = 1; i <= NF; i++) if (index($i, name "=") == 1) return substr($i, length(name) + 2) }
    function off(a, b) { return a - b > 0.01 * b || b - a > 0.01 * b }
    {
        way = of("way"); ms[way] = of("ms"); bytes[way] = of("bytes"); ways++
        if (of("parameters") != n || of("world_size") != 3) bad = bad way ": parameters; "
        if (of("best_ms") != of("ms") || of("ratio_p25") != of("ratio") || of("ratio_p75") != of("ratio")) bad = bad way ": quartiles; "
        if (of("ms") <= 0 || off(of("ratio"), of("ms") / ms["ddp"])) bad = bad way ": ratio; "
        # Bytes: weights, gradients and two states of each parameter; with the sharded optimizer a third of the states.
        if (off(bytes[way], n * (way == "ddp" ? 16 : 8 + 8 / 3))) bad = bad way ": bytes " bytes[way] "; "
    }
    END { if (ways != 4 || bad) { print "ways: " ways " " bad; exit 1 } }' out.txt >bad.txt || fail "bench_zero: $(cat bad.txt out.txt)"
}

# All norms are equal.
clip_part() {
    refuse 2 "--gradients" "$bin/bench_clip"
    refuse 2 "none.safetensors" "$bin/bench_clip" --gradients none.safetensors
    run gradients "$bin/train_single" --device cpu --steps 1 --no-eval --dump-grads g.safetensors
    run bench_clip "$bin/bench_clip" --gradients g.safetensors --rounds 2
    checks=$((checks + 1))
    awk -F , 'NR == 1 && $0 != "50826 gradients" { bad = 1 }
    NR > 2 {
        norm[$1] = $6; scale = $3 - $2; rows++
        if (NR == 3) { order = $2; both = $3; first = scale }
        if ($2 <= 0 || scale <= 0 || scale - first > 0.0002 || first - scale > 0.0002) bad = 2
        if (far($4, $2 / order) || far($5, $3 / both)) bad = 3
    }
    function far(a, b) { return a - b > 0.02 * b || b - a > 0.02 * b }
    function off(a, b) { return !(b > 0.01 && a / b - 1 < 1e-8 && 1 - a / b < 1e-8) }
    END { if (bad || rows != 3 || off(norm["order"], norm["exact"]) || off(norm["blocks"], norm["exact"])) { print "bad: " bad; exit 1 } }' out.txt >bad.txt ||
        fail "bench_clip: $(cat bad.txt out.txt)"
}

# Ranks of a launcher. (Threads, and all numbers: test_bench_scaling.c.)
scaling_part() {
    refuse 2 "--global-batch 13 does not divide among 3 ranks" "$bin/bench_scaling" --global-batch 13 --world 3
    run "bench_scaling of processes" "$bin/ddprun" --nproc-per-node 2 "$bin/bench_scaling" --model mlp --global-batch 12 --rounds 1
    checks=$((checks + 1))
    grep -qx "model=mlp global_batch=12 world=2 backend=shm rounds=1" out.txt || fail "bench_scaling: $(cat out.txt)"
}

# As many threads as cores. (All numbers: test_bench_probe.c.)
probe_part() {
    run "bench_probe of all cores" "$bin/bench_probe" --products 1 --passes 1
    checks=$((checks + 1))
    grep -q "^threads=$(env -u OMP_NUM_THREADS nproc) " out.txt || fail "bench_probe of all cores: $(cat out.txt)"
}

# Names, types and shapes of the tensors.
dump_data_part() {
    run dump_data "$bin/dump_data" digits 3 digits.safetensors
    checks=$((checks + 1))
    tr -d ' \n' <digits.safetensors | grep -aqF '"x":{"dtype":"F32","shape":[3,1,8,8],"data_offsets":[' || fail "dump_data: x"
    tr -d ' \n' <digits.safetensors | grep -aqF '"target":{"dtype":"I64","shape":[3],"data_offsets":[' || fail "dump_data: target"
    run dump_data "$bin/dump_data" shapes:8x9@4 4 shapes.safetensors
    tr -d ' \n' <shapes.safetensors | grep -aqF '"target":{"dtype":"I64","shape":[4,8,9],"data_offsets":[' || fail "dump_data: pixels"
    refuse 2 "shapes:8x9@4: asked for 5 samples with labels, it has 4" "$bin/dump_data" shapes:8x9@4 5 x.safetensors
    refuse 2 "it has 8 without" "$bin/dump_data" "synthetic:3->2@8" 1 x.safetensors
    for words in "" "digits" "digits 3" "digits 0 x" "digits 1 x y"; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086 # words
        "$bin/dump_data" $words >out.txt 2>err.txt && fail "dump_data $words: status 0"
        grep -q '^usage: dump_data NAME COUNT FILE' err.txt || fail "dump_data $words: $(cat err.txt)"
    done
}

"$2"_part
tally "measuring $2"
