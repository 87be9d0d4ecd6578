#!/bin/sh
# recomputed.sh BIN_DIR: the numbers of summary.json are computed again from steps.csv, for runs with fewer and with
# more steps than the number from which the first two are excluded; config.json names the program, its strategy and its
# ranks.
. "$(dirname "$0")/checks.sh"

# recompute FOLDER BATCH [' PHASE...']: prints every number of summary.json that does not follow from steps.csv, and
# each of the step's phases, including PHASE, that took no time.
recompute() {
    checks=$((checks + 1))
    awk -F, -v batch="$2" -v more="${3:-}" '
        function differ(a, b) { return a - b > 2e-6 * (1 + b) || b - a > 2e-6 * (1 + b) }
        function expect(key, wanted) {
            if (!(key in summary)) print "no " key
            else if (differ(summary[key], wanted)) print key " is " summary[key] ", not " wanted
        }
        FILENAME ~ /csv$/ && FNR == 1 { for (i = 1; i <= NF; i++) name[i] = $i; columns = NF; next }
        FILENAME ~ /csv$/ {
            rows++
            for (i = 1; i <= columns; i++) { row[name[i]] = $i; sum[name[i]] += $i; last[name[i]] = $i; if (name[i] == "step_ms") time[rows] = $i }
            rate = batch / (row["step_ms"] / 1000)
            if (row["samples_per_s"] - rate > 1e-4 * rate || rate - row["samples_per_s"] > 1e-4 * rate) print "samples_per_s of step " $1
            next
        }
        match($0, /"[a-z_0-9]+": [-0-9.e+]+,?$/) {
            split(substr($0, RSTART + 1), pair, /": |,/)
            summary[(inside ? "phase " : "") pair[1]] = pair[2]
        }
        /"phase_ms"/ { inside = 1 }
        /}/ { inside = 0 }
        END {
            first = rows > 4 ? 3 : 1
            for (i = first; i <= rows; i++) sorted[i - first] = time[i]
            n = rows - first + 1
            for (i = 1; i < n; i++)
                for (k = i; k > 0 && sorted[k - 1] > sorted[k]; k--) {
                    kept = sorted[k]; sorted[k] = sorted[k - 1]; sorted[k - 1] = kept
                }
            split("25 50 75 90", percent, " ")
            for (q = 1; q <= 4; q++) expect("step_ms_p" percent[q], sorted[int(percent[q] / 100 * (n - 1) + 0.5)])
            expect("samples_per_s_p50", batch / (sorted[int(n / 2)] / 1000))
            expect("steps", rows)
            expect("global_batch", batch)
            expect("final_loss", last["loss"])
            for (i = 1; i <= columns; i++) {
                key = name[i]
                if (key == "communication_ms") expect(key, sum[key] / rows)
                else if (key ~ /_ms$/ && key != "step_ms") {
                    sub(/_ms$/, "", key)
                    expect("phase " key, sum[name[i]] / rows)
                    phases++
                }
            }
            if (phases < 10) print "only " phases " phases"
            for (i = split("other data forward loss backward optimizer" more, phase, " "); i > 0; i--)
                if (!(summary["phase " phase[i]] > 0)) print "no time in the phase " phase[i]
        }' "$1/steps.csv" "$1/summary.json" >wrong.txt
    [ ! -s wrong.txt ] || fail "$1: $(cat wrong.txt)"
}

says() { # FILE KEY VALUE
    checks=$((checks + 1))
    grep -qF "\"$2\": $3" "$1" || fail "$1: $2 is not $3: $(grep "\"$2\"" "$1")"
}
config() { says "$1/config.json" "$2" "$3"; }

for steps in 1 4 5 12; do
    run "$steps steps" "$bin/train_single" --model mlp --global-batch 61 --steps $steps --log-every 1 --no-eval \
        --out "steps-$steps"
    recompute "steps-$steps" 61
done
options="--model mlp --global-batch 62 --steps 6 --log-every 1"
# shellcheck disable=SC2086 # the options are words
{
    run dp "$bin/train_dp" --devices 2 $options --out dp
    run ddp "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" $options --out ddp
}
recompute dp 62 ' scatter replicate gather reduce'
recompute ddp 62 ' exposed'
# Both files are complete JSON: braces and brackets are balanced, and the last one ends the file.
for file in ddp/config.json ddp/summary.json steps-1/config.json steps-1/summary.json; do
    checks=$((checks + 1))
    awk '{ gsub(/"[^"]*"/, ""); depth += gsub(/[{[]/, "") - gsub(/[]}]/, ""); if (depth < 1 && !end) end = NR }
        END { exit !(depth == 0 && end == NR) }' "$file" || fail "$file: $(cat "$file")"
