#!/usr/bin/env bash
# peers.sh BIN: a small run of bench/peers/compare.sh: rounds against PyTorch's DDP and Gloo, compared gradients, the
# report's section; a gradient that differs from PyTorch's must be detected. 77 without torch.
set -euo pipefail
export LC_ALL=C
bin=$1
compare=$(cd "$(dirname "$0")/../.." && pwd)/bench/peers/compare.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "FAILED: $*"
    cat "$folder/log"
    exit 1
}

# run WANTED_STATUS OUT BIN
run() {
    local status=0
    "$compare" --quick --world 2 --model mlp --out "$2" --bin "$3" >"$folder/log" 2>&1 || status=$?
    [[ $status != 77 ]] || { cat "$folder/log" && exit 77; }
    [[ $status == "$1" ]] || fail "status $status, not $1"
}

run 0 "$folder/good results" "$bin"
results="$folder/good results"
for peer in "PyTorch DDP" Gloo; do
    [[ $(grep -c ",$peer," "$results/peers.csv") -ge 2 ]] || fail "rounds with $peer: $(cat "$results/peers.csv")"
done
rounds=$(grep -c ",PyTorch DDP," "$results/peers.csv")
[[ $(grep -c ',1$' "$results/gradients.csv") == $((6 * rounds)) ]] || fail "gradients: $(cat "$results/gradients.csv")"
grep -q "agreed in $((6 * rounds)) of $((6 * rounds)) comparisons" "$folder/log" || fail "no sentence on gradients"
[[ $(grep -c '<h2 ' "$results/section.html") == 1 ]] || fail "not one heading"
[[ $(awk 'length($0) > 80 && !/^the section/' "$folder/log") == "" ]] || fail "wide lines"

grep -q 'round 2 of 2, about [0-9]*:[0-9][0-9] left' "$results/runs/world-2/log.txt" || fail "no word of how far it is"
for fact in '- Processor: ' '- PyTorch ' '- OpenBLAS '; do
    grep -q -- "^$fact" "$results/section.md" || fail "no $fact in the section"
done

# Ranks with local gradients instead of reduced ones; all else is equal.
mkdir "$folder/wrong"
ln -s "$bin"/* "$folder/wrong"
rm "$folder/wrong/train_ddp"
printf '#!/bin/sh\nexec "%s/train_ddp" --comm-hook noop "$@"\n' "$bin" >"$folder/wrong/train_ddp"
chmod +x "$folder/wrong/train_ddp"
run 1 "$folder/bad" "$folder/wrong"
grep -q "gradients disagree with PyTorch DDP's" "$folder/log" || fail "no word of wrong gradients"
echo "peers: gradients of $rounds rounds agreed, wrong ones were seen"
