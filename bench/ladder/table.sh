# table.sh: what the runs of the ladder say: its rows, the sentences, the figure's data. Sourced by ablation.sh after
# compare/section.sh and disturbed.sh; uses out, turns and networks. A network is named by its place in networks, N:
# plots/rounds-N.csv has all rounds of all turns, plots/trainers-N.csv a row for each trainer and turn.
#
# Rounds of a turn that was disturbed do not count. A rung is disturbed if most of its rounds were, or if the quartiles
# of its step lie more than a quarter of it apart; so is what it saves, and what the next one saves over it. No sentence
# speaks of these.

# called N: prints what a network is called in texts.
called() {
    [[ ${networks[$1]} == memory ]] && echo "through memory" || echo "${networks[$1]}, emulated"
}

# is_disturbed RUN...: prints 1 if one of the runs was disturbed, otherwise 0.
is_disturbed() {
    local run disturbed=0
    for run; do ! grep -qxF -- "$run" "$out/disturbed.txt" || disturbed=1; done
    echo $disturbed
}

# The rounds of all turns over network N, from what bench_ladder wrote in each.
round_rows() {
    local turn
    echo "turn,disturbed,$(head -n 1 "$out/runs/ladder-$1-1/rounds.csv")"
    for ((turn = 1; turn <= turns; turn++)); do
        sed "1d; s/^/$turn,$(is_disturbed "ladder-$1-$turn"),/" "$out/runs/ladder-$1-$turn/rounds.csv"
    done
}

# The trainers' steps over network N, each beside the step of its rung in the same turn.
trainer_rows() {
    local turn program rung
    echo turn,disturbed,program,step_ms,rung,rung_ms
    for ((turn = 1; turn <= turns; turn++)); do
        for program in train_dp train_ddp; do
            [[ $program == train_dp ]] && rung="kept threads" || rung=overlap
            echo "$turn,$(is_disturbed "$program-$1-$turn" "ladder-$1-$turn"),$program,$(
                json step_ms_p50 "$out/runs/$program-$1-$turn/summary.json"),$rung,$(
                csv "$quantiles"'of("rung") == rung { ms[++n] = of("ms") } END { print quantile(ms, n, 0.5) }' \
                    rung="$rung" "$out/runs/ladder-$1-$turn/rounds.csv")"
        done
    done
}

# The ladder over network N: a row for each rung, with the quartiles over the rounds that count.
ladder_rows() {
    csv "$quantiles"'
        {
            i = place[of("rung")]
            if (!i) {
                i = place[of("rung")] = ++rungs
                about[i] = of("link") "," of("rung") "," of("says") "," of("devices")
            }
            round = of("turn") " " of("round")
            if (i == 1) { rounds[++n] = round; bad[round] = of("disturbed") + 0; good += !bad[round] }
            ms[i, round] = of("ms")
            if (weights[i] == "" || weights[i] == "equal") weights[i] = of("weights")
        }
        function quartiles(list, n) {
            return sprintf("%.6f,%.6f,%.6f", quantile(list, n, 0.25), quantile(list, n, 0.5), quantile(list, n, 0.75))
        }
        function row(i,    r, count, mine, saved, here) {
            for (r = 1; r <= n; r++) {
                if (bad[rounds[r]] && !most) continue
                mine[++count] = ms[i, rounds[r]]
                saved[count] = ms[i - 1, rounds[r]] - ms[i, rounds[r]]
            }
            here = most || quantile(mine, count, 0.75) - quantile(mine, count, 0.25) > quantile(mine, count, 0.5) / 4
            printf "%s,%s,%s,%d,%d,%s\n", about[i], quartiles(mine, count), \
                i == 1 ? "-,-,-" : quartiles(saved, count), count, here || above, weights[i]
            above = here
        }
        END {
            print "link,rung,says,devices,ms_p25,ms_p50,ms_p75,saved_ms_p25,saved_ms_p50,saved_ms_p75,rounds,disturbed,weights"
            most = 2 * good < n
            for (i = 1; i <= rungs; i++) row(i)
        }' "$out/plots/rounds-$1.csv"
}

# The ladder over network N for a terminal of 80 columns.
ladder_lines() {
    csv 'BEGIN { printf "%-14s %-40s %7s %9s %s\n", "ingredient", "", "ms", "saves", "bits" }
        {
            saves = of("saved_ms_p50") == "-" ? "" : sprintf("%+.3f", of("saved_ms_p50"))
            printf "%-14s %-40s %7.3f %9s %s\n", of("rung"), of("says"), of("ms_p50"), \
                of("disturbed") + 0 ? "disturbed" : saves, of("weights") == "equal" ? "equal" : "DIFFER"
        }' "$out/plots/ladder-$1.csv"
}

