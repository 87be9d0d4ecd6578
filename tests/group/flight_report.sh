#!/bin/sh
# flight_report.sh BIN_DIR: flight_report's exit status, for records in a named folder and in the current one.
. "$(dirname "$0")/../programs/checks.sh"

records() { # FOLDER STATE...: of one barrier, whose state on each rank is given
    folder=$1 rank=0
    shift
    rm -rf "$folder"
    mkdir "$folder"
    for state in "$@"; do
        printf '{"process_group": "g", "rank": %d, "dumped_ns": 1000, "ranks": [0, 1], "entries": [
            {"collective_seq_id": 1, "call": "barrier", "state": "%s", "time_discovered_started_ns": 500}]}' \
            "$rank" "$state" >"$folder/flight_g_rank_$rank.json"
        rank=$((rank + 1))
    done
}
reports() { # STATUS 'LINE' [FOLDER]
    checks=$((checks + 1))
    wanted=$1 line=$2 status=0
    shift 2
    "$bin/flight_report" "$@" >out.txt 2>err.txt || status=$?
    [ "$status" = "$wanted" ] || fail "status $status, not $wanted, for $*: $(cat out.txt err.txt)"
    grep -qxF -- "$line" out.txt || fail "no \"$line\" for $*: $(cat out.txt err.txt)"
}

records even completed completed
records late started scheduled
reports 0 'group g: no rank departed from the others in the records' even
reports 1 'group g: rank 1 did not start collective 1 barrier; rank 0 waits in it' late
cp late/*.json .
reports 1 'group g: rank 1 did not start collective 1 barrier; rank 0 waits in it'
refuse 2 "unexpected argument 'even'" "$bin/flight_report" late even
rm ./*.json
refuse 2 'there are no flight records' "$bin/flight_report"
status=0
"$bin/flight_report" even >/dev/full 2>err.txt || status=$?
checks=$((checks + 1))
[ "$status" = 1 ] || fail "status $status, not 1, for a full device: $(cat err.txt)"
tally flight_report
