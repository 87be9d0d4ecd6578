#!/bin/sh
# launches.sh BIN_DIR: bench/results/launches.md equals the current counts of tests/emulator/launches.sh.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/programs/checks.sh"
"$root/tests/emulator/launches.sh" "$bin/.." >table || exit
while read -r row; do
    checks=$((checks + 1))
    grep -qxF "$row" "$root/bench/results/launches.md" || fail "bench/results/launches.md does not say: $row"
done <table
checks=$((checks + 1))
[ "$(wc -l <table)" = 8 ] || fail "not six rows: $(cat table)"
tally launches
