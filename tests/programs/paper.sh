#!/usr/bin/env bash
# paper.sh BIN: bench/paper.sh. By hand: the shares of a step, medians, and how rows become a figure's columns; then
# a small run, whose drawn numbers are those that were measured and the paper's. No time is judged.
set -euo pipefail
export LC_ALL=C
bin=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
for part in compare/runs compare/tables compare/section paper/table; do source "bench/$part.sh"; done
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

# expect WHAT WANTED GOT
expect() {
    [[ $2 != "$3" ]] || return 0
    printf '%s:\n%s\nnot\n%s\n' "$1" "$3" "$2"
    failures=$((failures + 1))
}

# Two rounds: 2 + 4 + 3 + 1 + 0 = 10, of which 8 remain with overlap (2 of 3 hidden); the same twice as slow.
cat >"$out/breakdown.csv" <<'END'
model,link,round,forward_ms,backward_ms,communication_ms,optimizer_ms,rest_ms,overlapped_ms
mlp,10gbe,1,2,4,3,1,0,8
mlp,10gbe,2,4,8,6,2,0,16
END
expect "shares" $'mlp 10gbe\t0.200\t0.400\t0.300\t0.100\t0.000\t0.800\t0.667' "$(breakdown_rows | sed -n 2p)"
expect "the paper's shares" $'ResNet50 NCCL (paper)\t0.150\t0.390\t0.440\t0.020\t0.000\t0.620\t0.974' \
    "$(breakdown_rows | grep '^ResNet50 NCCL')"
expect "what is saved" "mlp 10gbe 20 %" "$(breakdown_sentence | cut -c 1-14)"
cat >"$out/buckets.csv" <<'END'
model,link,bucket_mb,round,seconds
mlp,10gbe,0,1,3
mlp,10gbe,1,1,1
mlp,10gbe,25,1,2
mlp,10gbe,0,2,5
mlp,10gbe,1,2,2
mlp,10gbe,25,2,2
convnet,10gbe,25,1,7
END
expect "medians" "mlp 10gbe,0,4 mlp 10gbe,1,1.5 mlp 10gbe,25,2 convnet 10gbe,25,7" \
    "$(medians "$out/buckets.csv" | paste -sd ' ')"
expect "columns" "bucket_mb,mlp 10gbe,convnet 10gbe 0,4,NaN 1,1.5,NaN 25,2,7" \
    "$(medians "$out/buckets.csv" | widen bucket_mb | paste -sd ' ')"
expect "the best bucket" "The fastest bucket is 1 MB for mlp 10gbe (every gradient alone takes +167 %)" \
    "$(bucket_sentence | cut -d, -f1)"
cat >"$out/skip.csv" <<'END'
model,link,every,round,seconds
mlp,10gbe,1,1,4
mlp,10gbe,8,1,3
END
expect "skipping" "Synchronising every 8th iteration saves 25 % for mlp 10gbe" "$(skip_sentence | cut -d';' -f1)"

# A small run.
results="$out/small results"
bench/paper.sh --quick --bin "$bin" --out "$results" >"$out/log" 2>&1 || { cat "$out/log" && exit 1; }
for figure in "buckets bucket_mb 2" "worlds ranks 2" "skip every 4"; do
    read -r name column count <<<"$figure"
    expect "rows of $name" "$count" "$(($(wc -l <"$results/$name.csv") - 1))"
    expect "what is drawn of $name" "$(awk -F, 'NR > 1 { printf "%s,%.4g ", $3, $5 }' "$results/$name.csv")" \
        "$(awk -F, 'NR > 1 { printf "%s,%.4g ", $1, $2 }' "$results/plots/$name-here.csv")"
    expect "$name's x" "$column" "$(head -n 1 "$results/plots/$name-here.csv" | cut -d, -f1)"
done
expect "the paper's buckets" "25,0.117,0.175,0.440,0.86" "$(grep '^25,' "$results/plots/buckets-paper.csv")"
expect "the paper's largest world" "256,0.304,0.50,0.79,2.33" "$(grep '^256,' "$results/plots/worlds-paper.csv")"
# The same samples, read by as many iterations: after 80 the loss of a batch of 256 has fallen.
expect "curves that fell" 4 "$(awk -F, '$1 == 256 && $3 == 40 { first[$2] = $4 }
    $1 == 256 && $3 == 80 && $4 < first[$2] { fell++ } END { print fell }' "$results/convergence.csv")"
expect "lines over 80 columns" "" "$(awk 'length($0) > 80' "$results/table.txt")"
expect "headings" 1 "$(grep -c '<h2>' "$results/section.html")"
if command -v gnuplot >/dev/null; then
    expect "figures" 4 "$(grep -c '<figure>' "$results/section.html")"
fi
echo "paper: $failures failures"
[[ $failures == 0 ]]
