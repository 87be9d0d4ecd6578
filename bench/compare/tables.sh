# tables.sh: what the CSV files and the runs' records say, as rows of fields separated by tabs; the
# same rows fill the terminal and report.md. Sourced by compare.sh.

# The table of the speeds, a row for each configuration.
speed_rows() {
    tabbed model strategy devices samples/s "step ms" p25-p75 speed-up "device 0 MB" "others MB" \
        "moved MB/step"
    csv '
        of("strategy") == "single" && !of("disturbed") { one[of("model")] = of("samples_per_s_p50") }
        {
            speed_up = of("disturbed") ? "disturbed" : "-"
            if (of("timed") && !of("disturbed") && of("model") in one)
                speed_up = sprintf("%.2f", of("samples_per_s_p50") / one[of("model")])
            times = "-" OFS "-" OFS "-" OFS "-" # of a row that is not timed
            if (of("timed"))
                times = sprintf("%.0f", of("samples_per_s_p50")) OFS sprintf("%.2f", of("step_ms_p50")) \
                    OFS sprintf("%.2f-%.2f", of("step_ms_p25"), of("step_ms_p75")) \
                    OFS speed_up
            print of("model"), of("strategy"), of("world_size"), times, \
                sprintf("%.2f", of("peak_bytes_device0") / 1e6), \
                (of("world_size") == 1 ? "-" : sprintf("%.2f", of("peak_bytes_other") / 1e6)), \
                sprintf("%.2f", of("moved_bytes_per_step") / 1e6)
        }' "$out/summary.csv"
}

# How long DDP's all-reduces took, and what of that the backward pass hid.
communication_rows() {
    tabbed model devices "all-reduces ms" "exposed ms" hidden
    csv 'of("strategy") == "ddp" && of("timed") && !of("disturbed") && of("communication_ms") > 0 {
            hidden = 1 - of("exposed_ms") / of("communication_ms")
            print of("model"), of("world_size"), sprintf("%.2f", of("communication_ms")), \
                sprintf("%.2f", of("exposed_ms")), sprintf("%.0f %%", hidden > 0 ? 100 * hidden : 0)
        }' "$out/summary.csv"
}

# The longer runs: accuracy, and the largest distance of the loss from one device's and from DP's.
curve_rows() {
    local model strategy world run to_dp
    tabbed model strategy devices epochs "last loss" "test accuracy" best \
        "loss - one device's" "loss - DP's"
    for model in $(curve_models); do
        while read -r strategy world; do
            run=$out/runs/curve-$model-$strategy-$world
            to_dp=-
            [[ $strategy != ddp ]] || to_dp=$(loss_distance "$run" "$out/runs/curve-$model-dp-$world")
            tabbed "$model" "$strategy" "$world" "$epochs" \
                "$(json final_loss "$run/summary.json" | awk '{ printf "%.3g", $1 }')" \
                "$(json test_accuracy "$run/summary.json" | percent)" \
                "$(json best_test_accuracy "$run/summary.json" | percent)" \
                "$(loss_distance "$run" "$out/runs/curve-$model-single-1")" "$to_dp"
        done < <(configurations)
    done
}

tabbed() {
    local IFS=$'\t'
    echo "$*"
}

percent() {
    awk '{ print NF ? sprintf("%.2f %%", 100 * $1) : "-" }'
}

# loss_distance RUN RUN: the largest difference between their losses at any step.
loss_distance() {
    [[ $1 != "$2" ]] || { echo - && return; }
    csv '
        file == 1 { loss[of("step")] = of("loss") }
        file == 2 { d = of("loss") - loss[of("step")]; if (d < 0) d = -d; if (d > most) most = d }
        END { print most == 0 ? "0" : sprintf("%.1e", most) }' "$1/steps.csv" "$2/steps.csv"
}

# The table of the equivalences, a row for each pair of runs.
equivalence_rows() {
    tabbed model a b required tensors "gradients ULP" "weights ULP" "optimizer ULP" "buffers ULP" held
    csv '{
            pair = of("model") OFS of("a") OFS of("b") OFS \
                (of("required") == "bitwise" ? "same bits" : "tolerance")
            what = of("what")
            distance = of("max_ulp") + 0
            if (!(pair in rows)) order[++n] = pair
            rows[pair]++
            held[pair] += of("held")
            if (!((pair, what) in ulp) || distance > ulp[pair, what]) ulp[pair, what] = distance
        }
        function worst(pair, what) { return (pair, what) in ulp ? ulp[pair, what] : "-" }
        END {
            for (i = 1; i <= n; i++) {
                p = order[i]
                print p, rows[p], worst(p, "gradient"), worst(p, "weight"), worst(p, "optimizer"), \
                    worst(p, "buffer"), (held[p] == rows[p] ? "yes" : "NO: " rows[p] - held[p] " differ")
            }
        }' "$out/equivalence.csv"
}

# Tab-separated rows as a Markdown table, and as aligned columns for the terminal. A column in which every field begins
# with a number stands to the right.
markdown_table() {
    awk -F'\t' '{
            line[NR] = "|"
            for (i = 1; i <= NF; i++) {
                line[NR] = line[NR] " " $i " |"
                if (NR > 1 && $i !~ /^[-+]?[0-9]|^-$|^disturbed$/) words[i] = 1
            }
        }
        NR == 1 { columns = NF }
        END {
            for (r = 1; r <= NR; r++) {
                print line[r]
                if (r > 1) continue
                printf "|"
                for (i = 1; i <= columns; i++) printf "%s|", words[i] ? "---" : "---:"
                print ""
            }
        }'
}

terminal_table() {
    awk -F'\t' '{
            for (i = 1; i <= NF; i++) {
                cell[NR, i] = $i
                if (length($i) > wide[i]) wide[i] = length($i)
            }
        }
        END {
            for (r = 1; r <= NR; r++) {
                line = ""
                for (i = 1; i <= NF; i++) line = line sprintf(i < 3 ? "%-*s  " : "%*s  ", wide[i], cell[r, i])
                sub(/ +$/, "", line)
                print line
            }
        }'
}

# Configurations that something else disturbed, and how far their repeats' medians lie apart.
disturbed() {
    csv 'of("disturbed") + 0 {
            printf "%s %s:%s (its runs lie %.0f %% apart)\n", of("model"), of("strategy"), of("world_size"), \
                100 * of("spread")
        }' "$out/summary.csv"
}

verdict_line() {
    local rows held
    rows=$(awk 'END { print NR - 1 }' "$out/equivalence.csv")
    held=$(csv '{ n += of("held") } END { print n + 0 }' "$out/equivalence.csv")
    if [[ $equivalence_failures == 0 ]]; then
        echo "Equivalence: held in all $comparisons comparisons, $rows tensors."
    else
        echo "Equivalence: BROKEN in $equivalence_failures of $comparisons comparisons" \
            "($held of $rows tensors held)."
    fi
}

print_summary() {
    echo
    speed_rows | cut -f 1-7 | terminal_table
    echo
    speed_rows | cut -f 1-3,8-10 | terminal_table
    echo
    curve_rows | cut -f 1-7 | terminal_table
    echo
    equivalence_rows | cut -f 1-4,6,10 | terminal_table
    echo
    [[ -z $(timed_worlds) ]] || answer_lines | fold -s -w 79
    zero_lines | fold -s -w 79
    echo
    disturbed | sed 's/^/disturbed: /'
    why_untimed
}

equivalence_verdict() {
    verdict_line
    [[ $equivalence_failures == 0 && $comparisons -gt 0 ]]
}
