#!/bin/sh
# tutorial_what_it_buys.sh BIN_DIR: step 28's formulas give bench_scale's numbers, for networks that both support; with
# its mistake, a model without latency, many buckets cost nothing.
. "$(dirname "$0")/../programs/checks.sh"

bytes=102228128

# profile BUCKETS FILE: 30 ms forward, 60 ms backward; tensors of equal size that become ready at equal intervals.
profile() {
    awk -v k="$1" -v bytes=$bytes 'BEGIN {
        printf "{\"name\": \"even\", \"rows\": [1, 2], \"forward_s\": [0.03, 0], \"loss_s\": [0, 0],"
        printf "\"backward_s\": [0.06, 0], \"optimizer_s\": 0, \"sample_bytes\": 0, \"output_bytes\": 0,"
        printf "\"messages\": %d, \"tensors\": [", k
        for (b = 1; b <= k; b++) printf "%s{\"bytes\": %.17g, \"ready\": %.17g}", (b > 1 ? ", " : ""), bytes / k, b / k
        print "]}" }' >"$2"
}

# Columns by name; step 28's model does not include DP's 3 (W - 1) empty messages for rows and outputs.
for job in '1 25 20' '7 10 50' '16 100 0'; do
    set -- $job
    profile "$1" even.json
    run "bench_scale $job" "$bin/bench_scale" --profile even.json --gbit "$2" --latency-us "$3" --bucket-cap-mb 0 \
        --devices 1,2,4,8,16,32,64,128,256,512,1024,2048,4096
    grep -v '^#' out.txt | awk -F, -v us="$3" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { step[$(at["devices"]), $(at["strategy"])] = $(at["step"]); order[$(at["devices"])] = 1 }
        END { for (w = 1; w <= 4096; w *= 2)
            printf "%d %.2f %.2f\n", w, step[w, "dp"] - 3 * (w - 1) * us / 1000, step[w, "ddp"] }' >bench.txt
    run "step 28, $job" "$bin/tutorial_28" --bytes $bytes --tensors "$1" --buckets "$1" --compute-ms 90 --gbit "$2" \
        --latency-us "$3"
    awk 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { printf "%d %.2f %.2f\n", $1, $(at["dp_ms"]), $(at["ddp_ms"]) }' out.txt >tutorial.txt
    paste -d ' ' bench.txt tutorial.txt | awk 'function off(a, b) { return a > b ? a - b : b - a }
        $1 != $4 || off($2, $5) > 0.0101 || off($3, $6) > 0.0101 { bad = 1 } END { exit bad || NR != 13 }' ||
        fail "$job: bench_scale and step 28 differ: $(paste bench.txt tutorial.txt)"
done

# ---- many buckets ------------------------------------------------------------------------------------------
ddp_ms() { # BUCKETS [OPTION...]
    buckets=$1
    shift
    "$bin/tutorial_28" --bytes $bytes --tensors 161 --compute-ms 90 --gbit 25 --latency-us 20 --devices 64 \
        --buckets "$buckets" "$@" | awk 'END { print $4 }'
}
checks=$((checks + 2))
[ "$(printf '%s\n' "$(ddp_ms 1)" "$(ddp_ms 4)" "$(ddp_ms 161)" | sort -g | head -n 1)" = "$(ddp_ms 4)" ] ||
    fail "four buckets are not the best: $(ddp_ms 1), $(ddp_ms 4), $(ddp_ms 161)"
blind="--break=no-latency"
[ "$(printf '%s\n' "$(ddp_ms 4 $blind)" "$(ddp_ms 161 $blind)" | sort -g | head -n 1)" = "$(ddp_ms 161 $blind)" ] ||
    fail "without latency many buckets look bad: $(ddp_ms 4 $blind), $(ddp_ms 161 $blind)"
tally tutorial_what_it_buys
