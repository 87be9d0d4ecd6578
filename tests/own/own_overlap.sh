#!/bin/sh
# own_overlap.sh BIN_DIR FILES: properties that equal bits do not show, read from a job's trace: the number of
# all-reduces of gradients that start during backward, and a broadcast of the buffers in every step. The reference is
# the trace of the built-in wrapper.
files=$2
. "$(dirname "$0")/../programs/checks.sh"
PATH=$bin:$PATH
steps=4

# counts NAME OPTION...: of rank 0, in all steps but the first. overlapped: buckets that start during backward; late:
# those that start after it, and all-reduces that are not marked as a bucket; broadcasts: those after the first forward
counts() {
    name=$1
    shift
    run "$name" ddprun --nproc-per-node 2 train_ddp --model resnet20 --steps $steps --global-batch 4 --no-eval \
        --bucket-cap-mb 0.1 --trace trace.json --log-every 100 "$@"
    awk 'function field(key, rest) {
            if (!match($0, "\"" key "\": *\"?[^\",}]*")) return "-"
            rest = substr($0, RSTART, RLENGTH)
            sub(/^[^:]*: *"?/, "", rest)
            gsub(/ /, "_", rest)
            return rest
        }
        field("ph") ~ /^[Xs]$/ && field("pid") == 0 {
            printf "%s %s %.3f %.3f", field("ph"), field("name"), field("ts"), field("ts") + field("dur")
            print "", field("tid"), field("bytes"), field("bucket")
        }' trace.json | sort -k 3 -n >spans.txt
    awk '$2 == "backward" && $5 == 0 { begin[++backwards] = $3; end[backwards] = $4 }
        $2 == "broadcast" && backwards > 0 { broadcasts++ }
        $1 == "s" { at[++n] = $3 }
        $2 == "all_reduce" && $6 > 100 && $7 == "-" { unmarked[++m] = $3 }
        END {
            for (i = 1; i <= n; i++) {
                inside = 0
                for (b = 2; b <= backwards; b++) if (at[i] >= begin[b] && at[i] < end[b]) inside = 1
                overlapped += inside
                late += !inside && at[i] >= begin[2]
            }
            for (i = 1; i <= m; i++) late += unmarked[i] >= begin[2]
            print overlapped + 0, late + 0, broadcasts + 0
        }' spans.txt >counts.txt
    read -r overlapped late broadcasts <counts.txt
}

expect() {
    checks=$((checks + 1))
    eval "[ $1 ]" || fail "$name: not $1: overlapped $overlapped, late $late, broadcasts $broadcasts"
}

counts 'the built-in wrapper'
expect "$overlapped -ge 6"
expect "$broadcasts -ge $((steps - 1))"
for file in ddp_overlap.c ddp_in_place.c; do
    counts "$file" --wrapper "$files/$file"
    expect "$overlapped -ge 6"
    expect "$broadcasts -ge $((steps - 1))"
done
counts 'ddp_naive.c' --wrapper "$files/ddp_naive.c"
expect "$overlapped -eq 0"
expect "$late -ge 6"
# The user's all-reduce runs on the communication thread, inside the wrapper's buckets.
counts 'sum_chain.c' --all-reduce "$files/sum_chain.c"
expect "$overlapped -ge 6"
checks=$((checks + 1))
grep -q '^X send ' spans.txt && grep -q '^X recv ' spans.txt || fail "no sends and receives in the trace of sum_chain.c"

# Without the call that broadcasts, there is no broadcast, although the bits are equal.
grep -v 'ddp->buffers_due && own_sync_buffers' "$files/ddp_overlap.c" >silent.c
counts 'no broadcasts' --wrapper silent.c
expect "$broadcasts -eq 0"
tally own_overlap
