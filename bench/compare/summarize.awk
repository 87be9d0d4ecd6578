# summarize.awk: one row of summary.csv from the steps.csv files of one configuration's repeats.
#
#   awk -v skip=2 -v head="ddp,mlp,cpu,shm,2,256" -v tail="1234,1000,56789" \
#       -f summarize.awk REP1/steps.csv REP2/steps.csv ...
#
# head: the first six columns. tail: peak bytes of device 0, of the others, bytes moved per step.
# The first `skip` steps of every repeat warm up and do not count. Times of phases are means over the
# middle half of the steps (from quartile to quartile), so that they add up to about the median step.
# spread is how far the repeats' own medians lie apart, (largest - smallest) / smallest.
BEGIN {
    FS = OFS = ","
    names = "data scatter replicate forward gather loss backward reduce exposed optimizer other"
    phases = split(names, phase, " ")
}

FNR == 1 {
    if (repeats) end_of_repeat()
    for (i = 1; i <= NF; i++) column[$i] = i
    repeats++
    of_repeat = 0
    next
}

FNR > skip + 1 {
    n++
    of_repeat++
    milliseconds[n] = $column["step_ms"]
    mine[of_repeat] = $column["step_ms"]
    speed[n] = $column["samples_per_s"]
    for (p = 1; p <= phases; p++) spent[p, n] = $column[phase[p] "_ms"]
}

function end_of_repeat(    median) {
    median = quantile(mine, of_repeat, 0.5)
    if (repeats == 1 || median < smallest) smallest = median
    if (repeats == 1 || median > largest) largest = median
}

# Sorts a copy: insertion sort, a few hundred values.
function quantile(values, count, q,    sorted, i, j, at) {
    for (i = 1; i <= count; i++) {
        for (j = i; j > 1 && sorted[j - 1] > values[i] + 0; j--) sorted[j] = sorted[j - 1]
        sorted[j] = values[i] + 0
    }
    at = 1 + q * (count - 1)
    i = int(at)
    return i >= count ? sorted[count] : sorted[i] + (at - i) * (sorted[i + 1] - sorted[i])
}

END {
    if (n == 0) {
        print "error: no steps were measured for " head > "/dev/stderr"
        exit 1
    }
    end_of_repeat()
    p25 = quantile(milliseconds, n, 0.25)
    p75 = quantile(milliseconds, n, 0.75)
    for (i = 1; i <= n; i++) {
        if (milliseconds[i] < p25 || milliseconds[i] > p75) continue
        middle++
        for (p = 1; p <= phases; p++) sum[p] += spent[p, i]
    }
    split(tail, last, ",")
    row = head OFS sprintf("%.1f", quantile(speed, n, 0.5)) OFS sprintf("%.4f", p25) OFS \
        sprintf("%.4f", quantile(milliseconds, n, 0.5)) OFS sprintf("%.4f", p75) OFS last[1] OFS last[2]
    for (p = 1; p <= phases; p++) row = row OFS sprintf("%.4f", sum[p] / middle)
    print row, last[3], repeats, n, sprintf("%.3f", smallest > 0 ? (largest - smallest) / smallest : 0)
}