done
config steps-1 program '"train_single"'
config steps-1 strategy '"single"'
config steps-1 world_size 1
config dp program '"train_dp"'
config dp strategy '"dp"'
config dp world_size 2
config ddp program '"train_ddp"'
config ddp strategy '"ddp"'
config ddp world_size 2
config ddp backend '"shm"'
config ddp fake_hosts false
for said in strategy:dp backend:threads model:mlp device:cpu amp:none; do
    says dp/summary.json "${said%:*}" "\"${said#*:}\""
done
for said in world_size:2 parameters:50826 skipped_steps:0 scale:1 global_batch:62; do
    says dp/summary.json "${said%:*}" "${said#*:},"
done
says ddp/summary.json strategy '"ddp"'
says ddp/summary.json backend '"shm"'

# One option of each type, with a value other than its default.
run options "$bin/train_single" --model mlp --steps 4 --no-eval --no-shuffle --lr 0.25 --optimizer adamw \
    --betas 0.5,0.75 --seed 7 --warmup-steps 3 --hidden 8,4 --out options
config options no-shuffle true
config options drop-last false
config options lr 0.25
config options optimizer '"adamw"'
config options betas '[0.5, 0.75]'
config options seed 7
config options warmup-steps 3
config options steps 4
config options hidden '"8,4"'
config options data '"digits"'
config options save null
config options link null
# --profile's table: summary.json's phases, their sum and shares, and the part of the collectives that overlaps
# backward.
profile() { # FOLDER COMMAND...
    folder=$1
    shift
    run "profile of $folder" "$@" --profile --no-eval --steps 6 --out "$folder"
    checks=$((checks + 1))
    sed 's/^\[0\]: //' err.txt | awk '
        function far(a, b) { return a - b > 0.0001 || b - a > 0.0001 }
        function share(a, b) { return far(a + 0, sprintf("%.1f", b)) && (a - b > 0.0501 || b - a > 0.0501) }
        FILENAME == "-" {
            if (/^phase  *ms per step  *share/) inside = 1
            else if (inside && $3 ~ /%$/) { ms[$1] = $2; percent[$1] = $3; rest[$1] = $4 " " $5 " " $6 " " $7 " " $8 }
            next
        }
        match($0, /"[a-z_]+": [-0-9.e+]+,?$/) {
            split(substr($0, RSTART + 1), pair, /": |,/)
            if (inside == 2) { of[pair[1]] = pair[2]; sum += pair[2] }
            if (pair[1] == "communication_ms") all = pair[2]
        }
        /"phase_ms"/ { inside = 2 }
        /}/ { inside = 0 }
        END {
            for (phase in of) {
                if (of[phase] > 0 && (far(ms[phase], of[phase]) || share(percent[phase], 100 * of[phase] / sum))) print phase ": " ms[phase], percent[phase]
                if (of[phase] == 0 && phase in ms) print phase " took no time"
            }
            if (far(ms["step"], sum) || percent["step"] != "100.0%") print "step: " ms["step"]
            what = "all-reduces" in ms ? "all-reduces" : "collectives"
            if ((what in ms) != (all > 0)) print what ": " all
            if (all > 0 && (far(ms[what], all) || share(percent[what], of["exposed"] < all ? 100 * (1 - of["exposed"] / all) : 0) ||
                rest[what] != "of it hidden behind " (what == "all-reduces" ? "backward" : "compute"))) print what ": " ms[what], percent[what], rest[what]
        }' - "$folder/summary.json" >wrong.txt
    [ ! -s wrong.txt ] || fail "$folder: $(cat wrong.txt err.txt)"
}
profile profile-single "$bin/train_single" --model mlp
profile profile-dp "$bin/train_dp" --devices 2 --model mlp
profile profile-ddp "$bin/ddprun" --nproc-per-node 2 "$bin/train_ddp" --model convnet --bucket-cap-mb 0.005
profile profile-fsdp "$bin/ddprun" --nproc-per-node 2 "$bin/train_fsdp" --model convnet
tally recomputed
