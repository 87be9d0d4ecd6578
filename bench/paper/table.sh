# table.sh: what paper.sh's files say, in tables, in sentences, and as the figures' data beside the paper's points.
# Sourced after compare/section.sh; uses out. What stays disturbed says so in its row and takes part in no sentence.

# settled FILE: a file's rows that count, with tabs: of each run, which the columns before `round` name, the rounds that
# were not disturbed, if they are at least half; otherwise all, with 1 in the column `disturbed`. The word "emulated"
# goes from the link's name: who shows the rows says it for all.
settled() {
    csv '
        { sub(/ \(emulated\)/, "") }
        { key = ""; for (i = 1; i < at["round"]; i++) key = key FS $i }
        file == 1 { all[key]++; quiet[key] += !of("disturbed"); next }
        { lost = 2 * quiet[key] < all[key] }
        lost || !of("disturbed") { $at["disturbed"] = lost; $1 = $1; print }' "$1" "$1"
}

# Awk's part of a program: do times lie so far apart that something disturbed them, though no probe says it? Half of
# the rounds within a quarter of each other are enough to go by.
# shellcheck disable=SC2016 # the program is awk's
far_apart='
    function are_far_apart(list, n) { return quantile(list, n, 0.75) > 1.25 * quantile(list, n, 0.25) }'

# medians FILE: "model link,KEY,median over the rounds of the last column,disturbed", in the order of first sight.
medians() {
    settled "$1" | awk -F'\t' -v OFS=, "$quantiles$far_apart"'
        {
            key = $1 " " $2 OFS $3
            if (!(key in n)) order[++keys] = key
            list[key, ++n[key]] = $NF
            disturbed[key] = $(NF - 1)
        }
        END {
            for (k = 1; k <= keys; k++) {
                key = order[k]
                for (i = 1; i <= n[key]; i++) one[i] = list[key, i]
                print key, quantile(one, n[key], 0.5), disturbed[key] || are_far_apart(one, n[key]) ? 1 : 0
            }
        }'
}

# undisturbed FILE: medians, without the runs of which a value is disturbed.
undisturbed() {
    medians "$1" | awk -F, '
        { row[NR] = $0; run[NR] = $1; lost[$1] += $4 }
        END { for (r = 1; r <= NR; r++) if (!lost[run[r]]) print row[r] }'
}

# median_table FILE HEAD: the medians as a row per run and a column per value of the key.
median_table() {
    medians "$1" | awk -F, -v OFS='\t' -v head="$2" '
        !($1 in seen) { seen[$1] = 1; run[++n] = $1 }
        !($2 in place) { place[$2] = ++m; head = head OFS $2 }
        { cell[$1, place[$2]] = $4 ? "disturbed" : sprintf("%.5f", $3) }
        END {
            print head
            for (k = 1; k <= n; k++) {
                line = run[k]
                for (i = 1; i <= m; i++) line = line OFS cell[run[k], i]
                print line
            }
        }'
}

# The rows of figure 6: the run, its parts as shares of the step without overlap, the overlapped step as such a share,
# and how much of what could be hidden was hidden, or "disturbed".
breakdown_rows() {
    tabbed run fwd bwd comm opt rest overlap hidden
    {
        settled "$out/breakdown.csv" | awk -F'\t' -v OFS=, '{ print $1 " " $2 " (emulated)", $5, $6, $7, $8, $9, $10, $4 }'
        awk -F, -v OFS=, 'NR > 1 { print $1 " (paper)", $2, $3, $4, $5, 0, $6, 0 }' bench/paper/figure6.csv
    } | awk -F, "$quantiles$far_apart"'
        {
            total = $2 + $3 + $4 + $5 + $6
            if (!($1 in n)) order[++runs] = $1
            r = ++n[$1]
            for (c = 2; c <= 7; c++) share[$1, c, r] = $c / total
            least = $3 < $4 ? $3 : $4
            share[$1, 8, r] = least > 0 ? (total - $7) / least : 0
            share[$1, 9, r] = total
            disturbed[$1] = $8
        }
        END {
            for (k = 1; k <= runs; k++) {
                run = order[k]
                for (c = 2; c <= 9; c++) {
                    for (r = 1; r <= n[run]; r++) one[r] = share[run, c, r]
                    median[c] = sprintf("%.3f", quantile(one, n[run], 0.5))
                }
                if (disturbed[run] || are_far_apart(one, n[run])) median[8] = "disturbed"
                printf "%s", run
                for (c = 2; c <= 8; c++) printf "\t%s", median[c]
                print ""
            }
        }'
}

