# answer.sh: what was found, in sentences that are computed from the files that are drawn: the answer, and a
# sentence for each figure. Rows that were disturbed take part in none. Sourced by compare.sh after measure.sh.

# The number of devices that the figures speak of: the largest that the cores can serve, or the smallest.
answer_world() {
    local world answer=
    for world in $(timed_worlds); do
        [[ -n $answer && $world -gt $cores ]] || answer=$world
    done
    echo "$answer"
}

# Writes difference.csv, and what the figure shows of it: plots/difference-MODEL.csv.
compare_phases() {
    local model
    awk -f bench/compare/difference.awk "$out/summary.csv" >"$out/difference.csv"
    for model in $models; do
        csv 'BEGIN { print "row,phase,difference_ms,disturbed" }
            of("model") != model || of("world_size") != world { next }
            !(of("shown") in sum) && of("shown") !~ /^(all else|step)$/ { name[++n] = of("shown") }
            { sum[of("shown")] += of("difference_ms"); disturbed = of("verdict") == "disturbed" }
            END {
                name[++n] = "all else"
                name[++n] = "step"
                for (i = 1; i <= n; i++) printf "%d,%s,%.4f,%d\n", i, name[i], sum[name[i]], disturbed
            }' model="$model" world="$(answer_world)" "$out/difference.csv" >"$out/plots/difference-$model.csv"
    done
}

# Prints the answer: a line for the first model, here and over the link, and why_line; then a line for each other model
# and number of devices.
answer_lines() {
    local lines first="${models%% *}, $(answer_world) devices: "
    lines=$(awk -v where="on this machine" -v cores="$cores" -v units="$units" -f bench/compare/answer.awk \
        "$out/difference.csv") || return 1
    grep -F "$first" <<<"$lines"
    if has_link; then
        awk -v where="over $link_text" -f bench/compare/answer.awk "$out/difference-link.csv"
        why_line
    fi
    grep -vF "$first" <<<"$lines" || true
}

# Why the link decides, for two devices: what DP moves through device 0 while no device computes, and what DDP still waits
# for, here and over the link. Nothing where a row was disturbed.
why_line() {
    csv 'of("model") != model || of("world_size") != 2 { next }
        of("disturbed") + 0 { lost = 1 }
        { place = FILENAME ~ /-link/ ? "there" : "here"; rows[place, of("strategy")] = 1 }
        of("strategy") == "dp" {
            moving[place] = of("scatter_ms") + of("replicate_ms") + of("gather_ms") + of("reduce_ms")
        }
        of("strategy") == "ddp" { exposed[place] = of("exposed_ms") }
        END {
            if (lost || !(("here", "dp") in rows) || !(("there", "ddp") in rows)) exit
            printf "%s, 2 devices, why: DP'\''s device 0 sends the weights out and adds the gradients up while no device " \
                "computes, %.2f ms a step here and %.2f over the link. DDP'\''s ranks exchange gradients only, all at once " \
                "and while backward still runs: they still wait for %.2f ms of it here and %.2f over the link.\n", \
                model, moving["here"], moving["there"], exposed["here"], exposed["there"]
        }' model="${models%% *}" "$out/summary.csv" "$out/summary-link.csv"
}

# What dividing the optimizer over DDP's ranks saves, a line for each model and number of devices that was measured so.
zero_lines() {
    csv '
        of("strategy") !~ /^(ddp|zero1)$/ { next }
        { key = of("model") ", " of("world_size") " devices"; s = of("strategy")
          peak[s, key] = of("peak_bytes_device0") / 1e6; step[s, key] = of("step_ms_p50")
          update[s, key] = of("exposed_ms") + of("optimizer_ms")
          unsure[key] += of("disturbed") }
        s == "zero1" { order[++n] = key; untimed[key] = of("timed") + 0 == 0 }
        END {
            for (i = 1; i <= n; i++) {
                key = order[i]
                printf "%s: with the optimizer divided (ZeRO-1) a rank holds %.2f MB and DDP'\''s %.2f, %.2f MB less", key, \
                    peak["zero1", key], peak["ddp", key], peak["ddp", key] - peak["zero1", key]
                if (untimed[key]) { print "."; continue }
                if (unsure[key]) { print "; times were disturbed by other work, no conclusion."; continue }
                printf "; a step takes %.2f ms and DDP'\''s %.2f, waiting for gradients and stepping %.2f and %.2f, %.2f times.\n", \
                    step["zero1", key], step["ddp", key], update["zero1", key], update["ddp", key], \
                    (update["ddp", key] > 0 ? update["zero1", key] / update["ddp", key] : 0)
            }
        }' "$out/summary.csv"
}

