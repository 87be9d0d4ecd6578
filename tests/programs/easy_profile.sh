# easy_profile.sh: a profile with simple numbers, and functions that compare the model's steps with expressions computed
# by awk. Sourced after checks.sh by the tests of bench/model.

# holds WHAT CONDITION: awk evaluates the condition to true.
holds() {
    checks=$((checks + 1))
    awk "BEGIN { exit !($2) }" </dev/null || fail "$1: not $2"
}

# Forward takes 2 ms + 0.1 ms per row, backward twice that; 4 tensors of 1 MiB become ready at equal intervals.
cat >profile.json <<'END'
{"name": "easy", "rows": [5, 10], "forward_s": [0.002, 0.0001], "loss_s": [0, 0.00001],
 "backward_s": [0.004, 0.0002], "optimizer_s": 0.001, "sample_bytes": 1000, "output_bytes": 100, "messages": 4,
 "tensors": [{"bytes": 1048576, "ready": 0.25}, {"bytes": 1048576, "ready": 0.5},
             {"bytes": 1048576, "ready": 0.75}, {"bytes": 1048576, "ready": 1}]}
END
scale() { # OPTION...
    "$bin/bench_scale" --profile profile.json --rows 10 --bucket-cap-mb 1 "$@"
}
# Prints a column in the row of this number of devices and strategy.
column() { # NAME DEVICES STRATEGY
    awk -F, -v name="$1" -v devices="$2" -v strategy="$3" '
        /^devices,/ { for (i = 1; i <= NF; i++) if ($i == name) at = i }
        $1 == devices && $2 == strategy { print $at }' out
}
# near NAME DEVICES STRATEGY EXPRESSION: the column equals awk's value of the expression.
near() {
    got=$(column "$1" "$2" "$3")
    holds "$3 on $2 devices, $1" "${got:-0} > 0 && (d = ${got:-0} / ($4) - 1) * d < 1e-14"
}