# Awk's part of the sentences: a list of what is said of each run, "A, B and C"; or, where every run was disturbed,
# that there is nothing to be said. It ends the program then.
# shellcheck disable=SC2016 # the program is awk's
listing='
    function say(what) { said[++says] = what }
    function list(    i, text) {
        for (i = 1; i <= says; i++) text = text (i == 1 ? "" : i == says ? " and " : ", ") said[i]
        return text
    }
    function any() {
        if (!says) print "All of these runs stayed **disturbed**, so that nothing is said of their times."
        return says > 0
    }'

breakdown_sentence() {
    breakdown_rows | awk -F'\t' "$listing"'
        NR == 1 { next }
        $1 ~ / \(paper\)$/ { paper = paper sprintf("%s%.1f", paper ? ", " : "", 100 * (1 - $7)); next }
        $8 == "disturbed" { next }
        { sub(/ \(emulated\)$/, "", $1); say(sprintf("%.0f %% for %s", 100 * (1 - $7), $1)) }
        END { if (any()) print "Over emulated links overlapping saves of the step " list() " (in the paper " paper " %)." }'
}

# One sentence about the bucket size that was the fastest for each model and link.
buckets_sentence() {
    undisturbed "$out/buckets.csv" | awk -F, "$listing"'
        !($1 in least) { order[++n] = $1 }
        !($1 in least) || $3 < least[$1] { least[$1] = $3; at[$1] = $2 }
        $2 == 0 { alone[$1] = $3 }
        END {
            for (k = 1; k <= n; k++)
                say(sprintf("%s MB for %s (every gradient alone takes %+.0f %%)", at[order[k]], order[k], \
                    100 * (alone[order[k]] / least[order[k]] - 1)))
            if (any()) print "Over emulated links the fastest bucket is " list() "; in the paper 25 and 50 MB with NCCL, 5 MB with Gloo."
        }'
}

worlds_sentence() {
    undisturbed "$out/worlds.csv" | awk -F, "$listing"'
        !($1 in first) { first[$1] = $3; order[++n] = $1 }
        { last[$1] = $3; ranks = $2 }
        END {
            for (k = 1; k <= n; k++) say(sprintf("%.2f times for %s", last[order[k]] / first[order[k]], order[k]))
            if (any()) print "With " ranks " ranks over emulated links an iteration takes as long as with one " list() \
                "; in the paper, with 256, 2.0 to 7.3 times."
        }'
}

skip_sentence() {
    undisturbed "$out/skip.csv" | awk -F, "$listing"'
        $2 == 1 { one[$1] = $3; order[++n] = $1 }
        $2 == 8 { eight[$1] = $3 }
        END {
            for (k = 1; k <= n; k++) say(sprintf("%.0f %% for %s", 100 * (1 - eight[order[k]] / one[order[k]]), order[k]))
            if (any()) print "Synchronising every 8th iteration over emulated links saves " list() \
                "; in the paper 36 % (NCCL) and 59 % (Gloo) on 256 GPUs."
        }'
}

