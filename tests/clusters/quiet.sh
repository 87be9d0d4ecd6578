# quiet.sh: repeats measurements until enough of them were undisturbed by other load; sourced after programs/checks.sh,
# for measurements, not for tests.
#
#     repeat NAME WANTED MOST COMMAND...   runs COMMAND, which prints the figures of a repetition on one line, until
#                                          WANTED repetitions were undisturbed or MOST were made; writes NAME.reps
#     undisturbed NAME                     prints the figures of undisturbed repetitions, one per line
#     medians NAME                         prints their medians by column; nothing with fewer than WANTED
#
# A line of NAME.reps is "GFLOPS TRIAD IDLE STEAL WANTED FIGURE...": the lower rates of two runs of bench_probe, before
# and after the repetition; the idle share of the cores while this script slept before it; and the share that the
# hypervisor stole between the probes. A repetition is disturbed if a rate is below four fifths of the best one, if
# other processes computed (IDLE below 0.9), or if more than a fiftieth was stolen.

# The cores' times so far, in ticks: "all idle stolen".
ticks() {
    awk '$1 == "cpu" { print $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9, $5 + $6, $9; exit }' /proc/stat
}

probe() {
    "$bin/bench_probe" | sed 's/.*gflops=\([0-9.]*\) triad_gbps=\([0-9.]*\).*/\1 \2/'
}

undisturbed() {
    awk 'FNR == NR { if ($1 > gflops) gflops = $1; if ($2 > triad) triad = $2; next }
        $1 < 0.8 * gflops || $2 < 0.8 * triad || $3 < 0.9 || $4 > 0.02 { next }
        { line = $6; for (i = 7; i <= NF; i++) line = line " " $i; print line }' "$1.reps" "$1.reps"
}

repeat() {
    series=$1 wanted=$2 most=$3 made=0
    shift 3
    : >"$series.reps"
    while [ "$(undisturbed "$series" | wc -l)" -lt "$wanted" ] && [ $made -lt "$most" ]; do
        asleep=$(ticks)
        sleep 0.5
        begin=$(ticks)
        before=$(probe)
        figures=$("$@")
        echo "$asleep $begin $(ticks) $before $(probe) $wanted $figures" | awk '{
            all = $4 - $1
            printf "%s %s %.3f %.3f", ($10 < $12 ? $10 : $12), ($11 < $13 ? $11 : $13), (all ? ($5 - $2) / all : 1), ($9 - $6) / ($7 - $4)
            for (i = 14; i <= NF; i++) printf " %s", $i
            print ""
        }' >>"$series.reps"
        made=$((made + 1))
    done
    echo "$series: $made repetitions, $((made - $(undisturbed "$series" | wc -l))) of them disturbed"
}

medians() {
    undisturbed "$1" | awk -v wanted="$(awk '{ print $5; exit }' "$1.reps")" '
        { for (i = 1; i <= NF; i++) v[i, NR] = $i; columns = NF }
        END {
            if (NR < wanted) exit
            for (c = 1; c <= columns; c++) {
                for (i = 1; i <= NR; i++) {
                    x = v[c, i] + 0
                    for (j = i - 1; j > 0 && sorted[j] > x; j--) sorted[j + 1] = sorted[j]
                    sorted[j + 1] = x
                }
                middle = NR % 2 ? sorted[(NR + 1) / 2] : (sorted[NR / 2] + sorted[NR / 2 + 1]) / 2
                printf "%s%g", (c > 1 ? " " : ""), middle
            }
            print ""
        }'
}

# hidden: reads "COMPUTE COMMUNICATION BOTH" (ms, each alone and both overlapped) and appends the overlapped percentage
# of the shorter one: the excess of BOTH over the longer one was not overlapped. The result is at most 100, also with
# noise.
hidden() {
    awk '{
        short = $1 < $2 ? $1 : $2
        exposed = $3 - ($1 < $2 ? $2 : $1)
        if (exposed < 0) exposed = 0
        print $0, 100 * (1 - exposed / short)
    }'
}
