#!/usr/bin/env bash
# regress.sh: has the training step become slower? Compares the repeats of two comparisons of compare.sh:
#
#   bench/regress.sh BEFORE AFTER [--tolerance PERCENT]
#
# BEFORE and AFTER are folders with a repeats.csv, the median step of every run. For each configuration that both
# have it prints the ratio of the medians of these, and an interval that holds 95 % of the ratios of 4000
# bootstrap samples of the repeats. Slower is what lies above 1 with the whole interval, by more than PERCENT (2);
# disturbed repeats do not count, and a configuration needs three on both sides.
# Exit status: 0, 1 if something is slower, 2 for usage and when there is nothing to compare.
set -euo pipefail
export LC_ALL=C

usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "error: $1" >&2
    exit 2
}

tolerance=2
folders=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) usage || exit 1; exit 0 ;;
    --tolerance)
        [[ ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]] || fail "--tolerance needs a number of per cent"
        tolerance=$2
        shift
        ;;
    -*) fail "unknown option $1" ;;
    *) folders+=("$1") ;;
    esac
    shift
done
[[ ${#folders[@]} == 2 ]] || fail "two folders are needed: bench/regress.sh BEFORE AFTER"
for folder in "${folders[@]}"; do
    [[ -s $folder/repeats.csv ]] || fail "$folder has no repeats.csv; compare.sh writes it"
done

awk -F, -v tolerance="$tolerance" '
    FNR == 1 { split("", at); for (i = 1; i <= NF; i++) at[$i] = i; file++; next }
    !($at["disturbed"] + 0) {
        run = sprintf("%-9s %-7s %3s", $at["model"], $at["strategy"], $at["world_size"])
        if (file == 1 && !(run in n1)) order[++runs] = run
        if (file == 1) before[run, ++n1[run]] = $at["step_ms_p50"] + 0
        else after[run, ++n2[run]] = $at["step_ms_p50"] + 0
    }
    function sort(v, n,    i, j, x) {
        for (i = 2; i <= n; i++) {
            x = v[i]
            for (j = i; j > 1 && v[j - 1] > x; j--) v[j] = v[j - 1]
            v[j] = x
        }
    }
    function median(v, n) {
        sort(v, n)
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    # The ratio of the medians: of the repeats as they are, or of a sample of as many, with replacement.
    function ratio(run, sampled,    i, a, b) {
        for (i = 1; i <= n1[run]; i++) a[i] = before[run, sampled ? 1 + int(rand() * n1[run]) : i]
        for (i = 1; i <= n2[run]; i++) b[i] = after[run, sampled ? 1 + int(rand() * n2[run]) : i]
        return median(b, n2[run]) / median(a, n1[run])
    }
    END {
        srand(1) # the same answer every time
        print "model     strategy devices  after/before   95 % interval"
        for (r = 1; r <= runs; r++) {
            run = order[r]
            if (n1[run] < 3 || n2[run] < 3) continue
            compared++
            samples = 4000
            for (s = 1; s <= samples; s++) drawn[s] = int(1e6 * ratio(run, 1))
            for (s = 1; s <= samples; s++) count[drawn[s]]++
            # The 2.5 % at either end, from a count of equal ratios: few repeats give few different medians.
            kinds = 0
            for (x in count) kind[++kinds] = x + 0
            sort(kind, kinds)
            low = high = ""
            seen = 0
            for (k = 1; k <= kinds; k++) {
                seen += count[kind[k]]
                if (low == "" && seen > 0.025 * samples) low = kind[k] / 1e6
                if (high == "" && seen >= 0.975 * samples) high = kind[k] / 1e6
            }
            split("", count)
            verdict = low > 1 + tolerance / 100 ? "SLOWER" : high < 1 ? "faster" : "same"
            slower += verdict == "SLOWER"
            printf "%s  %13.3f   %.3f to %.3f  %s\n", run, ratio(run, 0), low, high, verdict
        }
        if (!compared) {
            print "error: no configuration has three undisturbed repeats in both" > "/dev/stderr"
            exit 2
        }
        print slower + 0 " of " compared " configurations are slower"
        exit slower > 0
    }' "${folders[0]}/repeats.csv" "${folders[1]}/repeats.csv"