# The rows of figure 11: the loss at first and at the end, how far that is above the loss of those that never skip, and
# the same in the paper, where "at most" is what its figure lets see.
convergence_rows() {
    tabbed model batch every "loss at first" "at the end" "above every 1" "in the paper"
    csv '
        file == 1 { paper[of("batch"), of("every")] = of("above"); next }
        {
            key = of("model") OFS of("batch") OFS of("every")
            if (!(key in first)) { first[key] = of("loss"); order[++n] = key }
            last[key] = of("loss")
            beside[key] = of("model") OFS of("batch") OFS 1
            theirs[key] = paper[of("batch"), of("every")]
        }
        END {
            for (k = 1; k <= n; k++) {
                key = order[k]
                print key, sprintf("%.3f", first[key]), sprintf("%.3f", last[key]), sprintf("%+.3f", last[key] - last[beside[key]]), \
                    sprintf("%+.2f", theirs[key])
            }
        }' bench/paper/figure11.csv "$out/convergence.csv"
}

convergence_sentence() {
    convergence_rows | awk -F'\t' "$listing"'
        NR == 1 || $3 == 1 { next }
        {
            key = $1 ", batch " $2
            if (!(key in most)) order[++n] = key
            if (!(key in most) || $6 > most[key] + 0) most[key] = $6
            if (!($2 in paper)) { paper[$2] = $7; batches[++m] = $2 }
        }
        END {
            for (k = 1; k <= n; k++) say(sprintf("%s (%s)", most[order[k]], order[k]))
            printf "At the end the loss of those that skip lies at most %s above the loss of every iteration; in the paper", list()
            for (b = 1; b <= m; b++) printf "%s %s (batch %s)", (b > 1 ? " and" : ""), paper[batches[b]], batches[b]
            print "."
        }'
}

# line_data FIGURE RANKED GAP: makes of rows "panel,run,x,y,disturbed" what a figure of lines reads (lines.awk).
line_data() {
    awk -v ranked="$2" -v gap="$3" -f bench/paper/lines.awk >"$out/plots/paper-$1.csv"
}

# Writes what the figures read: plots/paper-FIGURE.csv, and plots/paper-runs.gp, which says which lines each panel has and what
# stands at its positions.
write_paper_plots() {
    local figure side
    breakdown_rows | awk -F'\t' -v OFS=, '
        NR == 1 { print "row,run,forward,backward,communication,optimizer,rest,overlapped,disturbed"; next }
        { print NR - 1, $1, $2, $3, $4, $5, $6, $7, $8 == "disturbed" ? 1 : 0 }' >"$out/plots/paper-breakdown.csv"
    { medians "$out/buckets.csv" | sed 's/^/here,/' && paper_points figure7.csv; } | line_data buckets 1 0.09
    { medians "$out/worlds.csv" | sed 's/^/here,/' && paper_points figure9.csv; } | line_data worlds 1 0.09
    { medians "$out/skip.csv" | sed 's/^/here,/' && paper_points figure10.csv; } | line_data skip 1 0.09
    {
        awk -F, -v OFS=, 'NR > 1 { print $1 " " $2, "every " $3, $4, $5, 0 }' "$out/convergence.csv"
        awk -F, -v OFS=, 'NR > 1 && $4 { print "paper " $1, "every " $2, $3, $4, 0 }' bench/paper/figure11.csv
    } | line_data convergence 0 0.11
    {
        echo "models = '$models paper'"
        for figure in buckets worlds skip; do
            for side in here paper; do
                csv '
                    of("panel") != side { next }
                    of("label") { line = line (line ? " " : "") "'\''" of("label") "'\''" }
                    { x[of("position")] = of("x") }
                    END {
                        print name "_" side " = \"" line "\""
                        for (p = 1; p in x; p++) places = places (places ? " " : "") x[p]
                        print name "_" side "_x = \"" places "\""
                    }' name=$figure side=$side "$out/plots/paper-$figure.csv"
            done
        done
    } >"$out/plots/paper-runs.gp"
}

# paper_points FILE: the paper's points of a figure of lines; of figure 10 those of its largest number of GPUs.
paper_points() {
    csv '{ gpus = "gpus" in at && "every" in at ? of("gpus") : 256 }
        gpus == 256 { print "paper," of("run") "," $2 "," of("seconds") ",0" }' "bench/paper/$1"
}
