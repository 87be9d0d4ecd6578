#!/bin/sh
# traces.sh BIN_DIR: --trace and --profile of a job. One file contains all ranks on one clock; every bucket's all-reduce
# has its bucket number and bytes, and an arrow leads to it from within its rank's backward.
. "$(dirname "$0")/checks.sh"

ranks=3
run "a traced job" "$bin/ddprun" --nproc-per-node $ranks "$bin/train_ddp" --steps 12 --no-eval --profile \
    --log-every 1 --bucket-cap-mb 0.1 --trace trace.json --out out
checks=$((checks + 1))
[ "$(ls -d trace*)" = trace.json ] || fail "not one file: $(ls)"

# events.txt: "ph pid tid begin end name number bucket bytes id", one event per line; - for missing fields
awk 'function field(key, rest) {
        if (!match($0, "\"" key "\": *\"?[^\",}]*")) return "-"
        rest = substr($0, RSTART, RLENGTH)
        sub(/^[^:]*: *"?/, "", rest)
        gsub(/ /, "_", rest)
        return rest
    }
    field("ph") ~ /^[Xsfi]$/ {
        printf "%s %s %s %.3f %.3f", field("ph"), field("pid"), field("tid"), field("ts"), \
            field("ts") + (field("ph") == "X" ? field("dur") : 0)
        print "", field("name"), field("number"), field("bucket"), field("bytes"), field("id")
    }' trace.json >events.txt

# 50,826 weights of 4 bytes are reduced in each of 12 steps: in one bucket in the first step, in two afterwards.
checks=$((checks + 1))
for rank in $(seq 0 $((ranks - 1))); do
    awk -v rank="$rank" '$2 == rank && $6 == "all_reduce" && $8 != "-" {
            buckets[$8]++
            if ($9 < 4 || $9 % 4) print "bytes:", $0
            bytes += $9
        }
        END {
            if (buckets[0] != 12 || buckets[1] != 11) print buckets[0] + 0, buckets[1] + 0, "buckets"
            if (bytes < 12 * 4 * 50826 || bytes > 12 * 4 * 51000) print bytes, "bytes in all"
        }' events.txt >wrong.txt
    [ ! -s wrong.txt ] || fail "rank $rank: $(cat wrong.txt)"
done

# Arrows: one for each bucket of each rank, from the rank's main thread, in backward or (if the last gradient filled the
# bucket there) after it, to the begin of the all-reduce, never backwards in time.
checks=$((checks + 1))
awk '$1 == "s" { from[$10] = $4; of[$10] = $2; starts++; if ($3 != 0) print "begins on track", $3 }
    $1 == "f" { to[$10] = $4; ends++; if (of[$10] != $2) print "from rank", of[$10], "to rank", $2 }
    $1 == "X" && $8 != "-" { span[$2, $4] = 1; spans++ }
    $1 == "f" { end[$2, $4] = 1 }
    $1 == "X" && $3 == 0 && ($6 == "backward" || $6 == "exposed") {
        n[$2]++; begin[$2, n[$2]] = $4; finish[$2, n[$2]] = $5
    }
    END {
        if (starts != ends || starts != spans || starts < 60) print starts, "begins", ends, "ends", spans, "spans"
        for (id in from) {
            if (!(id in to) || to[id] < from[id]) print "arrow", id, "goes back in time"
            inside = 0
            for (i = 1; i <= n[of[id]]; i++)
                if (from[id] >= begin[of[id], i] - 1 && from[id] <= finish[of[id], i] + 1) inside = 1
            if (!inside) print "arrow", id, "does not begin in backward"
        }
        for (at in span) if (!(at in end)) print "no arrow to", at
    }' events.txt >wrong.txt
[ ! -s wrong.txt ] || fail "arrows: $(head -n 5 wrong.txt)"

# One clock: on no rank does an all-reduce end before every rank has begun it.
checks=$((checks + 1))
awk '$1 == "X" && $8 != "-" {
        if (!($7 in first_end) || $5 < first_end[$7]) first_end[$7] = $5
        if ($4 > last_begin[$7]) last_begin[$7] = $4
        n[$7]++
    }
    END {
        for (i in n) if (n[i] != 3 || last_begin[i] > first_end[i]) print i, n[i], last_begin[i], first_end[i]
    }' events.txt >wrong.txt
[ ! -s wrong.txt ] || fail "clocks: $(head -n 5 wrong.txt)"

# All communication: in the table, as a mean in summary.json, and per step in steps.csv.
checks=$((checks + 1))
grep -Eq 'all-reduces +[0-9.]+ +[0-9.]+% of it hidden behind backward' err.txt || fail "no total: $(cat err.txt)"
awk -F, -v mean="$(sed -n 's/.*"communication_ms": \([0-9.]*\).*/\1/p' out/summary.json)" '
    NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    { sum += $column["communication_ms"]; if ($column["communication_ms"] <= 0) print "none in step", $1 }
    END { if (sum / 12 > mean * 1.001 || sum / 12 < mean * 0.999 || mean == 0) print sum / 12, mean }
    ' out/steps.csv >wrong.txt
[ ! -s wrong.txt ] || fail "communication_ms: $(cat wrong.txt)"

# The files of machines without a shared file system are merged later.
run "merge_traces" "$bin/merge_traces" again.json trace.json
checks=$((checks + 1))
cmp -s trace.json again.json || fail "merging one trace changes it"
refuse 2 'OUT and a trace are needed' "$bin/merge_traces" again.json
refuse 2 'is no trace' "$bin/merge_traces" again.json events.txt
checks=$((checks + 1))
! "$bin/merge_traces" --help >/dev/full 2>err.txt || fail "merge_traces --help to a full device: status 0"

tally traces