# The same as a table of the report.
ladder_table() {
    csv 'BEGIN { print "| ingredient | | ms | saves | quartiles | bits |\n|---|---|---:|---:|---:|---|" }
        {
            saved = of("saved_ms_p50") == "-" ? " | " : \
                sprintf("%+.3f | %+.3f to %+.3f", of("saved_ms_p50"), of("saved_ms_p25"), of("saved_ms_p75"))
            printf "| %s | %s | %.3f | %s | %s |\n", of("rung"), of("says"), of("ms_p50"), \
                of("disturbed") + 0 ? "disturbed | -" : saved, of("weights")
        }' "$out/plots/ladder-$1.csv"
}

# rounds_sentence N: how many rounds count.
rounds_sentence() {
    csv '!((of("turn"), of("round")) in seen) { seen[of("turn"), of("round")]; all++; good += !(of("disturbed") + 0) }
        END {
            if (2 * good < all) printf "%d of %d rounds were disturbed: nothing is concluded.\n", all - good, all
            else if (good == all) printf "All %d rounds count.\n", all
            else printf "%d of %d rounds count; the others were disturbed.\n", good, all
        }' "$out/plots/rounds-$1.csv"
}

# trainer_sentence N PROGRAM WEIGHTS: whether its step is that of its rung, by the median of the ratios within turns.
trainer_sentence() {
    csv "$quantiles"'
        of("program") == program {
            turns++
            rung = of("rung")
            if (!(of("disturbed") + 0)) ratio[++n] = of("rung_ms") / of("step_ms")
        }
        END {
            times = quantile(ratio, n, 0.5)
            if (n == 0 || 2 * n < turns)
                printf "%s beside %s: disturbed, within 5 %%: unknown; weights %s\n", rung, program, weights
            else
                printf "%s takes %.3f times %s'\''s step, within 5 %%: %s; weights %s\n", rung, times, program, \
                    (times >= 0.95 && times <= 1.05 ? "yes" : "no"), weights
        }' program="$2" weights="$3" "$out/plots/trainers-$1.csv"
}

# ladder_sentence N: which rungs save or cost more than a fiftieth of DP's step over the network.
ladder_sentence() {
    csv 'function add(list, name, ms) { return list (list ? ", " : "") sprintf("%s %.1f", name, ms) }
        of("rung") == "fresh threads" { fresh = of("ms_p50") }
        of("rung") == "kept threads" { dp = of("ms_p50"); unsure = of("disturbed") + 0; next }
        !dp { next }
        of("disturbed") + 0 { untold = untold (untold ? ", " : "") of("rung") }
        !(of("disturbed") + 0) && of("saved_ms_p50") > dp / 50 { saves = add(saves, of("rung"), of("saved_ms_p50")) }
        !(of("disturbed") + 0) && of("saved_ms_p50") < -dp / 50 { costs = add(costs, of("rung"), -of("saved_ms_p50")) }
        { ddp = of("ms_p50"); last = of("disturbed") + 0 }
        END {
            printf "**%s**: ", network
            if (unsure || last) { print "disturbed by other work; no conclusion."; exit }
            printf "DataParallel takes %.1f ms a step (%.1f with fresh threads), DistributedDataParallel %.1f. ", dp, fresh, ddp
            printf "Milliseconds saved by: %s; added by: %s.", saves ? saves : "nothing", costs ? costs : "nothing"
            print untold ? " Disturbed: " untold "." : ""
        }' network="$(called "$1")" "$out/plots/ladder-$1.csv"
}

# The bars that ladder.gp draws for network N.
bar_rows() {
    csv 'function bar(name, low, high, saved, kind) {
            printf "%d,%s,%.6f,%.6f,%.6f,%s\n", ++row, name, low, high, saved, of("disturbed") + 0 ? "disturbed" : kind
        }
        BEGIN { print "row,rung,low_ms,high_ms,saved_ms,kind" }
        {
            ms = of("ms_p50")
            saved = of("saved_ms_p50")
            if (saved == "-") bar(of("rung"), 0, ms, 0, "first")
            else bar(of("rung"), saved < 0 ? ms + saved : ms, saved < 0 ? ms : ms + saved, saved, saved < 0 ? "takes" : "saves")
        }
        END { bar("DDP", 0, ms, 0, "last") }' "$out/plots/ladder-$1.csv"
}
