#!/bin/sh
# regress.sh BIN_DIR: bench/regress.sh on given repeats: slower, not slower, refused.
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$(dirname "$0")/checks.sh"
command -v python3 >/dev/null || { echo "skipped: there is no python3" && exit 77; }
mkdir before after

# repeats FOLDER MODEL DISTURBED MS...: appends rows to repeats.csv
repeats() {
    file=$1/repeats.csv model=$2 disturbed=$3
    shift 3
    [ -s "$file" ] || echo model,strategy,world_size,repeat,step_ms_p50,disturbed >"$file"
    for ms; do echo "$model,ddp,2,1,$ms,$disturbed" >>"$file"; done
}
repeats before slower 0 10.0 10.1 10.2 10.1 10.0
repeats after slower 0 10.9 11.1 11.0 11.2 10.9
repeats before faster 0 10.0 10.1 10.2
repeats after faster 0 9.1 9.0 9.2
repeats before noisy 0 10 12 11
repeats after noisy 0 11 13 12 # medians differ by 9 %, as much as the repeats
repeats before disturbed 0 10 10 10
repeats after disturbed 0 10.0 10.1 10.0
repeats after disturbed 1 90 90 90 90 90 90
repeats before few 0 10 10
repeats after few 0 90 90

status=0
"$root/bench/regress.sh" before after >out.txt || status=$?
expect() { # MODEL PATTERN
    checks=$((checks + 1))
    grep -Eq "^$1 +ddp +2 +$2$" out.txt || fail "$1 is not '$2': $(cat out.txt)"
}
expect slower '1\.089 .* SLOWER'
expect faster '0\.901 .* faster'
expect noisy '1\.091 .* same'
expect disturbed '1\.000 .* same'
checks=$((checks + 1))
[ $status = 1 ] || fail "status $status with a regression"
! grep -q '^few' out.txt || fail "two repeats are compared"
grep -q '^1 of 4 configurations are slower$' out.txt || fail "$(cat out.txt)"
run "a tolerance" "$root/bench/regress.sh" before after --tolerance 20
run "nothing slower" "$root/bench/regress.sh" after after
refuse 2 "no repeats.csv" "$root/bench/regress.sh" before .
refuse 2 "two folders" "$root/bench/regress.sh" before
sed -i '/few/!{1!d}' before/repeats.csv
refuse 2 "no configuration has three" "$root/bench/regress.sh" before after

tally regress
