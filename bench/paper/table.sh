# table.sh: what paper.sh's files say, in tables, in sentences, and as the figures' data beside the paper's points.
# Sourced after compare/section.sh; uses out.

# medians FILE KEY: "model link, KEY, median over the rounds of the last column", in the order of first sight.
medians() {
    awk -F, -v OFS=, "$quantiles"'
        NR == 1 { next }
        {
            key = $1 " " $2 OFS $3
            if (!(key in n)) order[++keys] = key
            list[key, ++n[key]] = $NF
        }
        END {
            for (k = 1; k <= keys; k++) {
                for (i = 1; i <= n[order[k]]; i++) one[i] = list[order[k], i]
                print order[k], quantile(one, n[order[k]], 0.5)
            }
        }' "$1"
}

# widen HEAD: rows "series,x,y" as one row per x and a column per series, for gnuplot; sorted by x.
widen() {
    awk -F, -v OFS=, -v head="$1" '
        {
            if (!($1 in is_series)) { is_series[$1] = 1; series[++n] = $1 }
            if (!($2 in is_x)) { is_x[$2] = 1; x[++m] = $2 }
            y[$1, $2] = $3
        }
        END {
            for (i = 2; i <= m; i++)
                for (j = i; j > 1 && x[j - 1] + 0 > x[j] + 0; j--) { t = x[j]; x[j] = x[j - 1]; x[j - 1] = t }
            line = head
            for (k = 1; k <= n; k++) line = line OFS series[k]
            print line
            for (i = 1; i <= m; i++) {
                line = x[i]
                for (k = 1; k <= n; k++) line = line OFS (((series[k], x[i]) in y) ? y[series[k], x[i]] : "NaN")
                print line
            }
        }'
}

# The rows of figure 6: the run, its parts as shares of the step without overlap, the overlapped step as such a share,
# and how much of what could be hidden was hidden.
breakdown_rows() {
    tabbed run fwd bwd comm opt rest overlap hidden
    {
        awk -F, 'NR > 1 { print $1 " " $2 "," $4 "," $5 "," $6 "," $7 "," $8 "," $9 }' "$out/breakdown.csv"
        awk -F, 'NR > 1 { print $1 " (paper)," $2 "," $3 "," $4 "," $5 ",0," $6 }' bench/paper/figure6.csv
    } | awk -F, -v OFS='\t' "$quantiles"'
        {
            total = $2 + $3 + $4 + $5 + $6
            if (!($1 in n)) order[++runs] = $1
            r = ++n[$1]
            for (c = 2; c <= 7; c++) share[$1, c, r] = $c / total
            least = $3 < $4 ? $3 : $4
            share[$1, 8, r] = least > 0 ? (total - $7) / least : 0
        }
        END {
            for (k = 1; k <= runs; k++) {
                printf "%s", order[k]
                for (c = 2; c <= 8; c++) {
                    for (r = 1; r <= n[order[k]]; r++) one[r] = share[order[k], c, r]
                    printf "\t%.3f", quantile(one, n[order[k]], 0.5)
                }
                print ""
            }
        }'
}

breakdown_sentence() {
    breakdown_rows | awk -F'\t' '
        NR > 1 && !/paper/ {
            printf "%s%s %.0f %%", separator, $1, 100 * (1 - $7)
            separator = ", "
        }
        END { print " of the step is saved by overlapping (the paper: 38.0, 26.8, 35.2 and 21.5 %)." }'
}

# One sentence about the bucket size that was the fastest for each model and link.
bucket_sentence() {
    medians "$out/buckets.csv" | awk -F, '
        !($1 in least) || $3 < least[$1] { least[$1] = $3; at[$1] = $2 }
        !($1 in seen) { seen[$1] = 1; order[++n] = $1 }
        $2 == 0 { alone[$1] = $3 }
        END {
            printf "The fastest bucket is "
            for (k = 1; k <= n; k++)
                printf "%s%s MB for %s (every gradient alone takes %+.0f %%)", (k > 1 ? ", " : ""), at[order[k]], order[k], \
                    100 * (alone[order[k]] / least[order[k]] - 1)
            print "; in the paper 25 and 50 MB with NCCL, 5 MB with Gloo."
        }'
}

world_sentence() {
    medians "$out/worlds.csv" | awk -F, '
        !($1 in first) { first[$1] = $3; order[++n] = $1 }
        { last[$1] = $3; ranks = $2 }
        END {
            printf "With %d ranks an iteration takes ", ranks
            for (k = 1; k <= n; k++) printf "%s%.2f times as long as with one for %s", (k > 1 ? ", " : ""), last[order[k]] / first[order[k]], order[k]
            print "; in the paper, with 256, 2.0 to 7.3 times."
        }'
}

skip_sentence() {
    medians "$out/skip.csv" | awk -F, '
        $2 == 1 { one[$1] = $3; order[++n] = $1 }
        $2 == 8 { eight[$1] = $3 }
        END {
            printf "Synchronising every 8th iteration saves "
            for (k = 1; k <= n; k++) printf "%s%.0f %% for %s", (k > 1 ? ", " : ""), 100 * (1 - eight[order[k]] / one[order[k]]), order[k]
            print "; in the paper 36 % (NCCL) and 59 % (Gloo) on 256 GPUs."
        }'
}

convergence_rows() {
    tabbed batch every "loss at first" "loss at the end"
    awk -F, -v OFS='\t' '
        NR == 1 { next }
        {
            key = $1 OFS $2
            if (!(key in first)) { first[key] = $4; order[++n] = key }
            last[key] = $4
        }
        END { for (k = 1; k <= n; k++) printf "%s\t%.3f\t%.3f\n", order[k], first[order[k]], last[order[k]] }' \
        "$out/convergence.csv"
}

# The rows of the paper's figure 10 at its largest number of GPUs.
paper_skipping() {
    awk -F, -v OFS=, 'NR > 1 && $3 == 256 { print $1, $2, $4 }' bench/paper/figure10.csv
}

write_paper_plots() {
    breakdown_rows | awk -F'\t' -v OFS=, '
        NR == 1 { print "row,run,forward,backward,communication,optimizer,rest,overlapped"; next }
        { print NR - 1, $1, $2, $3, $4, $5, $6, $7 }' >"$out/plots/paper-breakdown.csv"
    medians "$out/buckets.csv" | widen bucket_mb >"$out/plots/buckets-here.csv"
    tail -n +2 bench/paper/figure7.csv | widen bucket_mb >"$out/plots/buckets-paper.csv"
    medians "$out/worlds.csv" | widen ranks >"$out/plots/worlds-here.csv"
    tail -n +2 bench/paper/figure9.csv | widen gpus >"$out/plots/worlds-paper.csv"
    medians "$out/skip.csv" | widen every >"$out/plots/skip-here.csv"
    paper_skipping | widen every >"$out/plots/skip-paper.csv"
    local figure side
    for figure in buckets worlds skip; do
        for side in here paper; do
            awk -F, -v name="${figure}_$side" 'NR == 1 { print name " = " NF - 1 }' "$out/plots/$figure-$side.csv"
        done
    done >"$out/plots/paper-columns.gp"
}
