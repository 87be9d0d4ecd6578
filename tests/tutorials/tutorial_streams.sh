#!/bin/sh
# tutorial_streams.sh BIN_DIR: step 25 has one result in all orders of execution, and without one of its waits exactly
# the number of results that its page derives.
. "$(dirname "$0")/../programs/checks.sh"

results() { # NUMBER MISTAKE
    run "$2" "$bin/tutorial_25" --orders 20000 --break="$2"
    grep -qx "20000 orders, $1 different results" out.txt || fail "$2: not $1 results: $(cat out.txt)"
}
results 1 none
grep -q '20000 times: weights -2 -5 -8 -11$' out.txt || fail "other weights: $(cat out.txt)"
results 16 no-ready
results 5 no-done
grep -q 'weights -2 -5 -8 -11$' out.txt || fail "without luck in 20000 orders: $(cat out.txt)"
results 2 early-read
tally tutorial_streams