# per_model PROGRAM: runs a CSV program on plots/MODEL.csv of each model, and joins what it prints to one sentence. Its
# variable `world` is what answer_world prints.
per_model() {
    local model
    for model in $models; do
        csv "$1" model="$model" world="$(answer_world)" "$out/plots/$model.csv"
    done | paste -sd ';' - | sed -e 's/;/; /g' -e 's/$/./'
}

caption_difference() {
    local model
    for model in $models; do
        csv 'function more_or_less(ms) { return ms < 0 ? sprintf("%.2f ms less", -ms) : sprintf("%.2f ms more", ms) }
            of("disturbed") + 0 { disturbed = 1 }
            of("phase") == "step" { step = of("difference_ms") + 0; next }
            of("phase") == "all else" { next }
            { size = of("difference_ms") < 0 ? -of("difference_ms") : of("difference_ms") + 0 }
            size > most { most = size; longest = of("phase"); ms = of("difference_ms") }
            END {
                printf "%s: ", model
                if (disturbed) { print "disturbed"; exit }
                printf "DDP'\''s step takes %s than DP'\''s", more_or_less(step)
                if (longest != "") printf ", and of its phases %s differs most and takes %s", longest, more_or_less(ms)
                print ""
            }' model="$model" "$out/plots/difference-$model.csv"
    done | paste -sd ';' - | sed -e 's/;/; /g' -e 's/$/./'
}

caption_throughput() {
    per_model '
        of("disturbed") + 0 { next }
        of("strategy") == "single" { one = of("samples_per_s_p50") }
        of("samples_per_s_p50") > best { best = of("samples_per_s_p50"); strategy = of("strategy"); n = of("world_size") }
        END {
            if (!one) { print model ": disturbed"; exit }
            if (strategy == "single") { print model ": nothing is faster than one device"; exit }
            name = strategy == "dp" ? "DP on " n " devices" : "DDP on " n " devices"
            printf "%s: the fastest is %s with %.0f samples per second, %.2f times one device\n", model, name, best, best / one
        }'
}

# The share of a step that is not computing.
caption_phases() {
    per_model '
        of("world_size") == world && of("strategy") != "single" {
            moving = of("scatter_ms") + of("replicate_ms") + of("gather_ms") + of("reduce_ms") + of("exposed_ms")
            share[of("strategy")] = 100 * moving / of("step_ms_p50")
            disturbed += of("disturbed")
        }
        END {
            if (disturbed) print model ": disturbed"
            else printf "%s on %d devices: moving data and waiting take %.1f %% of DP'\''s step and %.1f %% of DDP'\''s\n", \
                model, world, share["dp"], share["ddp"]
        }'
}

caption_memory() {
    per_model '
        of("world_size") == world { peak[of("strategy")] = of("peak_bytes_device0") / 1e6 }
        END { printf "%s on %d devices: device 0 holds %.2f MB under DP and %.2f MB under DDP\n", model, world, peak["dp"], peak["ddp"] }'
}

caption_loss() {
    local model
    for model in $(curve_models); do
        csv '{ step = of("step"); one = $2
               for (i = 3; i <= NF; i++) { d = $i - one; if (d < 0) d = -d; if (d > most) { most = d; at_step = step } } }
            END { printf "%s: the loss differs from one device'\''s by at most %.1e, at step %d of %d\n", model, most, at_step, step }' \
            model="$model" "$out/plots/loss-$model.csv"
    done | paste -sd ';' - | sed -e 's/;/; /g' -e 's/$/./'
}

# The first rank's step, which comes first of DDP's in the file: when its first bucket was ready.
caption_timeline() {
    csv '
        file == 1 { row = of("from_row") + 0; if (!seen++ || row < first_row) first_row = row
            if (!(row in ready) || of("from_ms") + 0 < ready[row]) ready[row] = of("from_ms") + 0; buckets[row]++ }
        file == 2 && of("row") == first_row && of("phase") == "backward" {
            if (begin == "" || of("begin_ms") + 0 < begin) begin = of("begin_ms") + 0
            if (of("end_ms") + 0 > end) end = of("end_ms") + 0
        }
        END {
            if (!seen || end <= begin) exit
            printf "The first of DDP'\''s %d buckets is ready after %.0f %% of the backward pass.\n", buckets[first_row], \
                100 * (ready[first_row] - begin) / (end - begin)
        }' "$out/plots/arrows.csv" "$out/plots/timeline.csv"
}

# figure NAME TITLE: the figure and its sentence; where it was not drawn, the sentence alone.
figure() {
    [[ ! -s $out/$1.svg ]] || printf '![%s](%s.svg)\n\n' "$2" "$1"
    printf '*%s*\n' "$("caption_$1")"
}
