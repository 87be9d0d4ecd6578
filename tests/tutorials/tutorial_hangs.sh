#!/bin/sh
# tutorial_hangs.sh BIN_DIR: step 26 trains as step 9 does and stops by agreement; each of its mistakes ends the job
# with the message that the page shows, and the flight records name the rank.
. "$(dirname "$0")/../programs/checks.sh"

ranks() { "$bin/ddprun" --nproc-per-node 3 "$@"; }
hang() { # MISTAKE STATUS 'REGULAR EXPRESSION' [OPTION...]: the job ends with this status; its messages are in err.txt
    checks=$((checks + 1))
    mistake=$1 wanted=$2 words=$3 status=0
    shift 3
    rm -rf flight
    DDPC_FLIGHT_DIR=flight ranks "$bin/tutorial_26" --no-eval --timeout 5 --break="$mistake" "$@" \
        >out.txt 2>err.txt </dev/null || status=$?
    [ "$status" = "$wanted" ] || fail "$mistake: status $status, not $wanted: $(cat err.txt)"
    grep -qE -- "$words" err.txt || fail "$mistake: no \"$words\": $(cat err.txt)"
}
blames() { # 'words'
    "$bin/flight_report" flight >report.txt 2>&1 || true
    grep -qE -- "$1" report.txt || fail "the records do not say \"$1\": $(cat report.txt)"
}

# ---- without a mistake -------------------------------------------------------------------------------------
run 'step 9' ranks "$bin/tutorial_09" --steps 30 --no-eval --save replicas
run 'step 26' ranks "$bin/tutorial_26" --steps 30 --no-eval --save stopping
cmp replicas stopping || fail "step 26 has other weights than step 9"
run 'an agreed stop' ranks "$bin/tutorial_26" --steps 50 --no-eval --stop-below 0.3
[ "$(sed -n 's/.*ends after \([0-9]*\) steps/\1/p' out.txt | sort | uniq -c | awk '{ print $1 }')" = 3 ] ||
    fail "the ranks do not stop together: $(cat out.txt)"
! grep -q 'after 50 steps' out.txt || fail "no rank stopped early: $(cat out.txt)"

# ---- each mistake ------------------------------------------------------------------------------------------
hang stuck 1 'collective 43 .*rank 2 did not arrive within 5.0 s'
blames 'rank 2 left no records; the others are at collective 43 '
hang dead 137 'rank 2 .*died of SIGKILL'
blames 'rank 2 left no records'
hang lonely-if 1 'collective 13: ranks disagree: rank 0 runs all_reduce.F64, 1, avg., rank [12] runs all_reduce.I32, 1, max.'
blames 'at collective 13 ranks 1, 2 started .*but rank 0 '
for mistake in lone-stop barrier; do
    hang $mistake 1 'rank [0-2] .*(closed its group|gone)' --steps 50 --stop-below 0.3
    [ "$(grep -c 'ends after' out.txt)" -lt 3 ] || fail "$mistake: all ranks ended well: $(cat out.txt)"
done
tally tutorial_hangs
