# table.sh: what peers.csv says: the table, the sentences, the figure's data. Sourced by compare.sh after
# compare/section.sh; uses out.
#
# A ratio is the peer's time by ours in the same round, above 1 where we are faster; shown are its median and
# quartiles over the rounds that were undisturbed. Where more were disturbed than not, nothing is claimed.

# What is aimed at with two ranks: the least ratio.
targets='
    function target(kind, what, world, peer) {
        if (world != 2) return 0
        if (kind == "all-reduce") return peer == "Open MPI" ? 4 : peer == "Gloo" ? 8 : 0
        if (peer != "PyTorch DDP") return 0
        return what == "mlp" || what == "convnet" ? 1.5 : what == "resnet20" ? 1.1 : 0
    }'

# A row per pair: kind what world peer good rounds ours theirs ratio low high target verdict. Times are medians
# in ms. verdict: reached, missed, "-" without a target, disturbed.
pair_rows() {
    tabbed kind what world peer good rounds ours theirs ratio low high target verdict
    csv "$quantiles$targets"'
        {
            pair = of("kind") SUBSEP of("what") SUBSEP of("world") SUBSEP of("peer")
            if (!(pair in rounds)) order[++pairs] = pair
            rounds[pair]++
            if (of("disturbed") + 0) next
            n = ++good[pair]
            ours[pair, n] = of("ours_ms")
            theirs[pair, n] = of("theirs_ms")
        }
        function median_of(values, pair, n,    list, i) {
            for (i = 1; i <= n; i++) list[i] = values[pair, i]
            return quantile(list, n, 0.5)
        }
        function row(pair,    field, n, i, ratios, least, median) {
            split(pair, field, SUBSEP)
            n = good[pair] + 0
            least = target(field[1], field[2], field[3], field[4])
            printf "%s\t%s\t%d\t%s\t%d\t%d\t", field[1], field[2], field[3], field[4], n, rounds[pair]
            if (n == 0 || 2 * n < rounds[pair]) {
                printf "-\t-\t-\t-\t-\t%s\tdisturbed\n", (least ? least : "-")
                return
            }
            for (i = 1; i <= n; i++) ratios[i] = theirs[pair, i] / ours[pair, i]
            median = quantile(ratios, n, 0.5)
            printf "%.5g\t%.5g\t%.3f\t%.3f\t%.3f\t%s\t%s\n", median_of(ours, pair, n), median_of(theirs, pair, n), \
                median, quantile(ratios, n, 0.25), quantile(ratios, n, 0.75), least ? least : "-", \
                (!least ? "-" : median >= least ? "reached" : "missed")
        }
        END { for (p = 1; p <= pairs; p++) row(order[p]) }' "$out/peers.csv"
}

# The table for people: pair_rows with fewer digits. In a row that is named after a size in MiB an all-reduce was timed.
peer_rows() {
    tabbed what peer ranks "ours ms" theirs ratio quartiles aim rounds
    pair_rows | awk -F'\t' -v OFS='\t' 'NR > 1 {
        if ($13 == "disturbed") print $2, $4, $3, "-", "-", "-", "disturbed", $12, $5 "/" $6
        else print $2, $4, $3, sprintf("%.3g", $7), sprintf("%.3g", $8), short($9), short($10) "-" short($11), $12, $5 "/" $6
    }
    function short(ratio) { return sprintf(ratio < 100 ? "%.2f" : "%.0f", ratio) }'
}

# One sentence per peer with two ranks, from the undisturbed rows; and what became of the aims, which rows missed them.
peer_sentences() {
    pair_rows | awk -F'\t' '
        NR > 1 && $12 != "-" { aims++; reached += $13 == "reached"; unclear += $13 == "disturbed" }
        $13 == "missed" { missed = missed (missed == "" ? "" : ", ") sprintf("%s beside %s (%.2f of %s)", $2, $4, $9, $12) }
        NR > 1 && $3 == 2 && $9 != "-" {
            if (!($4 in said)) peers[++n] = $4
            word = $1 == "all-reduce" ? "adds up " $2 : "trains " $2
            said[$4] = said[$4] (said[$4] == "" ? "" : ", ") sprintf("%s %.2f times", word, $9)
        }
        END {
            for (i = 1; i <= n; i++) printf "Beside %s, ours %s as fast with two ranks.\n", peers[i], said[peers[i]]
            if (aims) printf "Of %d aims %d %s reached", aims, reached, reached == 1 ? "was" : "were"
            if (aims && unclear) printf ", and %d cannot be told, because the machine was disturbed", unclear
            if (aims && missed != "") printf "; missed: %s", missed
            if (aims) print "."
        }'
}

# One sentence about the distance between the gradients.
gradient_sentence() {
    csv '
        { tensors++; held += of("held") }
        of("max_magnitude") + 0 > 0 && of("max_abs") / of("max_magnitude") > worst {
            worst = of("max_abs") / of("max_magnitude")
            where = of("model") ", " of("tensor")
        }
        END {
            printf "The gradients of the first step agreed in %d of %d comparisons of a tensor; the largest", held, tensors
            printf " difference was %.1e of the tensor'\''s largest magnitude%s.\n", worst, where == "" ? "" : " (" where ")"
        }' "$out/gradients.csv"
}

# plots/peers.csv: a bar per undisturbed row.
write_peers_plot() {
    {
        echo row,label,ratio,low,high,target
        pair_rows | awk -F'\t' -v OFS=, 'NR > 1 && $9 != "-" {
            label = $4 ": " $2 " (" $3 ")"
            print ++row, label, $9, $10, $11, ($12 == "-" ? "NaN" : $12)
        }'
    } >"$out/plots/peers.csv"
}

# The figure, and under it one sentence about the smallest and the largest ratio.
peers_figure() {
    [[ $(wc -l <"$out/plots/peers.csv") -gt 1 ]] || { echo "(Everything was disturbed: there is no figure.)" && return; }
    draw_section peers
    echo
    csv '
        { if (!n++ || of("ratio") + 0 > most) { most = of("ratio") + 0; top = of("label") } }
        { if (n == 1 || of("ratio") + 0 < least) { least = of("ratio") + 0; low = of("label") } }
        END { if (n) printf "The ratios lie between %.2f (%s) and %.2f (%s); above 1 we are faster.\n", least, low, most, top }
    ' "$out/plots/peers.csv"
}
